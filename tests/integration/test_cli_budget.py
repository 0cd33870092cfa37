"""The command that shows and sets token budgets."""

import pytest

from tests.processes import Processes
from tests.stores import Stores


def environment(stores: Stores) -> dict[str, str]:
    return {"TURNLEDGER_REDIS_URL": stores.redis_url}


def test_the_budget_command_shows_and_sets(stores: Stores, processes: Processes) -> None:
    """In force at once, for people and for programs (RW-4, OP-2)."""
    budgets = stores.node().budgets

    def run(*arguments: str) -> tuple[int, str]:
        process = processes.command("budget", *arguments, environment=environment(stores))
        return process.wait(), process.output

    budgets.spend(agent="lead", tokens=1_500)
    code, output = run("--agent", "lead", "--tokens", "1000")
    assert code == 0
    assert "1,500" in output
    assert not budgets.has_room("lead")
    assert run("--deployment", "--tokens", "9000", "--json")[0] == 0
    code, output = run("--json")
    assert '"deployment":{"limit":9000,"spent":1500,"left":7500}' in output
    assert '"agents":{"lead":{"limit":1000,"spent":1500,"left":0}}' in output
    assert run("--agent", "lead", "--tokens", "unlimited")[0] == 0
    assert budgets.has_room("lead")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tokens", "5"), "give --tokens"),
        (("--agent", "lead"), "give --tokens"),
        (("--agent", "lead", "--deployment", "--tokens", "5"), "give --tokens"),
        (("--agent", "", "--tokens", "5"), "agent"),
        (("--agent", "lead", "--tokens", "-5"), "'-5' is no budget"),
        (("--agent", "lead", "--tokens", "many"), "'many' is no budget"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(
    stores: Stores, processes: Processes, arguments: tuple[str, ...], words: str
) -> None:
    """Exit code 2, and nothing is set (RW-4, OP-2)."""
    process = processes.command("budget", *arguments, environment=environment(stores))
    assert process.wait() == 2
    assert words in process.output
    assert not stores.redis.exists("{turnledger}:budgets")
