"""Names: agents, conversations, ledgers, turns and the work that a turn answers.

Everything here is checked when it is made, so that what is held is known to be valid.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from turnledger.store.errors import InvalidInput
from turnledger.store.given import listed
from turnledger.store.json_text import has_surrogates

MAX_AGENT_CHARACTERS = 200
MAX_AGENT_BYTES = 512
MAX_CONVERSATION_CHARACTERS = 512
MAX_CONVERSATION_BYTES = 1_536
MAX_WORK_KEY_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 200
UNRECORDED_SOURCE = "event"

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_AGENT = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")
_CONVERSATION = re.compile("([a-z][a-z0-9_-]*):([^\x00-\x1f\x7f-\x9f\ud800-\udfff]+)")
_TURN_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, order=True, slots=True)
class LedgerName:
    """One agent's history of one conversation: the pair that names a ledger.

    Raises InvalidInput for an agent or a conversation key that is not allowed.
    """

    agent: str
    conversation: str

    def __post_init__(self) -> None:
        check_agent(self.agent)
        check_conversation(self.conversation)

    @property
    def recorded(self) -> bool:
        """False for the source ``event``: such a turn runs, and nothing of it is kept in Postgres."""
        return not self.conversation.startswith("event:")


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """A conversation key taken apart: ``jira:POC-7`` is source ``jira``, local ``POC-7``."""

    source: str
    local: str

    @classmethod
    def parse(cls, text: object) -> ConversationKey:
        """Raises InvalidInput unless the text is a whole, valid key."""
        source, _, local = check_conversation(text).partition(":")
        return cls(source, local)

    def __str__(self) -> str:
        return f"{self.source}:{self.local}"


def check_agent(text: object) -> str:
    """The handle itself: 1 to 200 characters and at most 512 bytes, free of control characters."""
    if not isinstance(text, str) or not _AGENT.fullmatch(text) or _longer(text, MAX_AGENT_BYTES):
        raise InvalidInput(f"agent {_shown(text)} {_agent_problem(text)}", where="agent")
    return text


def check_conversation(text: object) -> str:
    """The key itself: ``{source}:{local}``, at most 512 characters and 1,536 bytes in all."""
    if (
        not isinstance(text, str)
        or len(text) > MAX_CONVERSATION_CHARACTERS
        or not _CONVERSATION.fullmatch(text)
        or _longer(text, MAX_CONVERSATION_BYTES)
    ):
        problem = _conversation_problem(text)
        raise InvalidInput(f"conversation key {_shown(text)} {problem}", where="conversation")
    return text


def check_work_key(text: object) -> str:
    """The key itself: empty, or 1 to 200 printable characters. The empty key never merges turns."""
    if not isinstance(text, str) or len(text) > MAX_WORK_KEY_CHARACTERS or not text.isprintable():
        raise InvalidInput(
            f"work_key {_shown(text)} must be empty or have 1 to {MAX_WORK_KEY_CHARACTERS} printable "
            "characters; work_key(event_ids) makes one from any ids",
            where="work_key",
        )
    return text


def check_label(text: object, *, where: str) -> str:
    """The label itself: 1 to 200 printable characters, such as a reason or an opaque id."""
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_LABEL_CHARACTERS or not text.isprintable():
        raise InvalidInput(
            f"{where} {_shown(text)} must have 1 to {MAX_LABEL_CHARACTERS} printable characters", where=where
        )
    return text


def check_turn_id(text: object) -> str:
    """The id itself: 1 to 64 of the characters A-Z, a-z, 0-9, ``_`` and ``-``."""
    if not isinstance(text, str) or not _TURN_ID.fullmatch(text):
        raise InvalidInput(
            f"turn_id {_shown(text)} must have 1 to 64 of the characters A-Z, a-z, 0-9, _ and -",
            where="turn_id",
        )
    return text


def new_turn_id() -> str:
    """A random turn id."""
    return str(uuid.uuid4())


def new_entry_id() -> str:
    """A random entry id. It says nothing about the work that the turn did."""
    return str(uuid.uuid4())


def work_key(event_ids: Iterable[str]) -> str:
    """What a turn answers, as 32 hex digits: the same for the same ids in any order, repeats ignored.

    Ids are trimmed, blank ones dropped; no ids give the empty key. Raises InvalidInput for a single
    string, for ids that are not text, and for a line break inside an id.
    """
    ids = sorted({_event_id(event_id) for event_id in listed(event_ids, where="event_ids")} - {""})
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:32] if ids else ""


def _event_id(value: object) -> str:
    text = value.strip() if isinstance(value, str) else None
    if text is None or "\n" in text or has_surrogates(text):
        raise InvalidInput(
            f"event id {_shown(value)} must be text on one line without lone surrogates", where="event_ids"
        )
    return text


def _longer(text: str, limit: int) -> bool:
    return len(text) * 4 > limit and len(text.encode()) > limit


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return f"(of type {type(value).__name__})"
    return repr(value) if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]!r}..."


def _agent_problem(text: object) -> str:
    if not isinstance(text, str):
        return "must be text"
    if _UNSAFE.search(text):
        return "holds a control character or a lone surrogate; remove it"
    return f"must have 1 to {MAX_AGENT_CHARACTERS} characters and at most {MAX_AGENT_BYTES} UTF-8 bytes"


def _conversation_problem(text: object) -> str:
    if not isinstance(text, str):
        return "must be text"
    if _UNSAFE.search(text):
        return "holds a control character or a lone surrogate; remove it"
    if not _CONVERSATION.fullmatch(text):
        return "must be {source}:{local}, such as jira:POC-7: a source of a-z, 0-9, _ and -, and a local part"
    limits = f"{MAX_CONVERSATION_CHARACTERS} characters and {MAX_CONVERSATION_BYTES} UTF-8 bytes"
    return f"is too long: at most {limits}"
