"""OpenTelemetry is used where it is used, and costs nothing where it is not."""

import subprocess
import sys

UNUSED = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry"):
            raise ImportError(name)

sys.meta_path.insert(0, Hidden())
import redis, rq  # the client imports it where it is there
del sys.meta_path[0]
import turnledger.checkpoint
import turnledger.workers.jobs
from turnledger.checkpoint.telemetry import measure_prompt, span
with span("start", turn_id="t1") as note:
    note(turns=1)
measure_prompt(10, part="block", occasion="start", agent="lead")
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
NOT_THE_API = """
import sys, types
sys.modules["opentelemetry"] = types.ModuleType("opentelemetry")
sys.modules["opentelemetry"].__path__ = []
from turnledger.checkpoint.telemetry import measure_prompt, span
with span("start", turn_id="t1") as note:
    note(turns=1)
measure_prompt(10, part="block", occasion="start", agent="lead")
"""
NO_SDK = """
import opentelemetry.metrics, opentelemetry.trace
from turnledger.checkpoint.telemetry import measure_prompt, span
with span("start", turn_id="t1") as note:
    note(turns=1)
measure_prompt(10, part="block", occasion="start", agent="lead")
"""


def _run(source: str) -> None:
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_process_without_it_never_imports_it() -> None:
    """Although it is installed here (OP-7)."""
    _run(UNUSED)


def test_another_package_of_that_name_is_not_it() -> None:
    """The namespace is shared by many (OP-7)."""
    _run(NOT_THE_API)


def test_the_api_alone_records_nothing() -> None:
    """As an engine that has not set it up (OP-7)."""
    _run(NO_SDK)
