"""A turn that replaces its ledger's history: what the model sees afterwards, and what is refused."""

import threading

import psycopg
import pytest

from tests.stores import LEAD, Stores, assistant, begin, calling, result, user
from turnledger.checkpoint import Turn, TurnEnded, Turns
from turnledger.store import InvalidInput, LedgerName, NoReplyOwed, Replied, Step
from turnledger.store.errors import StaleHistory
from turnledger.store.history import replay


def texts(steps: list[Step] | tuple[Step, ...]) -> list[str]:
    return [str(step.value.get("content")) for step in steps]


def replayed(stores: Stores, *, version: int | None = None, ledger: LedgerName = LEAD) -> list[str]:
    with stores.database.transaction() as connection:
        return texts(replay(connection, stores.head(ledger), version=version))


def completed(node: Turns, *words: str) -> Turn:
    turn = begin(node, words[0])
    turn.complete(reply=Replied(words[-1]), steps=[user(words[0]), *map(assistant, words[1:])])
    return turn


def compact(turn: Turn, summary: str = "summary", *, covers: int | None = None) -> None:
    turn.compact(turn.history_to_replace(), steps=[user(summary)], model="m-1", covers=covers)


def test_the_replacement_stands_for_what_came_before_and_for_the_own_steps(stores: Stores, node: Turns) -> None:
    """History is the replacement, then what it does not cover, once (HV-2, HV-8, CK-7)."""
    completed(node, "q1", "a1")
    turn = begin(node)
    turn.save(steps=[user("q2"), assistant("thinking")], bootstrap={"belongs": "to version 0"})
    compact(turn)
    assert (texts(turn.steps), turn.bootstrap) == ([], None)
    turn.save(steps=[assistant("more")])
    assert texts(turn.steps) == ["more"]
    assert texts(turn.history()) == ["summary"]
    turn.complete(reply=Replied("done"), steps=[assistant("done")])
    stores.drain()
    assert replayed(stores) == ["summary", "more", "done"]
    assert replayed(stores, version=0) == ["q1", "a1", "q2", "thinking"]


def test_a_replacement_may_cover_only_some_of_the_own_steps(stores: Stores, node: Turns) -> None:
    """The others follow it (HV-4, HV-8)."""
    turn = begin(node)
    turn.save(steps=[user("q1"), assistant("a"), assistant("b")])
    compact(turn, covers=2)
    assert texts(turn.steps) == ["b"]
    compact(turn, "again", covers=0)
    turn.complete(reply=Replied("c"), steps=[assistant("c")])
    stores.drain()
    assert replayed(stores) == ["again", "b", "c"]
    assert replayed(stores, version=1) == ["summary"]
    assert replayed(stores, version=0) == ["q1", "a"]


def test_steps_that_others_complete_meanwhile_follow_the_replacement(stores: Stores, node: Turns) -> None:
    """Committed while it is computed, pending, and running: none is lost, none repeated (HV-4)."""
    committed_meanwhile, pending, running = begin(node, "x"), begin(node, "y"), begin(node, "z")
    running.save(steps=[user("z1")])
    turn = begin(node)
    turn.save(steps=[user("own")])
    history = turn.history_to_replace()
    committed_meanwhile.complete(reply=Replied("x1"), steps=[assistant("x1")])
    stores.drain()
    pending.complete(reply=Replied("y1"), steps=[assistant("y1")])
    turn.compact(history, steps=[user("summary")], model="m-1")
    running.complete(reply=Replied("z2"), steps=[assistant("z2")])
    turn.complete(reply=Replied("end"), steps=[assistant("end")])
    stores.drain()
    assert replayed(stores) == ["summary", "x1", "y1", "z1", "z2", "end"]


def test_pending_turns_are_history_before_it_is_read(stores: Stores, node: Turns) -> None:
    """The replacement can stand for them (HV-4, QU-3)."""
    completed(node, "q1", "a1")
    history = begin(node).history_to_replace()
    assert texts(history.steps) == ["q1", "a1"]
    assert [step.source for step in history.steps] == [2, 3]


