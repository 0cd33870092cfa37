"""Conversations in OpenAI's chat format, one a line of a file, taken apart into turns.

A user message starts a turn; the messages up to the next one are its steps, the user's first. What stands before
the first user message (a system prompt, a greeting) belongs to no turn and is not played.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from turnledger.store import InvalidInput, LedgerName, Step, openai_step, work_key
from turnledger.store.json_text import decode_json
from turnledger.store.open_calls import OpenCalls

AGENT = "agent"
LONGEST_RUN = "f" * 8 + ".9999"  # what a key has to leave room for


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """One turn: the place of its user message in the chat, and its steps, that message first."""

    place: int
    steps: tuple[Step, ...]

    @property
    def message_id(self) -> str:
        """The id under which the user's message is recorded."""
        return f"message-{self.place}"

    @property
    def receipt(self) -> str:
        """The id that the chat would give to the reply."""
        return f"reply-to-{self.place}"

    @property
    def ask(self) -> str:
        """The user's words."""
        return words(self.steps[0].value)

    @property
    def reply(self) -> str | None:
        """The last text of the assistant; None: it said nothing."""
        return next((step.text for step in reversed(self.steps) if step.text), None)

    @property
    def rounds(self) -> list[list[Step]]:
        """The steps in the portions in which an engine saves them: a call always with its answer, if it has one."""
        calls = OpenCalls()
        portions: list[list[Step]] = [[]]
        for step in self.steps:
            if step.role == "assistant" and any(other.role != "user" for other in portions[-1]) and not calls.open:
                portions.append([])
            portions[-1].append(step)
            calls.advance(calls.check([step], allow_open=True))
        return portions


@dataclass(frozen=True, slots=True)
class Conversation:
    """One chat: its id and line in the file, its turns, and how many messages stand before the first of them."""

    id: str
    line: int
    turns: tuple[PlayedTurn, ...]
    before: int

    def key(self, run: str) -> str:
        """The conversation key under which one run plays it: each run has ledgers of its own."""
        return f"replay:{run}:{quote(self.id, safe='', errors='surrogatepass')}"

    def work_key(self, run: str, turn: PlayedTurn) -> str:
        """The work key of one of its turns."""
        return work_key([f"{self.key(run)}/{turn.message_id}"])


def read_conversations(path: Path) -> Iterator[Conversation]:
    """The conversations of a file in order, each checked when its line is read.

    Raises:
        InvalidInput: the file cannot be read, or a line is refused; names the line, and what is wrong with it.
    """
    lines_of: dict[str, int] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        conversation = _conversation(_record(line, where=where), number=number, where=where)
        first = lines_of.setdefault(conversation.id, number)
        if first != number:
            raise InvalidInput(f"{where}: the id {conversation.id[:60]!r} is that of line {first}; ids must differ")
        yield conversation
    if not lines_of:
        raise InvalidInput(f'{path} holds no conversation; a line looks like {{"id": "a", "messages": [...]}}')


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def _record(line: bytes, *, where: str) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        record = decode_json(text, where=where)
    except InvalidInput as error:  # its own count of lines would be of this one line
        raise InvalidInput(str(error).replace(": line 1 column", ": column")) from None
    if not isinstance(record, dict):
        raise InvalidInput(f"{where} must be an object with id and messages, not {type(record).__name__}")
    return record


def _conversation(record: Mapping[str, Any], *, number: int, where: str) -> Conversation:
    turns, before = _turns(record.get("messages"), where=where)
    conversation = Conversation(_id(record.get("id"), where=where), number, turns, before)
    try:
        LedgerName(AGENT, conversation.key(LONGEST_RUN))
    except InvalidInput:
        raise InvalidInput(f"{where}: the id has {len(conversation.id)} characters; use at most 100") from None
    return conversation


def _id(value: object, *, where: str) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    raise InvalidInput(f"{where}: id is missing or empty; it must be text or a number")


def _turns(messages: object, *, where: str) -> tuple[tuple[PlayedTurn, ...], int]:
    if not isinstance(messages, list):
        raise InvalidInput(f"{where}: messages is missing; it must be a list")
    steps = [openai_step(message, where=f"{where}: messages[{place}]") for place, message in enumerate(messages)]
    places = [place for place, step in enumerate(steps) if step.role == "user"]
    ends = [*places[1:], len(steps)]
    turns = tuple(
        _turn(place, steps=steps[place:end], where=where) for place, end in zip(places, ends, strict=bool(places))
    )
    return turns, places[0] if places else len(steps)


def _turn(place: int, *, steps: list[Step], where: str) -> PlayedTurn:
    OpenCalls().check(steps, allow_open=True, where=f"{where}: in the turn of messages[{place}], steps")
    return PlayedTurn(place, tuple(steps))


def words(message: Mapping[str, Any]) -> str:
    """The plain text of a message in OpenAI's format: its content, or the text parts of it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
