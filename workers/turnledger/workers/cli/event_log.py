"""`turnledger show AGENT CONVERSATION --events`: a page of a ledger's log, whatever its events hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text
from sqlalchemy import Connection, func, null, select
from sqlalchemy import Text as SqlText

from turnledger.store import LedgerName
from turnledger.store.events import Event, Payload, read_event
from turnledger.store.ledger import Head, read_head
from turnledger.store.schema import ledger_event
from turnledger.store.times import time_text
from turnledger.workers.cli.exits import NotThere
from turnledger.workers.cli.looking import snapshot
from turnledger.workers.cli.output import Output, console, print_json, print_line, visible
from turnledger.workers.cli.short_ids import SHORT_ID
from turnledger.workers.cli.summaries import facts

LEAST_FACTS = 40  # columns: a narrower terminal shortens the turns' ids instead
HEADINGS = ("seq", "time", "type", "version", "turn", "bytes", "facts")
NUMBERS = (0, 3, 5)  # of the columns; they stand to the right
TURN = 4
GAP = "  "

_event = ledger_event.c
_columns = [column for column in _event if column.name not in ("content", "search_text")]
_size = func.octet_length(_event.content.cast(SqlText)).label("content_bytes")


Row = tuple[str, str, str, str, str, str, str]


class Logged(NamedTuple):
    """An event without its content, and how many bytes of content it has; None: it has none."""

    event: Event
    content_bytes: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """Events in order; `before` is the seq to go on from, None: no older ones are stored."""

    name: LedgerName
    head: Head
    logged: tuple[Logged, ...]
    before: int | None


def show_events(agent: str, *, conversation: str, last: int, before: int | None, output: Output) -> None:
    """Print the `last` newest events, or the newest before that seq; bounded, however large their contents are.

    Raises:
        InvalidInput: there is no such name, or Postgres has no such ledger.
        CorruptData: a row does not have its type's shape; names it.
    """
    page = read_page(LedgerName(agent, conversation), last=last, before=before)
    if output == "json":
        print_json(_members(page))
    else:
        _print(console(), page)


def read_page(name: LedgerName, *, last: int, before: int | None) -> Page:
    """At most `last` events; reads no content and nothing outside the page. Raises as `show_events`."""
    with snapshot() as connection:
        head = read_head(connection, name)
        if head is None:
            raise NotThere(f"Postgres has no ledger of agent {name.agent!r} on conversation {name.conversation!r}")
        found = _newest(connection, head, before=head.next_seq if before is None else before, most=last + 1)
    shown = found[:last]
    more = len(found) > last
    return Page(name, head, tuple(reversed(shown)), shown[-1].event.seq if more else None)


def _newest(connection: Connection, head: Head, *, before: int, most: int) -> list[Logged]:
    query = select(*_columns, null().label("content"), _size).where(_event.ledger_id == head.ledger_id)
    query = query.where(_event.seq < before).order_by(_event.seq.desc()).limit(most)
    return [Logged(read_event(dict(row)), row["content_bytes"]) for row in connection.execute(query).mappings()]


def _print(screen: Console, page: Page) -> None:
    ever = f"{page.head.next_seq:,} events ever, history version {page.head.history_version}"
    screen.print(Text(visible(f"{page.name.agent} · {page.name.conversation}: {ever}"), style="bold"), soft_wrap=True)
    rows = [HEADINGS, *(_row(logged) for logged in page.logged)]
    widths = _widths(screen, rows)
    for number, row in enumerate(rows):
        print_line(screen, Text(_aligned(row, widths), style="" if number else "dim"))
    if page.before is not None:
        screen.print(f"Older ones: --before {page.before}", style="dim")


def _row(logged: Logged) -> Row:
    event = logged.event
    size = "" if logged.content_bytes is None else f"{logged.content_bytes:,}"
    turn = event.turn_id or ""
    said = visible(facts(event))
    return str(event.seq), time_text(event.occurred_at), event.type, str(event.history_version), turn, size, said


def _widths(screen: Console, rows: Sequence[Row]) -> list[int]:
    """As wide as what stands in them, but for the turns' ids where a terminal has no room for them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    beside = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    if screen.is_terminal and beside + LEAST_FACTS > screen.width:
        widths[TURN] = SHORT_ID
    return widths


def _aligned(row: Row, widths: Sequence[int]) -> str:
    cells = [
        cell[:width].rjust(width) if place in NUMBERS else cell[:width].ljust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return GAP.join(cells).rstrip()


def _members(page: Page) -> dict[str, Any]:
    return {
        "agent": page.name.agent,
        "conversation": page.name.conversation,
        "ledger_id": page.head.ledger_id,
        "history_version": page.head.history_version,
        "events_ever": page.head.next_seq,
        "events": [_event_members(logged) for logged in page.logged],
        "before": page.before,
    }


def _event_members(logged: Logged) -> dict[str, Any]:
    return {**event_members(logged.event), "content_bytes": logged.content_bytes}


def event_members(event: Event) -> dict[str, Any]:
    """All of an event but its content."""
    payload = event.payload.model_dump(exclude_none=True) if isinstance(event.payload, Payload) else event.payload
    return {
        "seq": event.seq,
        "type": event.type,
        "stored_type": event.stored_type,
        "schema_version": event.schema_version,
        "history_version": event.history_version,
        "turn_id": event.turn_id,
        "key": event.key,
        "payload": payload,
        "occurred_at": time_text(event.occurred_at),
        "recorded_at": time_text(event.recorded_at),
    }
