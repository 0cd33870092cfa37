"""The block of a turn stays what it was at the start, on every node, whatever happens to its ledger."""

import json
import uuid
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stores import TABLES, Stores, assistant, begin, contents, user
from turnledger.checkpoint import Turn, Turns
from turnledger.checkpoint.task_alone import task_alone
from turnledger.store import LedgerName, NoReplyOwed, Replied, Step, Undelivered, user_message

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


@pytest.mark.parametrize("how", ["save", "park", "complete", "deliver"])
def test_the_step_of_a_prompt_holds_the_task_alone(stores: Stores, node: Turns, how: str) -> None:
    """Whoever saves the prompt as it was sent does not put the block into Postgres (BL-6)."""
    begin(node, "first\n\ud800 \u2028").complete(reply=Replied("done"))
    turn = begin(node, task := "## Task\n\nNow this: é")
    step = user(user_message(earlier=turn.earlier, task=task))
    if how in ("save", "park"):
        turn.save(steps=[step]) if how == "save" else turn.park(reason="waiting", steps=[step])
        assert node.read(turn.turn_id).steps == (user(task),)
        turn = stores.node().resume(turn.turn_id) if how == "park" else turn
    steps = [assistant("so be it")] if how in ("save", "park") else [step, assistant("so be it")]
    if how == "deliver":
        turn.deliver(lambda: "r1", reply="so be it", steps=steps)
    else:
        turn.complete(reply=Replied("so be it"), steps=steps)
    stores.drain()
    assert contents(begin(node).history()) == contents([user(task), assistant("so be it")])
    tables = [f"SELECT 1 FROM {table} AS x WHERE x::text LIKE '%%Earlier in this conversation%%'" for table in TABLES]
    assert stores.rows(" UNION ALL ".join(tables)) == []


def test_a_step_without_the_block_is_kept_byte_for_byte() -> None:
    """Also one that quotes a part of it, and one of somebody else (BL-6)."""
    block = "## Earlier in this conversation\n\n### Earlier turn é"
    spaced = '{ "role":"user", "content":"%s\\n\\n## Task\\n\\nfix \\u00e9" }'
    ascii_only = json.dumps(block)[1:-1]
    steps = [
        (user("## Task"), user("## Task")),
        (user(block[:-1]), user(block[:-1])),
        (assistant(block), assistant(block)),
        (user(f"so far: {block}"), user("so far: ")),
        (user(block), user(block)),  # vendors refuse an empty text
        (
            Step.raw(role="user", content=spaced % ascii_only),
            Step.raw(role="user", content='{ "role":"user", "content":"fix \\u00e9" }'),
        ),
    ]
    assert [task_alone(given, block=block) for given, _ in steps] == [kept for _, kept in steps]
    assert task_alone(user(block), block="") == user(block)
