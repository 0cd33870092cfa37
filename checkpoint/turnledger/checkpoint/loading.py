"""Completed turns as Redis holds them -> completed turns as the commit point takes them."""

from collections.abc import Mapping, Sequence

from turnledger.checkpoint.keys import decode_ledger
from turnledger.checkpoint.record import Cursor
from turnledger.checkpoint.records import Records
from turnledger.store import CorruptData
from turnledger.store.commit import CompletedTurn
from turnledger.store.entry import decode_entry, encode_entry
from turnledger.store.errors import without_content
from turnledger.store.events import FAILURE_CODES, EventRow, decode_rows, is_known
from turnledger.store.fitting import with_names
from turnledger.store.times import time_text

Found = tuple[Mapping[str, str | None], Sequence[str]]


def load_turns(records: Records, turn_ids: Sequence[str]) -> list[CompletedTurn]:
    """The turns that are still completed, in the order given; those that ended meanwhile are left out.

    Raises:
        CorruptData: a record cannot be read; names its turn.
    """
    found = records.completed(turn_ids)
    return [
        completed_turn(turn_id, fields=fields, steps=steps)
        for turn_id, (fields, steps) in zip(turn_ids, found, strict=True)
        if fields["state"] == "completed"
    ]


def completed_turn(turn_id: str, *, fields: Mapping[str, str | None], steps: Sequence[str]) -> CompletedTurn:
    """One turn; over-long arguments and errors of its entry become names.

    Raises:
        CorruptData: the record cannot be read; names the turn.
    """
    try:
        return CompletedTurn(
            turn_id=turn_id,
            ledger=decode_ledger(str(fields["ledger"])),
            work_key=fields["work_key"] or "",
            epoch=int(fields["epoch"] or 0),
            started_at=str(fields["started_at"]),
            completed_at=time_text(int(fields["completed_at"] or 0)),
            entry_id=str(fields["entry_id"]),
            entry=fitted_entry(str(fields["entry"]), fitting=fields["fitting"]),
            decision=fields["decision"] or None,
            failure=_known(fields["failure"]),
            steps=_kept(steps, number=int(fields["kept_steps"] or 0)),
            before=_readable(decode_rows(fields["before"])),
            events=_readable(decode_rows(fields["events"])),
            unannounced=bool(fields["before"]) and Cursor.decode(str(fields["cursor"])).ledger_id is None,
        )
    except (ValueError, TypeError, CorruptData) as error:
        reason = without_content(error)
        raise CorruptData(f"the record of turn {turn_id} cannot be read: {reason}", where=turn_id) from None


def _readable(rows: tuple[EventRow, ...]) -> tuple[EventRow, ...]:
    """The rows, whose types this release could read back: an unknown one would stop every replay of the ledger."""
    for row in rows:
        if not is_known(row.type, row.schema_version):
            raise CorruptData(f"it brings an event of type {row.type!r}, version {row.schema_version}, not known here")
    return rows


def _known(failure: str | None) -> str | None:
    if failure and failure not in FAILURE_CODES:
        raise CorruptData("its failure code is not known")  # it may hold a provider's words
    return failure or None


def _kept(steps: Sequence[str], *, number: int) -> tuple[str, ...]:
    if len(steps) < number:
        raise CorruptData(f"{number} steps become history, and only {len(steps)} are there")
    return tuple(steps[:number])


def fitted_entry(entry: str, *, fitting: str | None) -> str:
    """The entry as it is committed: what is over-long in it, and has no account yet, as a name."""
    if fitting not in ("names", "rewrite"):
        return entry
    return encode_entry(with_names(decode_entry(entry, ordinal=None)))