def test_of_two_replacements_of_one_version_one_wins(stores: Stores, node: Turns) -> None:
    """The other is refused and has written nothing (HV-3)."""
    turns = [begin(node, word) for word in ("one", "two")]
    histories = [turn.history_to_replace() for turn in turns]
    outcomes: list[str] = []

    def replace(index: int) -> None:
        try:
            turns[index].compact(histories[index], steps=[user(f"summary {index}")], model="m-1")
            outcomes.append("won")
        except StaleHistory:
            outcomes.append("refused")

    threads = [threading.Thread(target=replace, args=[index]) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "won"]
    assert stores.head().history_version == 1
    assert [event.type for event in stores.events()].count("compaction") == 1


def test_an_owner_that_was_taken_over_replaces_nothing(stores: Stores) -> None:
    """Also while the version is still the one it read: the epoch decides (HV-11)."""
    old = begin(stores.node(lease_s=0.2, renew_s=60))
    history = old.history_to_replace()
    old.park(reason="waiting")
    stores.node().resume(old.turn_id)
    old._session._sent = 0  # as if it had nothing to save, and so did not hear of the take-over from Redis
    with pytest.raises(Exception) as refused:  # noqa: PT011  # Redis refuses first, Postgres would
        old.compact(history, steps=[user("summary")], model="m-1")
    assert type(refused.value).__name__ in ("StaleTurn", "StaleHistory")
    assert stores.head().history_version == 0


def test_other_open_turns_are_told_and_follow_at_their_resume(stores: Stores, node: Turns) -> None:
    """Marked at once, bootstrap dropped, their own steps kept (HV-6, RC-2, CK-7)."""
    other = begin(node, "other")
    other.park(reason="waiting", steps=[user("o1")], bootstrap={"belongs": "to version 0"})
    completed(node, "q1", "a1")
    compact(begin(node))
    record = stores.redis.hgetall(stores.keys.record(other.turn_id))
    assert isinstance(record, dict)
    assert (record["replaced_by"], record["bootstrap"]) == ("1", "")
    resumed = stores.node().resume(other.turn_id)
    assert (texts(resumed.steps), texts(resumed.history()), resumed.bootstrap) == (["o1"], ["summary"], None)
    resumed.complete(reply=Replied("o2"), steps=[assistant("o2")])
    stores.drain()
    assert replayed(stores) == ["summary", "o1", "o2"]


@pytest.mark.parametrize(
    "steps",
    [[calling("c9")], [result("c9")], [user("fine"), calling("c9"), user("no result")]],
    ids=["call without result", "result without call", "call left open"],
)
def test_a_replacement_that_a_model_would_refuse_is_refused(stores: Stores, node: Turns, steps: list[Step]) -> None:
    """It names the call, and nothing is written (HV-9)."""
    turn = begin(node)
    history = turn.history_to_replace()
    with pytest.raises(InvalidInput, match="c9"):
        turn.compact(history, steps=steps, model="m-1")
    assert stores.head().history_version == 0


def test_a_call_that_is_still_open_must_be_in_the_replacement(stores: Stores, node: Turns) -> None:
    """Else its result would have nothing to answer (HV-9)."""
    turn = begin(node)
    turn.park(reason="approval", steps=[user("q"), calling("c1")])
    turn = stores.node().resume(turn.turn_id)
    history = turn.history_to_replace()
    with pytest.raises(InvalidInput, match="c1"):
        turn.compact(history, steps=[user("summary")], model="m-1")
    turn.compact(history, steps=[user("summary"), calling("c1")], model="m-1")
    turn.save(steps=[result("c1")])
    turn.complete(reply=Replied("done"), steps=[assistant("done")])
    stores.drain()
    assert replayed(stores) == ["summary", "None", "fine", "done"]
    assert [call["outcome"] for call in stores.entries()[0]["calls"]] == ["success"]


def test_a_replacement_changes_no_entry_and_no_block(stores: Stores, node: Turns) -> None:
    """What was said and done stays what it was (BL-10)."""
    completed(node, "q1", "a1")
    stores.drain()
    before, entries = begin(node).earlier, stores.entries()
    compact(begin(node))
    assert (begin(node).earlier, stores.entries()) == (before, entries)


