"""A Redis so full that no job can run, drained without RQ; and what the command line makes of it."""

import pytest

from tests.processes import Processes
from tests.stores import Stores, assistant, begin
from turnledger.store import Replied
from turnledger.workers.draining import drain


def complete(stores: Stores, count: int) -> list[str]:
    node = stores.node()
    turns = [begin(node, f"turn {number}") for number in range(count)]
    for turn in turns:
        turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    return [turn.turn_id for turn in turns]


def test_a_full_redis_is_drained_without_the_queue(stores: Stores) -> None:
    """Every script of the commit begins with a deleting write, which a full Redis allows (FL-10)."""
    turn_ids = complete(stores, 3)
    stores.redis.config_set("maxmemory", "1")
    try:
        assert drain(records=stores.records, database=stores.database) == 3
    finally:
        stores.redis.config_set("maxmemory", "0")
    assert [entry["turn_id"] for entry in stores.entries()] == turn_ids
    assert stores.pending() == []
    assert {stores.state(turn_id) for turn_id in turn_ids} == {"committed"}


def test_a_turn_that_cannot_be_stored_does_not_stop_the_drain(stores: Stores) -> None:
    """It is set aside, the others go on (FL-10, QU-6)."""
    turn_ids = complete(stores, 3)
    stores.redis.hset(stores.keys.record(turn_ids[1]), "entry", "no JSON")
    assert drain(records=stores.records, database=stores.database) == 3
    assert [entry["turn_id"] for entry in stores.entries()] == [turn_ids[0], turn_ids[2]]
    assert stores.state(turn_ids[1]) == "rejected"


@pytest.mark.parametrize("option", [(), ("--drain",)])
def test_the_command_says_what_it_committed(stores: Stores, processes: Processes, option: tuple[str, ...]) -> None:
    """The spool always, pending turns when asked to (FL-4, FL-10)."""
    complete(stores, 2)
    environment = {"TURNLEDGER_DATABASE_URL": stores.database_url, "TURNLEDGER_REDIS_URL": stores.redis_url}
    process = processes.command("recover", *option, environment=environment)
    assert process.wait() == 0
    assert "0 turns recovered" in process.output
    assert ("2 pending turns committed" in process.output) == bool(option)
