"""The commands inside our scripts count as the user's own: each role that runs a script may give them."""

import re
from importlib.resources import files

import pytest

from turnledger.workers.redis_rights import COMMANDS

SCRIPTS = {
    script.name: set(re.findall(r"(?:redis\.call|redis\.pcall|push)\('([A-Z]+)'", script.read_text(encoding="utf-8")))
    for script in files("turnledger.checkpoint").joinpath("scripts").iterdir()
    if script.name.endswith(".lua")
}
OF_WORKERS_ALONE = {"quarantine.lua"}  # the reconciler's


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_a_worker_may_give_every_command_of_a_script(name: str) -> None:
    """OP-5"""
    assert SCRIPTS[name] <= set(COMMANDS["worker"])


@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - OF_WORKERS_ALONE))
def test_an_engine_may_give_every_command_of_a_script_that_it_runs(name: str) -> None:
    """OP-5"""
    assert SCRIPTS[name] <= set(COMMANDS["engine"])
