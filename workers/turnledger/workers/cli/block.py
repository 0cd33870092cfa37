"""`turnledger block`: what the next turn of a ledger would be shown, byte for byte."""

import sys
from dataclasses import dataclass

from turnledger.checkpoint import CheckpointUnavailable
from turnledger.checkpoint.preview import next_block
from turnledger.checkpoint.record import LedgerView
from turnledger.store import LedgerName, check_revision, user_message
from turnledger.store.identity import new_turn_id
from turnledger.store.times import milliseconds, utc_now
from turnledger.workers.cli.output import Output, complain, error_console, many, print_json, visible
from turnledger.workers.cli.servers import records_to_look_at, the_database

BYTES_PER_TOKEN = 4  # of English prose, in the tokenizers of the common models; a rough figure by its nature


@dataclass(frozen=True, slots=True)
class _Size:
    """Of a text as UTF-8; `tokens` is an estimate."""

    bytes: int
    tokens: int

    @classmethod
    def of(cls, text: str) -> "_Size":
        count = len(_utf8(text))
        return cls(count, -(-count // BYTES_PER_TOKEN))

    def __str__(self) -> str:
        return f"{many(self.bytes, 'byte')}, about {many(self.tokens, 'token')}"


def print_block(agent: str, *, conversation: str, task: str | None, output: Output) -> None:
    """Print the block of the next turn, or the whole user message for a task; its size goes to standard error.

    Where Redis cannot be asked, a start could not ask it either: then the turns on their way are missing, and a line
    says so.

    Raises:
        InvalidInput: there can be no such agent or conversation.
        StoreUnavailable, SchemaMismatch, ...: Postgres cannot be asked.
    """
    name = LedgerName(agent, conversation)
    view = _view(name)
    with the_database() as database:
        check_revision(database)
        block = next_block(database, ledger=name, view=view)
        if not database.config.current().enabled:
            complain("turn_engine.conversation_session.enabled is false: no turn is shown anything")
    if output == "json":
        print_json(_members(name, block=block, task=task))
    else:
        _print_text(name, block=block, task=task)


def _view(name: LedgerName) -> LedgerView:
    try:
        with records_to_look_at() as records:
            return records.look(name, turn_id=new_turn_id())
    except CheckpointUnavailable as error:
        complain(f"turns on their way are not shown: {error}")
        return LedgerView.unknown(now_ms=milliseconds(utc_now()))


def _print_text(name: LedgerName, *, block: str, task: str | None) -> None:
    text = block if task is None else user_message(earlier=block, task=task)
    sys.stdout.flush()
    sys.stdout.buffer.write(_utf8(text))
    if sys.stdout.isatty() and text:
        sys.stdout.buffer.write(b"\n")  # into a file or a pipe goes the text itself, and not a byte more
    sys.stdout.flush()
    if text and sys.stderr.isatty() and not sys.stdout.isatty():
        sys.stderr.write("\n")  # both may end on one terminal, as behind `| cat`
    if not block:
        _say(f"no earlier turn of agent {name.agent!r} on conversation {name.conversation!r} would be shown")
    _say(f"block: {_Size.of(block)}" + ("" if task is None else f"; user message: {_Size.of(text)}"))


def _say(line: str) -> None:
    error_console().print(visible(line), markup=False, soft_wrap=True)


def _members(name: LedgerName, *, block: str, task: str | None) -> dict[str, object]:
    size = _Size.of(block)
    members: dict[str, object] = {
        "agent": name.agent,
        "conversation": name.conversation,
        "block": block,
        "block_bytes": size.bytes,
        "block_tokens": size.tokens,
    }
    if task is None:
        return members
    message = user_message(earlier=block, task=task)
    size = _Size.of(message)
    return {**members, "user_message": message, "user_bytes": size.bytes, "user_tokens": size.tokens}


def _utf8(text: str) -> bytes:
    """What the shell gave as a task may hold bytes that are no text; they go out as they came in."""
    return text.encode("utf-8", "surrogateescape")
