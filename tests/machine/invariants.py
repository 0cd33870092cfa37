"""What must hold after every step, read from both servers behind the product's back."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from tests.machine.example import Example
from tests.machine.model import BOOTSTRAP_MARK, Ack, Attempt, ModelTurn, Standing
from tests.machine.words import spelled_out, words_of
from turnledger.store import LedgerName
from turnledger.store.history import replay
from turnledger.store.json_text import decode_json
from turnledger.store.ledger import Head
from turnledger.store.replacement import decode_replacement

_TERMINALS = {"turn_completed": "completed", "turn_failed": "failed", "turn_duplicate": "duplicate"}
_ENDINGS = {"completed": "completed", "failed": "failed", "abandoned": "failed", "duplicate": "duplicate"}
LEDGERS = text("SELECT * FROM ledger WHERE agent = ANY(:agents)")
_RUNS = text("SELECT * FROM ledger_turn WHERE turn_id = ANY(:turn_ids)")  # there is no index by ledger
_EVENTS = text(
    "SELECT ledger_id, seq, history_version, type, turn_id, idempotency_key, payload, content::text AS content"
    " FROM ledger_event WHERE ledger_id = ANY(:ids) ORDER BY ledger_id, seq"
)
_ENTRIES = text(
    "SELECT ledger_id, ordinal, entry_id, turn_id, work_key, entry, entry::text AS raw"
    " FROM ledger_entry WHERE ledger_id = ANY(:ids) ORDER BY ledger_id, ordinal"
)


@dataclass
class StoredLedger:
    """One ledger as Postgres has it."""

    row: Any
    runs: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)

    @property
    def name(self) -> LedgerName:
        return LedgerName(self.row.agent, self.row.conversation_key)

    @property
    def head(self) -> Head:
        return Head(self.row.ledger_id, self.row.history_version, self.row.next_seq, self.row.turn_count)


class Told(NamedTuple):
    """A word of the log as the reference puts histories together, where it stands and whose it is."""

    word: str
    seq: int
    turn_id: str | None


def check(example: Example) -> list[StoredLedger]:
    """Everything that holds at any moment. Returns what Postgres has of this example."""
    with example.world.database.snapshot() as connection:
        ledgers = _read(connection, example)
        for ledger in ledgers:
            _check_numbers(ledger)
            _check_endings(example, ledger)
            _check_work_keys(ledger)
            _check_entries(example, ledger)
            _check_rows(example, ledger)
            _check_bootstraps(ledger)
            _check_replay(connection, example, ledger)
    _check_nothing_lost(example, ledgers)
    return ledgers


def _read(connection: Connection, example: Example) -> list[StoredLedger]:
    rows = connection.execute(LEDGERS, {"agents": example.agents}).all()
    ledgers = {row.ledger_id: StoredLedger(row) for row in rows}
    ids = {"ids": list(ledgers)}
    for row in connection.execute(_RUNS, {"turn_ids": list(example.model.turns)}):
        ledgers[row.ledger_id].runs[row.turn_id] = row
    for row in connection.execute(_EVENTS, ids):
        ledgers[row.ledger_id].events.append(row)
    for row in connection.execute(_ENTRIES, ids):
        ledgers[row.ledger_id].entries.append(row)
    return list(ledgers.values())


def _check_numbers(ledger: StoredLedger) -> None:
    seqs = [event.seq for event in ledger.events]
    assert seqs == list(range(ledger.row.next_seq)), f"seq is not dense: {seqs}"
    ordinals = [event.payload["ordinal"] for event in ledger.events if "ordinal" in event.payload]
    assert ordinals == list(range(1, ledger.row.turn_count + 1)), f"ordinals are not dense: {ordinals}"
    versions = [event.history_version for event in ledger.events]
    assert versions == sorted(versions), f"versions go back: {versions}"


def _check_endings(example: Example, ledger: StoredLedger) -> None:
    endings = defaultdict(list)
    for event in ledger.events:
        if event.type in _TERMINALS and not event.idempotency_key.startswith("lost:"):
            endings[event.turn_id].append(_TERMINALS[event.type])
    for run in ledger.runs.values():
        expected = [_ENDINGS[run.outcome]] if run.outcome in _ENDINGS else []
        assert endings.pop(run.turn_id, []) == expected, f"endings of {run.turn_id}, which is {run.outcome}"
        turn = example.model.turns[run.turn_id]
        if run.outcome in ("failed", "abandoned"):
            legitimate = turn.may_have_ended or any(attempt.failure for attempt in turn.attempts)
            assert legitimate, f"turn {run.turn_id} was ended by nobody who might"
    assert not endings, f"endings of turns that never ran: {dict(endings)}"


def _check_work_keys(ledger: StoredLedger) -> None:
    keys = [run.work_key for run in ledger.runs.values() if run.outcome == "completed" and run.work_key]
    assert len(keys) == len(set(keys)), f"work completed more than once: {keys}"


def _check_entries(example: Example, ledger: StoredLedger) -> None:
    told = {
        event.payload["ordinal"]: (event.turn_id, event.payload["entry_id"])
        for event in ledger.events
        if "ordinal" in event.payload
    }
    stored = {entry.ordinal: (entry.turn_id, str(entry.entry_id)) for entry in ledger.entries}
    assert stored == told, f"entries and their events differ: {stored} {told}"
    for entry in ledger.entries:
        turn = example.model.turns[entry.turn_id]
        calls = [call["name"] for call in decode_json(entry.raw).get("calls", [])]
        fitting = [attempt for attempt in turn.attempts if _calls(attempt.words) == len(calls)]
        assert fitting or any(not attempt.is_exact for attempt in turn.attempts), f"calls of {entry.turn_id}: {calls}"


def _calls(words: Sequence[str]) -> int:
    return sum(word[0] == "c" for word in words)


def _check_rows(example: Example, ledger: StoredLedger) -> None:
    """The steps of a committed turn are those of one of its completions, and only covered ones come before."""
    rows: dict[str, list[str]] = defaultdict(list)
    covered: dict[str, int] = defaultdict(int)
    for event in ledger.events:
        if event.type == "agent_step":
            rows[event.turn_id].append(_word(event.content))
        elif event.type in ("compaction", "handoff"):
            covered[event.turn_id] = max(covered[event.turn_id], event.payload["covered_steps"])
    for turn_id, words in rows.items():
        turn, run = example.model.turns[turn_id], ledger.runs[turn_id]
        assert not turn.forbidden.intersection(words), f"a superseded holder wrote {turn.forbidden} of {words}"
        if not any(event.turn_id == turn_id and "ordinal" in event.payload for event in ledger.events):
            assert len(words) == covered[turn_id], f"turn {turn_id} is {run.outcome} and has steps {words}"
    for event in ledger.events:
        if "ordinal" in event.payload:
            turn = example.model.turns[event.turn_id]
            words = rows[event.turn_id]
            written = covered[event.turn_id]
            fits = [attempt for attempt in turn.attempts if _fits(attempt, words, covered=written)]
            if turn.went_back:  # begun anew, it may know nothing of what a replacement took of its former life
                fits += [attempt for attempt in turn.attempts if _fits(attempt, words[written:], covered=0)]
            assert fits, f"steps of {event.turn_id}: {words}, completed with {[each.words for each in turn.attempts]}"
            assert any(attempt.ack is not Ack.REFUSED for attempt in fits) or turn.went_back, "a refused one committed"


def _fits(attempt: Attempt, words: list[str], *, covered: int) -> bool:
    if attempt.standing is Standing.SUPERSEDED:
        return False
    expected = list(attempt.words[: max(attempt.kept, covered)])
    return words == expected if attempt.is_exact else words[: len(expected)] == expected


def _check_bootstraps(ledger: StoredLedger) -> None:
    texts = [*(f"{event.payload}{event.content}" for event in ledger.events), *(entry.raw for entry in ledger.entries)]
    assert not any(BOOTSTRAP_MARK in each for each in texts), "a bootstrap is in Postgres"


def _check_replay(connection: Connection, example: Example, ledger: StoredLedger) -> None:
    """The replay is what the reference puts together, and each summary stands for exactly what it replaced."""
    history: list[Told] = []
    meanings = example.model.meanings
    for event in ledger.events:
        if event.type == "agent_step":
            history.append(Told(_word(event.content), event.seq, event.turn_id))
        elif event.type in ("compaction", "handoff"):
            through = event.payload["through_seq"]
            own = [told for told in history if told.turn_id == event.turn_id and told.seq > through]
            gone = [*(told for told in history if told.seq <= through), *own]
            new = words_of(decode_replacement(event.content))
            stood_for = spelled_out([told.word for told in gone], meanings)
            _check_meaning(new, stood_for, spelled_out(new, meanings))
            base = [Told(word, event.seq, None) for word in new]
            history = [*base, *(told for told in history if told not in gone)]
    found = words_of(replay(connection, ledger.head))
    assert found == [told.word for told in history], f"replayed {found}, expected {[told.word for told in history]}"


def _check_meaning(new: Sequence[str], stood_for: Sequence[str], spelled: Sequence[str]) -> None:
    """A replacement stands for all that went, each word once and in order; open calls it repeats come at its end."""
    assert sorted(spelled) == sorted(stood_for), f"{new} stand for {spelled}, not for {stood_for}"
    moved = [word for word in new if word[0] != "z"]
    kept = [word for word in spelled if word not in moved]
    assert kept == [word for word in stood_for if word not in moved], f"{new} stand for {spelled} in another order"


def _word(content: str) -> str:
    return str(decode_json(content)["content"])


def _check_nothing_lost(example: Example, ledgers: Sequence[StoredLedger]) -> None:
    """Every completion that an engine was told of is history, on its way, on disk, or set aside for a reason."""
    runs = {turn_id: run for ledger in ledgers for turn_id, run in ledger.runs.items()}
    for turn in example.model.turns.values():
        for attempt in turn.told:
            if not attempt.is_excused:
                where = _whereabouts(example, turn, attempt, run=runs.get(turn.turn_id))
                assert where, f"turn {turn.turn_id} is lost; its run: {runs.get(turn.turn_id)}"


def _whereabouts(example: Example, turn: ModelTurn, attempt: Attempt, *, run: Any) -> str:
    if run is not None and run.outcome in ("completed", "duplicate"):
        return "decided"
    if run is not None and run.outcome in ("failed", "abandoned") and attempt.failure:
        return "filed, or ended before"
    if run is not None and run.epoch > attempt.epoch:
        return "superseded"
    if attempt.spooled is not None and _is_on_disk(attempt):
        return "spooled"
    if attempt.is_forgotten and attempt.process.lives:
        return "held by its process"
    state = example.world.redis.hget(example.world.keys.record(turn.turn_id), "state")
    return state if state in ("completed", "rejected") else ""


def _is_on_disk(attempt: Attempt) -> bool:
    path = attempt.spooled
    return path is not None and (path.exists() or path.with_name(f"{path.name}.refused").exists())
