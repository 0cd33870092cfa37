"""Pages that repeat what the code says are compared with it."""

import re
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from turnledger.checkpoint import CheckpointSettings
from turnledger.store import StoreSettings
from turnledger.store.config_section import SECTION, UNLIMITED, ConversationSession, wanted
from turnledger.store.crash_points import CRASH_POINTS
from turnledger.workers.cli.logs import LogSettings
from turnledger.workers.dashboard import DashboardSettings
from turnledger.workers.rewriting import RewriteSettings
from turnledger.workers.settings import WorkerSettings

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = DOCS / "reference" / "settings.md"
KINDS: dict[str, type[BaseSettings]] = {
    "Postgres": StoreSettings,
    "Redis": CheckpointSettings,
    "Workers and clock": WorkerSettings,
    "The rewriter": RewriteSettings,
    "The dashboard": DashboardSettings,
    "Logs of the command line": LogSettings,
}


SECTION_INTRODUCTION = (
    "In the YAML file that `TURNLEDGER_CONFIG` names, which may hold other sections as well. It is read anew when it",
    "has changed: at the next start, commit or sweep of each process, without a restart.",
    "[Configure and retain](../how-to/configure-and-retain.md) shows how to use it.",
)


def settings_page() -> str:
    """The reference of every setting; `python -m tests.docs.test_pages` writes it."""
    lines = ["# Settings", "", "All but the last section are environment variables. A unit is in the name.", ""]
    for title, kind in KINDS.items():
        lines += [f"## {title}", "", "| variable | default | what it is, and why |", "|---|---|---|"]
        lines += [_row(name, kind) for name in kind.model_fields]
        lines.append("")
    return "\n".join([*lines, *_section()])


def _section() -> list[str]:
    lines = [f"## The section `{SECTION}`", "", *SECTION_INTRODUCTION, ""]
    lines += ["| key | may be | default | what it is, and why |", "|---|---|---|---|"]
    for name, field in ConversationSession.model_fields.items():
        default = UNLIMITED if field.default is None else str(field.default).lower()
        lines.append(f"| `{name}` | {wanted(name)} | `{default}` | {field.description} |")
    return [*lines, ""]


def _row(name: str, kind: type[BaseSettings]) -> str:
    field = kind.model_fields[name]
    variable = "RQ_KEY_PREFIX" if name == "rq_prefix" else f"TURNLEDGER_{name.upper()}"
    default = "(required)" if field.is_required() else f"`{field.default}`"
    return f"| `{variable}` | {default} | {field.description} |"


def test_every_setting_has_a_reason() -> None:
    """And a name that carries its unit, where it is a time or a share."""
    for kind in KINDS.values():
        for name, field in kind.model_fields.items():
            assert field.description, name
            assert field.annotation is not float or re.search(r"_(s|share)$", name), name
    for name, field in ConversationSession.model_fields.items():
        assert field.description, name


def test_no_two_settings_share_a_variable() -> None:
    """One variable, one meaning."""
    names = [name for kind in KINDS.values() for name in kind.model_fields]
    assert len(names) == len(set(names))


def test_the_settings_page_is_up_to_date() -> None:
    assert SETTINGS.read_text(encoding="utf-8") == settings_page(), "run: python -m tests.docs.test_pages"


@pytest.mark.parametrize("name", CRASH_POINTS)
def test_every_crash_point_is_explained(name: str) -> None:
    assert f"| `{name}` |" in (DOCS / "explanation" / "what-can-fail.md").read_text(encoding="utf-8")


if __name__ == "__main__":
    SETTINGS.write_text(settings_page(), encoding="utf-8")
