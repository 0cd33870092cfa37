"""What model calls cost, added up by model for whoever watches (OP-4)."""

from collections.abc import Sequence

import pytest

from tests.stores import LEAD, Stores, begin
from turnledger.checkpoint import Turns
from turnledger.checkpoint.commit_point import CommitPoint
from turnledger.checkpoint.usage import HOURS, LONGEST_NAME, MOST_MODELS, Spent, UsageTally
from turnledger.store import Replied, Step, openai_step
from turnledger.store.steps import Usage, encode_step


def _call(model: str | None, *tokens: int) -> Step:
    return openai_step({"role": "assistant", "content": "x"}, model=model, usage=Usage(*tokens))


def _turn(node: Turns, steps: Sequence[Step], *, key: str = "k") -> None:
    begin(node, "ask", work_key=key).complete(reply=Replied("done"), steps=steps, decision="done")


@pytest.fixture
def usage(stores: Stores) -> UsageTally:
    return UsageTally(stores.redis, keys=stores.keys)


def test_the_calls_of_committed_turns_are_added_up_by_model(stores: Stores, node: Turns, usage: UsageTally) -> None:
    """Steps that name no model under `unknown`, steps without tokens not at all, the costliest model first (OP-4)."""
    plain = openai_step({"role": "user", "content": "x"})
    _turn(node, [plain, _call("small", 1, 2, 0), _call("large", 1_000, 50, 900)], key="a")
    _turn(node, [_call("small", 10, 20, 5), _call(None, 7, 1, 0)], key="b")
    assert usage.last_day() == []  # nothing is committed
    stores.drain()
    assert usage.last_day() == [
        Spent("large", 1, 1_000, 50, 900),
        Spent("small", 2, 11, 22, 5),
        Spent("unknown", 1, 7, 1, 0),
    ]


def test_a_call_counts_once_when_history_is_replaced(stores: Stores, node: Turns, usage: UsageTally) -> None:
    """The steps that a compaction covers are written by it, and are the turn's all the same (OP-4)."""
    turn = begin(node, "ask")
    turn.save(steps=[openai_step({"role": "user", "content": "x"}), _call("m", 10, 1, 0)])
    summary = openai_step({"role": "user", "content": "so far"})
    turn.compact(turn.history_to_replace(), steps=[summary], model="m")
    turn.complete(reply=Replied("done"), steps=[_call("m", 5, 1, 0)], decision="done")
    stores.drain()
    assert usage.last_day() == [Spent("m", 2, 15, 2, 0)]


def test_a_turn_that_was_committed_before_is_not_counted_again(stores: Stores, node: Turns, usage: UsageTally) -> None:
    """A worker that died between the commit and telling Redis (OP-4)."""
    turn = begin(node, "ask")
    turn.complete(reply=Replied("done"), steps=[_call("m", 5, 1, 0)], decision="done")
    stores.drain()
    stores.redis.hset(stores.keys.record(turn.turn_id), "state", "completed")
    stores.redis.rpush(stores.keys.pending(LEAD), turn.turn_id)
    point = CommitPoint(records=stores.records, database=stores.database)
    assert point.commit_ledger(LEAD, most_turns=10) == {turn.turn_id: "finished"}
    assert usage.last_day() == [Spent("m", 1, 5, 1, 0)]


def test_names_without_end_are_added_up_under_one(stores: Stores, usage: UsageTally) -> None:
    """An hour tells so many models apart; a name is cut (OP-4)."""
    usage.note(encode_step(_call(f"model-{number:03d}", 1, 0, 0)) for number in range(MOST_MODELS))
    for _ in range(2):
        usage.note([encode_step(_call("one more " * 50, 2, 0, 0)), encode_step(_call("model-007", 100, 0, 0))])
    spent = {each.model: each for each in usage.last_day()}
    assert len(spent) == MOST_MODELS + 1
    assert spent["other"] == Spent("other", 2, 4, 0, 0)
    assert spent["model-007"] == Spent("model-007", 3, 201, 0, 0)
    stores.redis.flushdb()
    usage.note([encode_step(_call("long " * 50, 2, 0, 0))])
    assert [len(each.model) for each in usage.last_day()] == [LONGEST_NAME]


def test_what_is_older_than_a_day_is_not_in_it(stores: Stores, usage: UsageTally) -> None:
    """And it expires (OP-4)."""
    usage.note([encode_step(_call("m", 1, 1, 1))])
    (key,) = map(str, stores.redis.scan_iter("{turnledger}:usage:*"))
    prefix, _, hour = key.rpartition(":")
    assert stores.redis.pttl(key) > HOURS * 3_600_000
    stores.redis.rename(key, f"{prefix}:{int(hour) - HOURS + 1}")
    assert [each.calls for each in usage.last_day()] == [1]
    stores.redis.rename(f"{prefix}:{int(hour) - HOURS + 1}", f"{prefix}:{int(hour) - HOURS - 1}")
    assert usage.last_day() == []


def test_a_name_that_is_no_text_stops_nothing(stores: Stores, node: Turns, usage: UsageTally) -> None:
    """Half a surrogate, which no bytes can carry (OP-4, QU-1)."""
    turn = begin(node, "ask")
    turn.complete(reply=Replied("done"), steps=[_call("m\ud800", 1, 1, 1)], decision="done")
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
    assert usage.last_day() == [Spent("m?", 1, 1, 1, 1)]


def test_a_commit_whose_usage_cannot_be_kept_is_a_commit(stores: Stores, node: Turns, usage: UsageTally) -> None:
    """(OP-4, QU-1)"""
    turn = begin(node, "ask")
    turn.complete(reply=Replied("done"), steps=[_call("m", 1, 1, 1)], decision="done")
    seconds, _ = stores.redis.time()
    for hour in (seconds // 3_600, seconds // 3_600 + 1):
        stores.redis.set(f"{{turnledger}}:usage:{hour}", "no hash", ex=60)
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"
