"""The count of a soak finds what it is there to find."""

from dataclasses import replace

from tests.soak.summary import summary_of
from tests.soak.told import Acknowledged
from tests.soak.verdict import Verdict, judge
from tests.stores import Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Replied


def completed(turn: Turn, *words: str) -> Acknowledged:
    steps = [user(word) for word in words]
    turn.complete(reply=Replied("done"), steps=steps)
    contents = tuple(step.content for step in (*turn._held.steps, *steps))
    return Acknowledged(
        turn.turn_id,
        turn.ledger.agent,
        turn.ledger.conversation,
        turn.work_key,
        contents,
        turn._record.epoch,
        duplicate=False,
    )


def judged(stores: Stores, *told: Acknowledged) -> Verdict:
    stores.drain()
    return judge(told, database=stores.database, records=stores.records)


def test_what_is_there_once_is_right(stores: Stores, node: Turns) -> None:
    """Replacements of history included."""
    first = completed(begin(node), "one")
    turn = begin(node)
    turn.save(steps=[user("two")])
    history = turn.history_to_replace()
    stands_for = [step.content for step in (*history.steps, *turn.steps)]
    turn.compact(history, steps=[summary_of(stands_for)], model="m-1")
    verdict = judged(stores, first, completed(turn, "three"))
    assert verdict.right
    assert (verdict.committed, verdict.replaced) == (2, 1)


def test_a_turn_that_is_missing_is_lost(stores: Stores, node: Turns) -> None:
    told = completed(begin(node), "one")
    assert judged(stores, told, replace(told, turn_id="never-came")).lost == ["turn never-came is unknown"]


def test_other_steps_than_were_told_are_a_problem(stores: Stores, node: Turns) -> None:
    told = completed(begin(node), "one")
    assert not judged(stores, replace(told, steps=("something else",))).right


def test_a_step_that_is_there_twice_is_doubled(stores: Stores, node: Turns) -> None:
    told = [completed(begin(node), "the same") for _ in range(2)]
    assert judged(stores, *told).doubled == [user("the same").content]


def test_a_summary_that_stands_for_something_else_is_a_problem(stores: Stores, node: Turns) -> None:
    told = completed(begin(node), "one")
    turn = begin(node)
    turn.compact(turn.history_to_replace(), steps=[summary_of(["not what was there"])], model="m-1")
    assert "stands for other steps" in judged(stores, told).problems[0]
