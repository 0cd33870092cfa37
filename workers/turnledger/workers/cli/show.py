"""`turnledger show`: a ledger or a turn, for a person or as JSON."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.record import UNFINISHED, Record
from turnledger.store import CorruptData, LedgerName
from turnledger.store.block import render_entry
from turnledger.store.entry import decode_entry
from turnledger.store.events import Event
from turnledger.store.json_text import decode_json
from turnledger.store.ledger import StoredEntry
from turnledger.store.times import time_text
from turnledger.workers.cli.event_log import event_members
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.looking import (
    LedgerLook,
    StoredTurn,
    TurnLook,
    look_at_history,
    look_at_ledger,
    look_at_turn,
)
from turnledger.workers.cli.output import (
    Output,
    console,
    error_console,
    many,
    print_json,
    print_line,
    visible,
    visible_lines,
)
from turnledger.workers.cli.short_ids import SHORT_ID, whole_turn_id
from turnledger.workers.cli.summaries import summary

TYPE_COLUMNS = 23  # the longest name of a type
OUTCOMES = {"": "not ended", "lost": "lost (a completion that arrives later overrules that)"}


def show_ledger(agent: str, *, conversation: str, last: int, output: Output) -> None:
    """Print one ledger.

    Raises:
        InvalidInput: there is no such name, or no such ledger.
        StoreUnavailable, SchemaMismatch, ...: Postgres cannot be asked.
    """
    look = look_at_ledger(LedgerName(agent, conversation), last=last)
    if look.redis_error is not None:
        error_console().print(f"Turns on their way are not shown: {look.redis_error}", style="yellow", markup=False)
    if output == "json":
        print_json(_ledger_members(look))
    else:
        _print_ledger(console(), look)


def show_history(agent: str, *, conversation: str, version: int, output: Output) -> None:
    """Print the model history of one version, current or older, step by step.

    Raises:
        InvalidInput: there is no such name, ledger or version.
        UnsupportedEvent: this release cannot replay it.
    """
    steps = look_at_history(LedgerName(agent, conversation), version=version)
    if output == "json":
        members = [{"role": step.role, "source": step.source, "content": step.value} for step in steps]
        print_json({"agent": agent, "conversation": conversation, "history_version": version, "steps": members})
        return
    screen = console()
    screen.print(Text(f"{agent} · {conversation}, history version {version}: {many(len(steps), 'step')}", style="bold"))
    for step in steps:
        screen.print(Text(f"{step.role}: {visible(step.content)}"), soft_wrap=True)


def show_turn(turn_id: str, *, output: Output) -> None:
    """Print one turn, whole; the beginning of its id will do where no other turn's begins like that.

    Raises:
        InvalidInput: this is no turn id, there is no such turn, or there are several.
    """
    look = _look_at_turn(turn_id)
    if output == "json":
        print_json(_turn_members(look))
    else:
        _print_turn(console(), look)


def _look_at_turn(given: str) -> TurnLook:
    try:
        return look_at_turn(given)
    except (NotThere, CheckpointUnavailable, CheckpointMisconfigured) as error:
        whole = whole_turn_id(given)
        if whole == given:
            if isinstance(error, NotThere) and len(given) < SHORT_ID:
                raise NotThere(f"there is no turn {given}; give {SHORT_ID} characters of its id or more") from None
            raise
        return look_at_turn(whole)


def _print_ledger(screen: Console, look: LedgerLook) -> None:
    screen.print(Text(f"{look.name.agent} · {look.name.conversation}", style="bold"))
    if look.head is not None:
        screen.print(
            f"ledger {look.head.ledger_id}, history version {look.head.history_version}, "
            f"{many(look.head.next_seq, 'event')}, {many(look.head.turn_count, 'turn')} recorded"
        )
        _print_entries(screen, look)
        _print_events(screen, look)
    _print_on_their_way(screen, look)


def _print_entries(screen: Console, look: LedgerLook) -> None:
    assert look.head is not None
    gone = look.head.turn_count - len(look.entries)
    _heading(screen, f"Entries: {len(look.entries)}" + (f", {gone:,} older ones no longer stored" if gone else ""))
    for entry in look.entries:
        screen.print()
        screen.print(Text(entry_text(entry)), soft_wrap=True)


def _print_events(screen: Console, look: LedgerLook) -> None:
    assert look.head is not None
    older = look.head.next_seq - len(look.events)
    _heading(screen, f"Events: {len(look.events)}" + (f", {older:,} older ones not shown (--last)" if older else ""))
    for event in look.events:
        print_line(screen, _event_line(event))


def _print_on_their_way(screen: Console, look: LedgerLook) -> None:
    if look.uncommitted or look.open:
        _heading(screen, "On their way")
    for turn in look.uncommitted:
        state = "pending" if turn.state == "completed" else turn.state
        screen.print(f"{turn.turn_id}  {state}, completed at {time_text(turn.completed_at_ms)}", soft_wrap=True)
    for opened in look.open:
        screen.print(f"{opened.turn_id}  {opened.state}", soft_wrap=True)


def _print_turn(screen: Console, look: TurnLook) -> None:
    screen.print(Text(f"turn {look.turn_id}", style="bold"))
    if look.record is not None:
        _print_record(screen, look.record, look)
    elif look.trouble:
        screen.print(Text(f"In Redis: {visible(look.trouble)}", style="yellow"), soft_wrap=True)
    if look.stored is None:
        screen.print("Postgres does not know it.")
        return
    _print_run(screen, look.stored)
    if look.stored.entry is not None:
        _heading(screen, f"Entry {look.stored.entry.ordinal}")
        screen.print(Text(entry_text(look.stored.entry)), soft_wrap=True)
    _heading(screen, f"Events: {len(look.stored.events)}")
    for event in look.stored.events:
        print_line(screen, _event_line(event))
        if event.content is not None:
            screen.print(Text(f"       {visible(event.content)}", style="dim"), soft_wrap=True)


def _print_record(screen: Console, record: Record, look: TurnLook) -> None:
    steps = many(len(look.saved_steps), "step")
    line = f"In Redis: {_state(record)}, {record.ledger.agent} · {record.ledger.conversation}, {steps} saved"
    screen.print(Text(visible(line)), soft_wrap=True)
    for sentence in _warnings(record, refusal=look.refusal):
        screen.print(Text(visible(sentence), style="yellow"), soft_wrap=True)
    if look.saved_steps and (look.stored is None or look.stored.outcome is None):
        _heading(screen, f"Steps: {len(look.saved_steps)}")
        for step in look.saved_steps:
            screen.print(Text(f"{step.role}  {visible(step.content)}"), soft_wrap=True)
        screen.print()


def _state(record: Record) -> str:
    if record.state == "completed":
        return "pending"
    return f"{record.state} ({record.reason})" if record.state == "parked" and record.reason else record.state


def _warnings(record: Record, *, refusal: str) -> list[str]:
    found = []
    if refusal:
        found.append(f"It was refused: {refusal}")
    if record.blocked and record.state in UNFINISHED:
        found.append(
            f"It is blocked ({record.blocked}): nobody may resume it, its holder may complete it, abandon ends it"
        )
    if record.replaced_by is not None and record.state in UNFINISHED:
        found.append(f"Its history was replaced by version {record.replaced_by}: a resume goes on from there")
    if record.superseded_by:
        found.append(f"Its work was completed by turn {record.superseded_by.partition(' ')[0]}")
    return found


def _print_run(screen: Console, run: StoredTurn) -> None:
    outcome = OUTCOMES.get(run.outcome or "", run.outcome)
    screen.print(Text(f"In Postgres: {outcome}, {run.ledger.agent} · {run.ledger.conversation}"), soft_wrap=True)
    ended = "" if run.ended_at is None else f", ended {time_text(run.ended_at)}"
    screen.print(f"started {time_text(run.started_at)}{ended}, {many(run.epoch - 1, 'take-over')}", soft_wrap=True)
    if run.work_key:
        screen.print(Text(f"work key {run.work_key}"), soft_wrap=True)
    if run.duplicate_of:
        screen.print(f"the work had been done by turn {run.duplicate_of}", soft_wrap=True)


def _heading(screen: Console, title: str) -> None:
    screen.print()
    screen.print(Rule(title, align="left", style="dim"))


def _event_line(event: Event) -> Text:
    turn = (event.turn_id or "")[:SHORT_ID]
    line = Text(f"{event.seq:>5}  {time_text(event.occurred_at)}  {event.type:<{TYPE_COLUMNS}}  {turn:<{SHORT_ID}}  ")
    line.append(visible(summary(event)), style="dim")
    return line


def entry_text(stored: StoredEntry) -> str:
    """An entry as a block shows it."""
    try:
        entry = decode_entry(stored.text, ordinal=stored.ordinal)
    except CorruptData as error:
        return f"### entry {stored.ordinal} cannot be read: {visible(str(error))}"
    return visible_lines(render_entry(replace(entry, completed_at=time_text(stored.completed_at))))


def _ledger_members(look: LedgerLook) -> dict[str, Any]:
    head = look.head
    return {
        "agent": look.name.agent,
        "conversation": look.name.conversation,
        "ledger_id": head and head.ledger_id,
        "history_version": head and head.history_version,
        "events_ever": head.next_seq if head else 0,
        "turns_ever": head.turn_count if head else 0,
        "entries": [_entry_members(entry) for entry in look.entries],
        "events": [_event_members(event) for event in look.events],
        "uncommitted": [{"turn_id": turn.turn_id, "state": turn.state} for turn in look.uncommitted],
        "open": [{"turn_id": turn.turn_id, "state": turn.state} for turn in look.open],
    }


def _turn_members(look: TurnLook) -> dict[str, Any]:
    record = look.record
    return {
        "turn_id": look.turn_id,
        "state": None if record is None else record.state,
        "reason": (record and record.reason) or None,
        "blocked": (record and record.blocked) or None,
        "replaced_by": record and record.replaced_by,
        "refusal": look.refusal or None,
        "trouble": look.trouble or None,
        "saved_steps": [decode_json(step.content) for step in look.saved_steps],
        "stored": None if look.stored is None else _run_members(look.stored),
    }


def _run_members(run: StoredTurn) -> dict[str, Any]:
    return {
        "agent": run.ledger.agent,
        "conversation": run.ledger.conversation,
        "work_key": run.work_key,
        "epoch": run.epoch,
        "started_at": time_text(run.started_at),
        "ended_at": _optional_time(run.ended_at),
        "outcome": run.outcome,
        "duplicate_of": run.duplicate_of,
        "entry": None if run.entry is None else _entry_members(run.entry),
        "events": [_event_members(event) for event in run.events],
    }


def _entry_members(stored: StoredEntry) -> dict[str, Any]:
    return {**decode_json(stored.text), "ordinal": stored.ordinal, "completed_at": time_text(stored.completed_at)}


def _event_members(event: Event) -> dict[str, Any]:
    return {**event_members(event), "content": None if event.content is None else decode_json(event.content)}


def _optional_time(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)