def test_copies_name_the_event_they_came_from(stores: Stores, node: Turns) -> None:
    """Over two replacements too, so that usage is counted once (HV-5)."""
    completed(node, "q1", "a1")
    for _ in range(2):
        turn = begin(node)
        history = turn.history_to_replace()
        turn.compact(history, steps=history.steps, model="m-1", covers=0)
        assert [step.source for step in history.steps] == [2, 3]
        turn.abandon()


def test_a_hand_off_to_another_profile_keeps_the_ledger(stores: Stores, node: Turns) -> None:
    """One more version, of the type handoff (HV-1, HV-7)."""
    turn = begin(node)
    turn.save(steps=[user("q")])
    turn.hand_off(turn.history_to_replace(), steps=[user("brief")], model="m-2", profile="reasoner")
    (handoff,) = [event for event in stores.events() if event.type == "handoff"]
    assert (handoff.payload.profile, handoff.payload.model, handoff.history_version) == ("reasoner", "m-2", 1)


def test_another_agent_gets_a_child_ledger(stores: Stores, node: Turns) -> None:
    """A key of its own, a parent for ever, and a ledger it already had there is not touched (HV-7)."""
    helper = LedgerName("helper", LEAD.conversation)
    begin(node, ledger=helper).complete(reply=Replied("before"))
    stores.drain()
    before = stores.events(helper)
    turn = begin(node)
    child = turn.open_child("helper", steps=[user("please look")], model="m-2")
    assert child.conversation.startswith("child:")
    work = begin(node, "go", ledger=child)
    assert texts(work.history()) == ["please look"]
    work.complete(reply=Replied("found"), steps=[assistant("found")])
    stores.drain()
    assert replayed(stores, ledger=child) == ["please look", "found"]
    for _ in range(2):
        turn.end_child(child, outcome="done")
    types = [event.type for event in stores.events()]
    assert (types.count("child_started"), types.count("child_ended")) == (1, 1)
    assert stores.events(helper) == before
    with pytest.raises(InvalidInput, match="no child"):
        turn.end_child(helper, outcome="done")
    for conversation in (child.conversation, LEAD.conversation):
        with pytest.raises(psycopg.errors.RestrictViolation, match="never change"):
            stores.execute("UPDATE ledger SET parent_id = ledger_id WHERE conversation_key = %s", conversation)


def test_a_replacement_says_which_model_it_is_for(stores: Stores, node: Turns) -> None:
    """And a handoff to which profile (HV-5, HV-7)."""
    turn = begin(node)
    history = turn.history_to_replace()
    for model, profile in (("", "reasoner"), ("m-2", "")):
        with pytest.raises(InvalidInput, match="printable"):
            turn.hand_off(history, steps=[user("so far")], model=model, profile=profile)
    with pytest.raises(InvalidInput, match="model"):
        turn.compact(history, steps=[user("so far")], model="")
    with pytest.raises(InvalidInput, match="model"):
        turn.open_child("helper", steps=[user("go")], model="")
    assert stores.types(turn.turn_id) == ["turn_started"]


def test_a_child_is_not_opened_while_a_sibling_call_is_open(stores: Stores, node: Turns) -> None:
    """All results of the step that hands over are recorded (HV-7)."""
    turn = begin(node)
    turn.park(reason="handing over", steps=[user("q"), calling("c1", "c2")])
    turn = stores.node().resume(turn.turn_id)
    with pytest.raises(InvalidInput, match="c2"):
        turn.open_child("helper", steps=[user("go")], model="m-2", call_id="c1")
    turn.park(reason="handing over", steps=[result("c2")])
    turn = stores.node().resume(turn.turn_id)
    turn.open_child("helper", steps=[user("go")], model="m-2", call_id="c1")
    turn.complete(reply=NoReplyOwed(), steps=[result("c1")])
    with pytest.raises(TurnEnded):
        turn.open_child("helper", steps=[user("go")], model="m-2")
