"""The block of a turn stays what it was at the start, on every node, whatever happens to its ledger."""

import uuid
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stores import Stores, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import LedgerName, NoReplyOwed, Replied, Undelivered

PIECES = ["\n", "## Task", "### 2026", "\x00", "\ud800", "𝄞", "\u202e", "You replied: ", "é" * 500]
text = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=6).map("".join)
replies = st.builds(Replied, text) | st.builds(Undelivered, text) | st.just(NoReplyOwed())
turns = st.lists(st.tuples(text, replies), max_size=4)
Happening = Callable[[Stores, Turns, LedgerName], object]


def _commit(stores: Stores, node: Turns, ledger: LedgerName) -> None:
    stores.drain()


def _complete_another(stores: Stores, node: Turns, ledger: LedgerName) -> None:
    _start(node, ledger, "later").complete(reply=Replied("later"))


def _compact(stores: Stores, node: Turns, ledger: LedgerName) -> None:
    turn = _start(node, ledger, "compact")
    turn.compact(turn.history_to_replace(), steps=[user("summary")], model="m-1")
    turn.abandon()


def _trim(stores: Stores, node: Turns, ledger: LedgerName) -> None:
    with stores.connection() as connection:
        connection.execute("SET LOCAL turnledger.maintenance = 'retention'")
        connection.execute("DELETE FROM ledger_entry")


HAPPENINGS: list[Happening] = [_commit, _complete_another, _compact, _trim]


def _start(node: Turns, ledger: LedgerName, ask: str) -> Turn:
    return node.start(agent=ledger.agent, conversation=ledger.conversation, triggered_by=ask)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(turns, st.lists(st.sampled_from(HAPPENINGS), max_size=4), st.integers(1, 3))
def test_the_block_is_the_same_bytes_on_every_node(
    stores: Stores,
    node: Turns,
    earlier: list[tuple[str, Replied | Undelivered | NoReplyOwed]],
    happenings: list[Happening],
    resumes: int,
) -> None:
    """At the start, at every look and after every resume (BL-6)."""
    ledger = LedgerName("lead", f"jira:{uuid.uuid4()}")
    for ask, reply in earlier:
        _start(node, ledger, ask).complete(reply=reply)
    turn = _start(node, ledger, "now")
    frozen = turn.earlier.encode()
    assert (frozen == b"") == (not earlier)
    other = stores.node()
    for _ in range(resumes):
        turn.park(reason="waiting")
        for happen in happenings:
            happen(stores, node, ledger)
        assert node.read(turn.turn_id).record.earlier.encode() == frozen
        turn = other.resume(turn.turn_id)
        assert turn.earlier.encode() == frozen
    other.close()
