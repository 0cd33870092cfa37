"""What must have become of every turn, kept beside the product in plain Python: who holds it, what it saved, who
completed it with which steps, and what each replacement of history stands for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tests.machine.words import new_word
from turnledger.checkpoint import Turn
from turnledger.checkpoint.replacing import ReplaceableHistory
from turnledger.store import LedgerName, Message

BOOTSTRAP_MARK = "bootstrap-mark"


class Standing(Enum):
    """Whether a handle may write. Unsure: a claim by another is in doubt, or Redis went back or lost the record."""

    OWNER = "owner"
    UNSURE = "unsure"
    SUPERSEDED = "superseded"


class Ack(Enum):
    """What the engine was told of a completion. Refused: nothing was written, said the answer."""

    UNKNOWN = "unknown"
    COMPLETED = "completed"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(eq=False)
class Process:
    """One life of an engine node."""

    node: int
    lives: bool = True


@dataclass(eq=False)
class Attempt:
    """One completion that was asked for. `kept` of its words become history; inexact: there may be more of them.

    Forgotten: Redis may have lost it after the engine was told. Excused: so has the process that would submit it
    again, and nobody else ever had it.
    """

    words: tuple[str, ...]
    kept: int
    failure: bool
    standing: Standing
    process: "Process"
    epoch: int
    ack: Ack = Ack.UNKNOWN
    spooled: Path | None = None
    is_exact: bool = True
    is_forgotten: bool = False
    is_excused: bool = False

    @property
    def is_told(self) -> bool:
        return self.ack in (Ack.COMPLETED, Ack.DUPLICATE)

    @property
    def is_settled(self) -> bool:
        """Whether everybody who can ask both stores sees that the turn is completed."""
        safe = self.spooled is None and not self.is_forgotten
        return self.ack is Ack.COMPLETED and self.standing is Standing.OWNER and safe

    def forget(self) -> None:
        """Redis lost what it had acknowledged, or has acknowledged a moment ago."""
        self.is_forgotten = self.ack is not Ack.REFUSED and self.spooled is None
        self.excuse()

    def excuse(self) -> None:
        """The process that completed the turn may have died."""
        self.is_excused = self.is_excused or (self.is_forgotten and not self.process.lives)


@dataclass(eq=False)
class Handle:
    """A `Turn` that a node holds, and every word it has taken, saved or not, the covered ones included."""

    turn: Turn
    of: "ModelTurn"
    process: Process
    words: list[str]
    standing: Standing = Standing.OWNER
    attempt: Attempt | None = None
    history: "History | None" = None

    @property
    def turn_id(self) -> str:
        return self.of.turn_id

    @property
    def open_words(self) -> list[str]:
        """The words that no replacement covers, as far as this handle knows."""
        return self.words[len(self.words) - len(self.turn.steps) :]


@dataclass(frozen=True)
class History:
    """What `history_to_replace` gave, and as words."""

    given: ReplaceableHistory
    words: tuple[str, ...]


@dataclass(frozen=True)
class Request:
    """A start, so that it can be repeated."""

    ledger: LedgerName
    work_key: str
    text: str
    messages: tuple[Message, ...]


@dataclass(eq=False)
class ModelTurn:
    """One run.

    `minted` are all its words in the order in which they were made, `forbidden` those that a superseded holder made,
    `saved` what Redis was known to hold at last. On record: Redis was known to have it. Contested: started twice.
    Began in trouble: a start of it came to nothing, and may have left a record, block included.
    """

    turn_id: str
    request: Request
    block: str | None = None
    entry_id: str | None = None
    minted: list[str] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    saved: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    replacements: list[str] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    may_have_ended: bool = False
    on_record: bool = False
    went_back: bool = False
    is_contested: bool = False
    began_in_trouble: bool = False
    is_parked: bool = False
    has_lapsed: bool = False
    may_be_free: bool = False
    times_sent: int = 0
    is_being_sent: bool = False

    @property
    def ledger(self) -> LedgerName:
        return self.request.ledger

    @property
    def work_key(self) -> str:
        return self.request.work_key

    @property
    def is_free(self) -> bool:
        """Whether anybody may take it up, for sure."""
        return self.is_parked or self.has_lapsed

    def taken_up(self) -> None:
        self.is_parked = self.has_lapsed = self.may_be_free = False

    def may_be_taken_up(self) -> None:
        """Somebody has tried, and nobody knows how far that came."""
        self.may_be_free = self.may_be_free or self.is_free
        self.is_parked = self.has_lapsed = False

    @property
    def told(self) -> list[Attempt]:
        """The completions that an engine was told of, duplicates included."""
        return [attempt for attempt in self.attempts if attempt.is_told]

    def mint(self, letter: str, *, by: "Handle | None" = None) -> str:
        return self.mint_word(new_word(letter), by=by)

    def mint_word(self, word: str, *, by: "Handle | None" = None) -> str:
        self.minted.append(word)
        if by is not None and by.standing is Standing.SUPERSEDED:
            self.forbidden.add(word)
        return word

    def is_in_order(self, words: Sequence[str]) -> bool:
        """Whether these are words of this turn, each once, in the order in which they were made."""
        places = [self.minted.index(word) for word in words if word in self.minted]
        return len(places) == len(words) and places == sorted(set(places))

    def doubt(self, *, but: Handle | None = None) -> None:
        """Somebody may have claimed it meanwhile."""
        for handle in self.handles:
            if handle is not but and handle.standing is Standing.OWNER:
                handle.standing = Standing.UNSURE

    def supersede(self, *, by: Handle | None) -> None:
        for handle in self.handles:
            if handle is not by:
                handle.standing = Standing.SUPERSEDED


class Model:
    """All turns of one example."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.turns: dict[str, ModelTurn] = {}
        self.meanings: dict[str, tuple[str, ...]] = {}
        self.replaced: dict[LedgerName, str] = {}
        self.children: list[tuple[LedgerName, LedgerName]] = []
        self.ledgers = [LedgerName(agent, f"jira:{name}") for name in ("A", "B")]
        self.redis_went_back = False

    @property
    def handles(self) -> list[Handle]:
        return [handle for turn in self.turns.values() for handle in turn.handles]

    def of_work(self, ledger: LedgerName, work_key: str) -> Iterator[ModelTurn]:
        if work_key:
            yield from (turn for turn in self.turns.values() if (turn.ledger, turn.work_key) == (ledger, work_key))

    def redis_loses(self, *turns: ModelTurn) -> None:
        """Redis has forgotten something of these turns, or all of it."""
        self.redis_went_back = True
        for turn in turns:
            turn.went_back = True
            for attempt in turn.attempts:
                attempt.forget()
            for handle in turn.handles:
                handle.standing = Standing.UNSURE

    def process_dies(self, process: Process) -> None:
        """What only that process still knew is gone with it."""
        process.lives = False
        for turn in self.turns.values():
            turn.handles = [handle for handle in turn.handles if handle.process is not process]
            for attempt in turn.attempts:
                attempt.excuse()
