"""The decision of the commit point: pure, so every order of turns, runs and repeats can be tried."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.store.commit import CommitPlan, CompletedTurn, Evidence, TurnOutcome, plan_commit
from turnledger.store.events import EventRow, failed_event, handled_event, message_event
from turnledger.store.events import Message as ChatMessage
from turnledger.store.identity import LedgerName
from turnledger.store.ledger import EndedAs, Head, Run
from turnledger.store.steps import Step, encode_step

NOW = "2026-11-30T16:20:16.123Z"
A = LedgerName("lead", "jira:POC-7")
B = LedgerName("lead", "jira:POC-8")
LEDGER_IDS = {A: 1, B: 2}


def a_turn(
    turn_id: str,
    *,
    ledger: LedgerName = A,
    work_key: str = "",
    epoch: int = 1,
    steps: int = 1,
    messages: Sequence[str] = (),
    handled: Sequence[str] = (),
) -> CompletedTurn:
    return CompletedTurn(
        turn_id=turn_id,
        ledger=ledger,
        work_key=work_key,
        epoch=epoch,
        started_at=NOW,
        completed_at=NOW,
        entry_id=f"entry-{turn_id}",
        entry=json.dumps({"turn_id": turn_id}),
        decision="done",
        steps=tuple(encode_step(Step.of(role="user", content=[turn_id, n])) for n in range(steps)),
        before=tuple(message_event(ChatMessage(name, "text"), now=NOW) for name in messages),
        events=tuple(handled_event(name, now="") for name in handled),
    )


@dataclass
class Postgres:
    """What the commit point reads and writes, with the constraints that the schema has."""

    heads: dict[LedgerName, Head] = field(
        default_factory=lambda: {name: Head(i, 0, 0, 0) for name, i in LEDGER_IDS.items()}
    )
    runs: dict[str, Run] = field(default_factory=dict)
    events: list[tuple[object, ...]] = field(default_factory=list)
    entries: list[tuple[object, ...]] = field(default_factory=list)

    def start(self, turn: CompletedTurn, *, outcome: EndedAs | None = None, epoch: int = 1, steps: int = 0) -> None:
        ledger_id = LEDGER_IDS[turn.ledger]
        self.runs[turn.turn_id] = Run(turn.turn_id, ledger_id, turn.work_key, epoch, steps, outcome, None)

    def commit(self, turns: Sequence[CompletedTurn]) -> list[TurnOutcome]:
        plan = self.plan(turns)
        self.heads |= plan.heads
        self.runs |= {run.turn_id: run for run in plan.runs}
        self.events += plan.events
        self.entries += plan.entries
        self.check()
        return plan.outcomes

    def plan(self, turns: Sequence[CompletedTurn]) -> CommitPlan:
        answered = {(run.ledger_id, run.work_key): run.turn_id for run in self.completed() if run.work_key}
        keys = {(int(str(row[0])), str(row[6])) for row in self.events if row[6] is not None}
        return plan_commit(turns, heads=self.heads, evidence=Evidence(dict(self.runs), answered, keys))

    def completed(self) -> list[Run]:
        return [run for run in self.runs.values() if run.outcome == "completed"]

    def check(self) -> None:
        for unique in (
            [row[:2] for row in self.events],
            [(row[0], row[6]) for row in self.events if row[6] is not None],
            [row[:2] for row in self.entries],
            [row[2] for row in self.entries],
            [row[3] for row in self.entries],
            [(run.ledger_id, run.work_key) for run in self.completed() if run.work_key],
        ):
            assert max(Counter(unique).values(), default=1) == 1

    def of(self, ledger: LedgerName, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
        return [row for row in rows if row[0] == LEDGER_IDS[ledger]]

    def types(self, turn_id: str) -> list[str]:
        return [str(row[4]) for row in self.events if row[3] == turn_id]


@pytest.fixture
def postgres() -> Postgres:
    return Postgres()


turns = st.builds(
    a_turn,
    st.sampled_from([f"t{number}" for number in range(12)]),
    ledger=st.just(A),
    work_key=st.sampled_from(["", "k1", "k2"]),
    steps=st.integers(0, 3),
    messages=st.lists(st.sampled_from(["m1", "m2"]), max_size=3),
    handled=st.lists(st.sampled_from(["m1", "m2"]), max_size=3),
)
one_run_an_id = st.lists(turns, min_size=1, max_size=12, unique_by=lambda turn: turn.turn_id).map(
    lambda found: [replace(turn, ledger=B if number % 3 == 0 else A) for number, turn in enumerate(found)]
)
outcomes: st.SearchStrategy[EndedAs | None] = st.sampled_from([None, None, None, "lost", "failed", "abandoned"])


@settings(max_examples=150)
@given(st.data(), one_run_an_id)
def test_whatever_is_committed_again_and_in_whatever_groups_numbers_stay_dense_and_nothing_doubles(
    data: st.DataObject, runs: list[CompletedTurn]
) -> None:
    """Groups that repeat turns, runs that share work keys, runs that ended or were taken over (EV-4, EN-11, QU-4)."""
    postgres = Postgres()
    for turn in runs:
        if data.draw(st.booleans()):
            postgres.start(turn, outcome=data.draw(outcomes), epoch=data.draw(st.integers(1, 2)))
    for group in data.draw(st.lists(st.lists(st.sampled_from(runs), min_size=1, max_size=8), min_size=1, max_size=4)):
        decided = postgres.commit(group)
        assert [outcome.turn_id for outcome in decided] == [turn.turn_id for turn in group]
    for ledger, head in postgres.heads.items():
        seqs = [row[1] for row in postgres.of(ledger, postgres.events)]
        ordinals = [row[1] for row in postgres.of(ledger, postgres.entries)]
        assert seqs == list(range(head.next_seq))
        assert ordinals == list(range(1, head.turn_count + 1))
    terminals = Counter(row[6] for row in postgres.events if str(row[6]).startswith("ended:"))
    assert max(terminals.values(), default=1) == 1


@given(st.data(), one_run_an_id)
def test_a_second_commit_of_the_same_group_changes_nothing(data: st.DataObject, runs: list[CompletedTurn]) -> None:
    """At-least-once delivery has an exactly-once effect (QU-4)."""
    postgres = Postgres()
    first = postgres.commit(runs)
    before = (dict(postgres.heads), list(postgres.events), list(postgres.entries), dict(postgres.runs))
    second = postgres.commit(data.draw(st.permutations(runs)))
    assert (postgres.heads, postgres.events, postgres.entries, postgres.runs) == before
    assert {outcome.verdict for outcome in second} == {"already"}
    assert {outcome.turn_id: outcome.first for outcome in second} == {one.turn_id: one.first for one in first}


def test_the_events_of_a_turn_stand_in_the_order_in_which_they_happened(postgres: Postgres) -> None:
    """Inbound events, steps, what the completion adds, the terminal; one transaction's worth (EV-11, EV-13)."""
    postgres.commit([a_turn("t1", messages=["m1"], steps=2, handled=["m1"])])
    assert postgres.types("t1") == ["message", "agent_step", "agent_step", "message_handled", "turn_completed"]


