"""A turn's record as values: its states, its fields, and what another turn sees of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from turnledger.checkpoint.errors import CheckpointMisconfigured
from turnledger.checkpoint.keys import decode_ledger
from turnledger.store import InvalidInput, LedgerName
from turnledger.store.events import EventRow, decode_rows
from turnledger.store.json_text import decode_json, encode_json
from turnledger.store.logs import get_logger

log = get_logger(__name__)

RECORD_FORMAT = "1"  # a record of another format is refused by resume and left alone by everything else

State = Literal["running", "parked", "completed", "rejected", "committed", "failed", "abandoned"]
UNFINISHED: frozenset[str] = frozenset({"running", "parked"})
_INPUT = "input:"  # with a message id: the field that says that it came in while the turn was parked
OWNER_LOST = "owner_lost"  # the reason of a turn that is parked because its owner fell silent, who may be back


@dataclass(frozen=True, slots=True)
class Cursor:
    """The history a turn was built on.

    `seq` is the last committed event it saw, `seq_turn_id` the turn of that event, `pending` the turns it saw
    completed but not yet committed. `ledger_id` is None when Postgres was not asked.
    """

    ledger_id: int | None
    history_version: int
    seq: int
    seq_turn_id: str | None
    pending: tuple[str, ...] = ()

    def encode(self) -> str:
        """As one field of the record."""
        return encode_json([self.ledger_id, self.history_version, self.seq, self.seq_turn_id, list(self.pending)])

    @classmethod
    def decode(cls, text: str) -> "Cursor":
        """The cursor of `encode`."""
        ledger_id, version, seq, seq_turn_id, pending = decode_json(text)
        return cls(ledger_id, version, seq, seq_turn_id, tuple(pending))


class PendingTurn(NamedTuple):
    """A completed turn that is not committed yet, as another turn of its ledger sees it.

    `kept_steps` is None where the record cannot be read; then `entry` is empty, and a block counts it as unreadable.
    """

    turn_id: str
    state: State
    work_key: str
    entry_id: str
    entry: str
    completed_at_ms: int
    completion_no: int
    message_ids: tuple[str, ...]
    kept_steps: int | None
    failure: str

    @property
    def did_its_work(self) -> bool:
        """Whether its work key and messages are answered; a turn that failed files an entry and answers nothing."""
        return not self.failure


class OpenTurn(NamedTuple):
    """An unfinished turn, as another turn of its ledger sees it."""

    turn_id: str
    state: State
    work_key: str
    owner: str


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What Redis knows of a ledger at one moment, `now_ms` by its own clock."""

    now_ms: int
    completions: int
    own_state: State | None
    pending: tuple[PendingTurn, ...]
    rejected: tuple[PendingTurn, ...]
    open: tuple[OpenTurn, ...]

    @classmethod
    def unknown(cls, *, now_ms: int) -> "LedgerView":
        """The view of a node that cannot ask Redis."""
        return cls(now_ms, 0, None, (), (), ())

    @property
    def uncommitted(self) -> tuple[PendingTurn, ...]:
        """Pending and rejected turns in the order in which they were completed."""
        return tuple(sorted((*self.pending, *self.rejected), key=lambda turn: turn.completed_at_ms))


def decode_view(answer: Sequence[Any]) -> LedgerView:
    """The answer of the script `look`."""
    now_ms, completions, own_state, pending, rejected, opened = answer
    return LedgerView(
        now_ms=int(now_ms),
        completions=int(completions),
        own_state=own_state or None,
        pending=tuple(_pending(item) for item in pending),
        rejected=tuple(_pending(item) for item in rejected),
        open=tuple(OpenTurn(turn_id, state, key or "", owner) for turn_id, state, key, owner in opened),
    )


def _pending(item: Sequence[Any]) -> PendingTurn:
    turn_id, state, work_key, entry_id, entry, completed_at, number, message_ids, kept, failure = item
    known = PendingTurn(turn_id, state, work_key or "", entry_id or "", "", 0, 0, (), None, failure or "")
    try:
        return known._replace(
            entry=entry or "",
            completed_at_ms=int(completed_at or 0),
            completion_no=int(number or 0),
            message_ids=tuple(decode_json(message_ids or "[]")),
            kept_steps=int(kept or 0),
        )
    except (ValueError, TypeError, InvalidInput):
        log.error("pending_record_unreadable", turn_id=turn_id)
        return known


@dataclass(frozen=True, slots=True)
class Record:
    """The record of one turn, as read at one moment."""

    turn_id: str
    state: State
    owner: str
    revision: int
    epoch: int
    slice: int
    ledger: LedgerName
    work_key: str
    recorded: bool
    entry_id: str
    started_at: str
    triggered_by: str
    earlier: str
    handled: tuple[str, ...]
    message_ids: tuple[str, ...]
    cursor: Cursor
    bootstrap: Any
    reason: str
    superseded_by: str
    covered: int
    replaced_by: int | None
    blocked: str
    delivery: str
    failure: str
    before: tuple[EventRow, ...]
    ran_ms: int = 0  # how long its holders had run it when it was last saved, without the waits between them
    untouched: int = 0  # the revision at which its engine has saved nothing yet, 0: nobody may begin it again
    inputs: frozenset[str] = frozenset()  # the messages that came in for it while it was parked
    replacement: tuple[str, ...] = ()  # in wire form: what an unrecorded turn has put in the place of its covered steps


def decode_record(turn_id: str, fields: Mapping[str, str]) -> Record:
    """The record of these fields.

    Raises:
        CheckpointMisconfigured: the record has another format than this release writes.
    """
    if fields.get("format") != RECORD_FORMAT:
        raise unknown_format(turn_id, found=fields.get("format", ""))
    return Record(
        turn_id=turn_id,
        state=fields["state"],  # type: ignore[arg-type]  # only our scripts write it
        owner=fields["owner"],
        revision=int(fields["revision"]),
        epoch=int(fields["epoch"]),
        slice=int(fields["slice"]),
        ledger=decode_ledger(fields["ledger"]),
        work_key=fields["work_key"],
        recorded=fields["recorded"] == "1",
        entry_id=fields["entry_id"],
        started_at=fields["started_at"],
        triggered_by=decode_json(fields["triggered_by"]),
        earlier=fields["earlier"],
        handled=tuple(decode_json(fields["handled"])),
        message_ids=tuple(decode_json(fields["message_ids"])),
        cursor=Cursor.decode(fields["cursor"]),
        bootstrap=decode_json(fields["bootstrap"]) if fields.get("bootstrap") else None,
        reason=fields.get("reason", ""),
        superseded_by=fields.get("superseded_by", ""),
        covered=int(fields.get("covered") or 0),
        replaced_by=int(fields["replaced_by"]) if fields.get("replaced_by") else None,
        blocked=fields.get("blocked", ""),
        delivery=fields.get("delivery", ""),
        failure=fields.get("failure", ""),
        before=decode_rows(fields.get("before")),
        inputs=frozenset(name.removeprefix(_INPUT) for name in fields if name.startswith(_INPUT)),
        ran_ms=int(fields.get("ran_ms") or 0),
        untouched=int(fields.get("untouched") or 0),
        replacement=tuple(decode_json(fields["replacement"])) if fields.get("replacement") else (),
    )


def unknown_format(turn_id: str, *, found: str) -> CheckpointMisconfigured:
    """The refusal of a record that another release wrote."""
    return CheckpointMisconfigured(
        f"the record of turn {turn_id} has format {found!r}, this release knows {RECORD_FORMAT!r}; "
        "use the release that wrote it"
    )
