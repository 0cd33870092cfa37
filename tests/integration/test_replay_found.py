"""What replays under trouble have found."""

from tests.stores import Stores, assistant, begin, user
from turnledger.checkpoint import Turns
from turnledger.store import Replied


def test_a_pending_turn_is_in_the_block_although_postgres_has_no_ledger_yet(stores: Stores, node: Turns) -> None:
    """ST-1, BL-9, FL-1: its start could not be written, and nor can this one, but history can be read."""
    with stores.connection() as other:
        other.execute("LOCK TABLE ledger IN SHARE ROW EXCLUSIVE MODE")
        first = begin(node, "first", work_key="k1")
        first.complete(reply=Replied("done"), steps=[user("first"), assistant("done")])
        second = begin(node, "second", work_key="k2")
    assert second.history_error is None
    assert f"(turn {first.turn_id})" in second.earlier
    second.abandon()