def test_the_terminal_carries_the_entry_id_and_the_ordinal(postgres: Postgres) -> None:
    """For each recorded turn one entry and one turn_completed that names it (EV-13)."""
    postgres.commit([a_turn("t1"), a_turn("t2")])
    terminal = [row for row in postgres.events if row[3] == "t2"][-1]
    assert json.loads(str(terminal[7])) == {"entry_id": "entry-t2", "ordinal": 2, "decision": "done"}
    assert postgres.entries[1] == (1, 2, "entry-t2", "t2", "", NOW, '{"turn_id": "t2"}')


def test_of_two_runs_of_one_work_key_in_one_group_the_first_is_recorded(postgres: Postgres) -> None:
    """The second adds one terminal that names the first, and no entry, step or message (ST-5, QU-4)."""
    outcomes = postgres.commit([a_turn("t1", work_key="k"), a_turn("t2", work_key="k", messages=["m"], handled=["m"])])
    assert outcomes == [TurnOutcome("t1", "committed", 1), TurnOutcome("t2", "duplicate", first="t1")]
    assert postgres.types("t2") == ["turn_duplicate"]
    assert json.loads(str(postgres.events[-1][7])) == {"duplicate_of": "t1"}
    assert [row[3] for row in postgres.entries] == ["t1"]


def test_a_duplicate_takes_no_ordinal(postgres: Postgres) -> None:
    """The turn after a duplicate has the next number (EN-11)."""
    outcomes = postgres.commit([a_turn("t1", work_key="k"), a_turn("t2", work_key="k"), a_turn("t3")])
    assert [outcome.ordinal for outcome in outcomes] == [1, None, 2]


def test_the_empty_work_key_never_merges_turns(postgres: Postgres) -> None:
    """A turn without a work key is recorded for itself (EN-9)."""
    outcomes = postgres.commit([a_turn("t1"), a_turn("t2")])
    assert [outcome.verdict for outcome in outcomes] == ["committed", "committed"]


def test_one_work_key_on_two_ledgers_is_recorded_on_both(postgres: Postgres) -> None:
    """One message answered by two agents is two turns (ID-7)."""
    outcomes = postgres.commit([a_turn("t1", work_key="k"), a_turn("t2", work_key="k", ledger=B)])
    assert [outcome.verdict for outcome in outcomes] == ["committed", "committed"]


def test_a_turn_that_stands_twice_in_a_group_is_written_once(postgres: Postgres) -> None:
    """A pending list that names a turn twice does no harm (QU-4)."""
    outcomes = postgres.commit([a_turn("t1"), a_turn("t1")])
    assert [outcome.verdict for outcome in outcomes] == ["committed", "already"]
    assert len(postgres.entries) == 1


@pytest.mark.parametrize("outcome", ["failed", "abandoned"])
def test_a_run_that_has_ended_otherwise_is_not_completed_any_more(postgres: Postgres, outcome: EndedAs) -> None:
    """One terminal a turn, whoever races (EV-6)."""
    postgres.start(a_turn("t1"), outcome=outcome)
    assert postgres.commit([a_turn("t1")]) == [TurnOutcome("t1", "superseded")]
    assert postgres.events == []


def test_a_completion_under_a_lower_epoch_is_refused(postgres: Postgres) -> None:
    """Whoever was taken over writes nothing, also when Redis has forgotten the take-over (CK-2)."""
    postgres.start(a_turn("t1"), epoch=2)
    assert postgres.commit([a_turn("t1", epoch=1)]) == [TurnOutcome("t1", "superseded")]
    assert postgres.commit([a_turn("t1", epoch=2)]) == [TurnOutcome("t1", "committed", 1)]


def test_a_completion_overrules_session_lost(postgres: Postgres) -> None:
    """`session_lost` is provisional: its terminal stays where it is and a second one supersedes it (EV-6)."""
    turn = a_turn("t1", work_key="k")
    postgres.start(turn, outcome="lost")
    lost = failed_event("t1", code="session_lost", failure_id=None, now=NOW)
    postgres.events.append((1, 0, 0, "t1", *lost))
    postgres.heads[A] = Head(1, 0, 1, 0)
    assert postgres.commit([turn]) == [TurnOutcome("t1", "committed", 1)]
    assert postgres.types("t1") == ["turn_failed", "agent_step", "turn_completed"]
    assert postgres.runs["t1"].outcome == "completed"


def test_a_run_that_postgres_was_never_told_of_is_made_and_closed(postgres: Postgres) -> None:
    """Inbound events that could not be written at the start travel with the completion (FL-1)."""
    postgres.commit([a_turn("t1", work_key="k", epoch=3, messages=["m1"])])
    assert postgres.runs["t1"] == Run("t1", 1, "k", 3, 0, "completed", None)


def test_steps_that_a_replacement_has_written_are_not_written_again(postgres: Postgres) -> None:
    """`steps_written` counts a run's own steps that are in the log already (HV-8)."""
    postgres.start(a_turn("t1"), steps=2)
    postgres.commit([a_turn("t1", steps=3)])
    assert postgres.types("t1") == ["agent_step", "turn_completed"]
    assert json.loads(str(postgres.events[0][8])) == ["t1", 2]


def test_a_message_recorded_before_is_recorded_no_second_time(postgres: Postgres) -> None:
    """Keys are known across turns and inside one group (EV-2, EV-4)."""
    postgres.commit([a_turn("t1", messages=["m1", "m1"], handled=["m1"])])
    postgres.commit([a_turn("t2", messages=["m1", "m2"], handled=["m1"]), a_turn("t3", messages=["m2"])])
    assert postgres.types("t1") == ["message", "agent_step", "message_handled", "turn_completed"]
    assert postgres.types("t2") == ["message", "agent_step", "turn_completed"]
    assert postgres.types("t3") == ["agent_step", "turn_completed"]


def test_events_without_a_time_happened_when_the_turn_completed(postgres: Postgres) -> None:
    """Messages keep their own time (EN-1)."""
    early = EventRow("message", 1, "message:m", "{}", '"x"', "x", "2020-01-01T00:00:00.000Z")
    postgres.commit([replace(a_turn("t1", handled=["m"]), before=(early,))])
    assert [row[10] for row in postgres.events] == ["2020-01-01T00:00:00.000Z", NOW, NOW, NOW]


def test_rows_are_written_at_the_version_the_ledger_has_now(postgres: Postgres) -> None:
    """Steps get the ledger's version at their commit (HV-4)."""
    postgres.heads[A] = Head(1, 3, 0, 0)
    postgres.commit([a_turn("t1")])
    assert {row[2] for row in postgres.events} == {3}


def test_planning_changes_neither_heads_nor_evidence(postgres: Postgres) -> None:
    """Pure: a plan that is thrown away leaves nothing behind (QU-5)."""
    heads, runs = dict(postgres.heads), dict(postgres.runs)
    postgres.plan([a_turn("t1", work_key="k"), a_turn("t2", work_key="k")])
    assert (postgres.heads, postgres.runs) == (heads, runs)
