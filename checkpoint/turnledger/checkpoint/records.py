"""Runs the scripts: each method is one atomic change or one look, its answer decoded or raised.

Every change may be repeated by the client when a reply was lost: it carries an operation id or is
a repeat by itself, and gets its first answer again.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from redis import Redis

from turnledger.checkpoint.connection import connect, translated
from turnledger.checkpoint.errors import (
    AlreadyHandled,
    AlreadyRunning,
    CompletionConflict,
    QueueFull,
    StaleTurn,
    TurnBlocked,
    TurnEnded,
    TurnNotFound,
)
from turnledger.checkpoint.keys import Keys, encode_ledger, fit_job_id, job_id
from turnledger.checkpoint.queue import commit_job, fit_job
from turnledger.checkpoint.record import (
    RECORD_FORMAT,
    LedgerView,
    Record,
    decode_record,
    decode_view,
    unknown_format,
)
from turnledger.checkpoint.scripting import flat, load_script
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.store import LedgerName
from turnledger.store.json_text import encode_json

Fields = Mapping[str, str | int]
Lease = Literal["keep", "give up"]
JobWish = Literal["make", "leave"]
Purpose = Literal["resume", "end"]
Unfitted = Literal["wait", "names"]
COMMIT_FIELDS = (
    "state", "ledger", "work_key", "epoch", "started_at", "completed_at", "entry_id", "entry", "fitting",
    "decision", "failure", "kept_steps", "before", "events", "cursor",
)  # fmt: skip
_SCRIPTS = (
    "look", "open", "save", "renew", "claim", "block", "input", "complete", "end",
    "take", "window", "front", "stand", "finish", "reject", "reinstate", "restore", "overdue", "prune",
)  # fmt: skip
JOB_HELPERS = ("_shared", "_jobs")
_HELPERS = {"restore": JOB_HELPERS}


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write a turn: its id, the owner's token and the revision written last."""

    turn_id: str
    owner: str
    revision: int

    def advanced(self) -> "Claim":
        """After one successful write."""
        return Claim(self.turn_id, self.owner, self.revision + 1)


class Taken(NamedTuple):
    """A turn as a worker finds it when its job begins; `refusal` is set when the job has to report one."""

    state: str
    ledger: str
    attempts: int
    refusal: str


class Place(NamedTuple):
    """How many turns of its ledger stand before a pending turn, and the one that it waits for, '' when it does not."""

    before: int
    waits_for: str


class Overdue(NamedTuple):
    """A turn that has been pending for long; `ledger` is encoded, `waits` is whether it waits for a rewriting."""

    turn_id: str
    ledger: str
    waits: bool


class JobKeys(NamedTuple):
    """A job as a script sees it: its queue, its id, and the fields of its hash."""

    queue: str
    job_id: str
    fields: Mapping[str, str | bytes]


class Finished(NamedTuple):
    """A turn that the commit point has decided, for the script `finish`."""

    turn_id: str
    ledger: LedgerName
    outcome: str
    ordinal: int | None
    first: str | None


def new_token() -> str:
    """A random owner token or operation id."""
    return uuid.uuid4().hex


class Records:
    """The turns' records in one Redis. Thread-safe; a child of a fork connects anew."""

    def __init__(self, redis: Redis, settings: CheckpointSettings) -> None:
        self.redis = redis
        self.settings = settings
        self.keys = Keys(settings.prefix, settings.rq_prefix, settings.commit_queue, settings.rewrite_queue)
        self._scripts = {name: load_script(redis, name, helpers=_HELPERS.get(name, ("_shared",))) for name in _SCRIPTS}
        self._lease_ms = round(settings.lease_s * 1000)
        self._expiry_ms = round(settings.unfinished_expiry_s * 1000)
        self._spare_ms = round(settings.spare_copy_s * 1000)

    @classmethod
    def from_settings(cls, settings: CheckpointSettings) -> "Records":
        """Over a client of its own; nothing connects yet."""
        return cls(connect(settings), settings)

    def look(self, ledger: LedgerName, *, turn_id: str) -> LedgerView:
        """What Redis knows of the ledger, and of this turn, at one moment."""
        keys = self.keys
        places = [keys.pending(ledger), keys.rejected(ledger), keys.open(ledger), keys.completions(ledger)]
        return decode_view(self._run("look", [*places, keys.record(turn_id)], [keys.turn_prefix]))

    def open(self, claim: Claim, *, ledger: LedgerName, work_key: str, fields: Fields) -> int:
        """Make the record of a started turn. Returns how many completions its ledger has seen by now.

        Raises:
            AlreadyRunning: the turn has a record of another owner, or the work key an open run.
        """
        keys = self.keys
        places = [keys.record(claim.turn_id), keys.open(ledger), keys.completions(ledger), keys.turns]
        places += [keys.pending(ledger), keys.rejected(ledger)]
        head = [keys.turn_prefix, claim.turn_id, work_key, claim.owner, self._lease_ms, self._expiry_ms]
        owned = {"owner": claim.owner, "revision": claim.revision, **fields}
        answer = self._run("open", places, [*head, *flat(owned)])
        if answer[0] == "opened":
            return int(answer[1])
        turn_id, state, owner = answer[1:] if answer[0] == "running" else (claim.turn_id, "running", None)
        raise already_running(turn_id, state=state, owner=owner)

    def save(
        self, claim: Claim, *, fields: Fields, steps: Sequence[str] = (), lease: Lease = "keep", operation: str = ""
    ) -> Claim:
        """Append steps and set fields; nothing at all unless the claim is in force.

        An operation whose reply was lost is repeated under its own id and done once.

        Raises:
            StaleTurn, TurnEnded, TurnNotFound: nothing was written.
        """
        keys = self.keys
        places = [keys.record(claim.turn_id), keys.steps(claim.turn_id), keys.turns]
        lease_ms = self._lease_ms if lease == "keep" else 0
        head = [claim.turn_id, claim.owner, claim.revision, operation or new_token(), lease_ms, self._expiry_ms]
        answer = self._run("save", places, [*head, 2 * len(fields), *flat(fields), *steps])
        if answer[0] != "saved":
            raise _refused(claim.turn_id, answer)
        return claim.advanced()

    def renew(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew the leases of these turns in one round trip; False: no longer this owner's."""
        script = self._scripts["renew"]
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for claim in claims:
                places = [self.keys.record(claim.turn_id), self.keys.steps(claim.turn_id)]
                script(keys=places, args=[claim.owner, self._lease_ms, self._expiry_ms], client=pipeline)
            return [bool(answer) for answer in pipeline.execute()]

    def claim(self, turn_id: str, *, owner: str, purpose: Purpose = "resume") -> tuple[Record, list[str]]:
        """Take an unfinished turn over: its record, now this owner's, and its steps in wire form.

        To end it, it may be blocked.

        Raises:
            TurnNotFound: there is no record.
            AlreadyRunning: its owner's lease is in force.
            AlreadyHandled: it is completed.
            TurnEnded: it failed, also where it filed an entry, or was abandoned.
            TurnBlocked: somebody marked it so; `reason` says why.
            CheckpointMisconfigured: the record has another format; it is left as it is.
        """
        keys = self.keys
        places = [keys.record(turn_id), keys.steps(turn_id), keys.turns]
        answer = self._run("claim", places, [turn_id, owner, self._lease_ms, self._expiry_ms, RECORD_FORMAT, purpose])
        if answer[0] == "running":
            raise already_running(turn_id, owner=answer[1], state=answer[2])
        if answer[0] == "ended" and answer[1] in ("completed", "committed", "rejected"):
            raise done_before(turn_id, entry_id=answer[2], failure=answer[3])
        if answer[0] == "blocked":
            raise TurnBlocked(f"turn {turn_id} cannot be resumed safely: {answer[1]}", reason=answer[1])
        if answer[0] == "format":
            raise unknown_format(turn_id, found=answer[1])
        if answer[0] != "claimed":
            raise _refused(turn_id, answer)
        return decode_record(turn_id, _pairs(answer[1])), list(answer[2])

    def block(self, turn_id: str, *, reason: str) -> bool:
        """Mark an unfinished turn as not to be resumed; its holder may still complete it. True: it is marked."""
        return bool(self._run("block", [self.keys.record(turn_id)], [reason]))

    def append_input(self, turn_id: str, *, message_id: str, steps: Sequence[str]) -> None:
        """Append steps to a parked turn; the same message again changes nothing.

        Raises:
            TurnNotFound, TurnEnded: there is nothing to append to.
            AlreadyRunning: it is not parked.
        """
        keys = self.keys
        places = [keys.record(turn_id), keys.steps(turn_id), keys.turns]
        head = [turn_id, message_id, encode_json(message_id), self._expiry_ms]
        answer = self._run("input", places, [*head, *steps])
        if answer[0] == "busy":
            raise already_running(turn_id, state=answer[1], owner=answer[2])
        if answer[0] not in ("taken", "again"):
            raise _refused(turn_id, answer)

    def complete(
        self,
        claim: Claim,
        *,
        ledger: LedgerName,
        work_key: str,
        digest: str,
        fields: Fields,
        steps: Sequence[str],
        operation: str,
    ) -> str:
        """Complete the turn and queue its commit, both or neither; '' or the run that was first.

        A turn whose field `fitting` says `rewrite` is queued for that instead.

        Raises:
            CompletionConflict: it was completed before, with another content.
            QueueFull: too much is pending; nothing was written.
            StaleTurn, TurnEnded, TurnNotFound: nothing was written.
        """
        keys, turn_id = self.keys, claim.turn_id
        waits = fields.get("fitting") == "rewrite"
        job = self.fit_job(turn_id) if waits else self.commit_job(turn_id)
        head: list[Any] = [turn_id, claim.owner, claim.revision, operation, digest, keys.turn_prefix, work_key]
        head += [job.queue, job.job_id, self.settings.pending_turns]
        head += [round(self.settings.rewrite_wait_s * 1000) if waits else 0, 2 * len(fields), *flat(fields)]
        places = self._complete_keys(ledger, turn_id, job=job)
        answer = self._run("complete", places, [*head, 2 * len(job.fields), *flat(job.fields), *steps])
        if answer[0] == "conflict":
            raise CompletionConflict(f"turn {turn_id} was completed before with another content; the first stands")
        if answer[0] == "full":
            raise QueueFull(f"{self.settings.pending_turns} turns are pending; turn {turn_id} was not queued")
        if answer[0] != "completed":
            raise _refused(turn_id, answer)
        return str(answer[1])

    def commit_job(self, turn_id: str) -> JobKeys:
        """The job that commits this turn."""
        return JobKeys(self.keys.queue, job_id(turn_id), commit_job(turn_id, settings=self.settings))

    def fit_job(self, turn_id: str) -> JobKeys:
        """The job that rewrites this turn's over-long pieces."""
        return JobKeys(self.keys.rewrites, fit_job_id(turn_id), fit_job(turn_id, settings=self.settings))

    def _complete_keys(self, ledger: LedgerName, turn_id: str, *, job: JobKeys) -> list[str]:
        keys = self.keys
        ours = [keys.record(turn_id), keys.steps(turn_id), keys.open(ledger), keys.pending(ledger)]
        ours += [keys.completions(ledger), keys.turns, keys.backlog]
        return [*ours, keys.job_prefix + job.job_id, keys.queues, job.queue]

    def end(self, claim: Claim, *, ledger: LedgerName, state: str, fields: Fields, operation: str) -> int:
        """End a turn that is not queued: failed, abandoned, or completed and not to be recorded.

        Returns the time at which it ended, in milliseconds by the clock of Redis.

        Raises:
            StaleTurn, TurnEnded, TurnNotFound: nothing was written.
        """
        keys, turn_id = self.keys, claim.turn_id
        places = [keys.record(turn_id), keys.steps(turn_id), keys.open(ledger), keys.turns]
        head = [turn_id, claim.owner, claim.revision, operation, state, self._spare_ms]
        answer = self._run("end", places, [*head, *flat(fields)])
        if answer[0] != "ended_now":
            raise _refused(turn_id, answer)
        return int(answer[1])

    def steps_of(self, parts: Sequence[tuple[str, int, int]]) -> list[list[str]]:
        """Of each (turn_id, first, end) the steps from first up to end, in wire form, in one round trip."""
        wanted = [(turn_id, first, end) for turn_id, first, end in parts if end > first]
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for turn_id, first, end in wanted:
                pipeline.lrange(self.keys.steps(turn_id), first, end - 1)
            return list(pipeline.execute())

    def states(self, turn_ids: Sequence[str]) -> list[str | None]:
        """The state of each turn, None where there is no record, in one round trip."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                pipeline.hget(self.keys.record(turn_id), "state")
            return list(pipeline.execute())

    def states_and_owners(self, turn_ids: Sequence[str]) -> list[tuple[str | None, str | None]]:
        """The state and the owner of each turn, None where there is no record, in one round trip."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                pipeline.hmget(self.keys.record(turn_id), ["state", "owner"])
            return [(state, owner) for state, owner in pipeline.execute()]

    def memory_share(self) -> float:
        """How much of its memory limit Redis uses, 0 where it has none."""
        with translated():
            memory = self.redis.info("memory")
        return int(memory["used_memory"]) / int(memory["maxmemory"]) if int(memory.get("maxmemory", 0)) else 0.0

    def read(self, turn_id: str) -> tuple[Record, list[str]]:
        """The record and its steps in wire form, as of one moment.

        Raises:
            TurnNotFound: there is no record.
        """
        with translated(), self.redis.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(self.keys.record(turn_id))
            pipeline.lrange(self.keys.steps(turn_id), 0, -1)
            fields, steps = pipeline.execute()
        if not fields:
            raise turn_not_found(turn_id)
        return decode_record(turn_id, fields), steps

    def take(self, turn_id: str) -> Taken | None:
        """A worker begins on this turn: the attempt is counted, a refusal handed out once. None: no record."""
        answer = self._run("take", [self.keys.record(turn_id)], [])
        return Taken(answer[0], answer[1], int(answer[2]), answer[3]) if answer else None

    def forget_attempts(self, turn_id: str) -> None:
        """The job goes back to the queue in good order: what it met was not this turn's fault."""
        with translated():
            self.redis.hset(self.keys.record(turn_id), "attempts", 0)

    def window(self, *, most_jobs: int) -> list[tuple[str, int]]:
        """(encoded ledger, turns of it) at the head of the commit queue, in order of appearance."""
        if most_jobs < 1:
            return []
        answer = self._run("window", [self.keys.queue], [self.keys.turn_prefix, most_jobs])
        return list(zip(answer[::2], map(int, answer[1::2]), strict=True))

    def front(
        self, counts: Sequence[tuple[str, int]], *, most_turns: int, most_bytes: int, unfitted: Unfitted = "wait"
    ) -> list[str]:
        """The turn_ids at the front of these ledgers' pending lists, so many of each, within the bounds of a group.

        A ledger's turns end before the first one that waits for its rewriting, unless such turns get names.
        """
        head = [self.keys.turn_prefix, self.keys.ledger_prefix, most_turns, most_bytes, unfitted]
        return list(self._run("front", [], [*head, *(item for pair in counts for item in pair)]))

    def stand(self, turn_id: str, *, ledger: LedgerName) -> Place | None:
        """Where this turn stands in its ledger's pending list; None: it is not there.

        One that waits for a rewriting is marked: the commit of the turn that it waits for takes it along, and its own
        job may end.
        """
        places = [self.keys.pending(ledger), self.keys.record(turn_id)]
        before, waits_for = self._run("stand", places, [turn_id, self.keys.turn_prefix])
        return None if int(before) < 0 else Place(int(before), str(waits_for))

    def completed(self, turn_ids: Sequence[str]) -> list[tuple[dict[str, str | None], list[str]]]:
        """What the commit point needs of these turns, in one round trip: fields, and all steps in wire form."""
        with translated(), self.redis.pipeline(transaction=False) as pipeline:
            for turn_id in turn_ids:
                pipeline.hmget(self.keys.record(turn_id), COMMIT_FIELDS)
                pipeline.lrange(self.keys.steps(turn_id), 0, -1)
            answers = pipeline.execute()
        return [
            (dict(zip(COMMIT_FIELDS, fields, strict=True)), steps)
            for fields, steps in zip(answers[::2], answers[1::2], strict=True)
        ]

    def overdue(self, *, older_than_s: float, most: int) -> list[Overdue]:
        """Turns pending for longer, oldest first; at most so many that wait for a rewriting, and as many others."""
        answer = self._run("overdue", [self.keys.backlog], [self.keys.turn_prefix, round(older_than_s * 1000), most])
        found = zip(answer[::3], answer[1::3], answer[2::3], strict=True)
        return [Overdue(turn_id, ledger, bool(waits)) for turn_id, ledger, waits in found]

    def prune(self, *, older_than_s: float, most: int) -> int:
        """Take turns without a record off the two indexes; returns how many."""
        keys = self.keys
        bounds = {keys.turns: self._expiry_ms, keys.backlog: round(older_than_s * 1000)}
        return sum(int(self._run("prune", [index], [keys.turn_prefix, age, most])) for index, age in bounds.items())

    def finish(self, turns: Sequence[Finished], *, window_jobs: int) -> int:
        """Turns that were decided become `committed`; their queued jobs go. Returns how many it finished."""
        keys = self.keys
        head: list[Any] = [keys.turn_prefix, keys.ledger_prefix, keys.rq_prefix, window_jobs]
        head += [self._spare_ms, self._expiry_ms]
        for turn in turns:
            ordinal = "" if turn.ordinal is None else turn.ordinal
            head += [turn.turn_id, encode_ledger(turn.ledger), turn.outcome, ordinal, turn.first or ""]
        places = [keys.queue, keys.turns, keys.backlog]
        places += [find(queue) for queue in (keys.queue, keys.rewrites) for find in (keys.failed, keys.canceled)]
        return int(self._run("finish", places, head))

    def reject(self, turn_id: str, *, ledger: LedgerName, reason: str) -> bool:
        """Set a pending turn aside; True when this call did it."""
        keys = self.keys
        places = [keys.record(turn_id), keys.pending(ledger), keys.rejected(ledger), keys.turns, keys.backlog]
        return bool(self._run("reject", places, [turn_id, reason]))

    def reinstate(self, turn_id: str, *, ledger: LedgerName) -> bool:
        """Put a rejected turn back behind its ledger's pending turns; True when this call did it."""
        keys = self.keys
        places = [keys.record(turn_id), keys.pending(ledger), keys.rejected(ledger), keys.completions(ledger)]
        return bool(self._run("reinstate", [*places, keys.turns, keys.backlog], [turn_id]))

    def restore(self, turn_id: str, *, ledger: LedgerName, job: JobWish) -> str:
        """Give a completed turn back its place in pending, and a job if it has none. Returns its state, or ''.

        While it waits for its rewriting that is the job it gets; behind a turn that does, it gets none.
        """
        state, wanted = self._restore(self.commit_job(turn_id), turn_id, ledger, kind="commit", job=job)
        if wanted == "fit" and job == "make":
            state, _ = self._restore(self.fit_job(turn_id), turn_id, ledger, kind="fit", job=job)
        return state

    def _restore(self, made: JobKeys, turn_id: str, ledger: LedgerName, *, kind: str, job: JobWish) -> tuple[str, str]:
        keys, queue = self.keys, made.queue
        places = [keys.record(turn_id), keys.pending(ledger), keys.backlog, keys.job_prefix + made.job_id, keys.queues]
        places += [queue, keys.failed(queue), keys.canceled(queue), keys.taken(queue), keys.executions(made.job_id)]
        fields = flat(made.fields) if job == "make" else []
        state, wanted = self._run("restore", places, [turn_id, keys.turn_prefix, queue, made.job_id, kind, *fields])
        return str(state), str(wanted)

    def _run(self, name: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        with translated():
            return self._scripts[name](keys=list(keys), args=list(arguments))


def already_handled(turn_id: str, *, entry_id: str | None) -> AlreadyHandled:
    """The refusal of work that a run has completed."""
    return AlreadyHandled(f"the work is done: turn {turn_id} completed it", turn_id=turn_id, entry_id=entry_id)


def already_running(turn_id: str, *, state: str, owner: str | None) -> AlreadyRunning:
    """The refusal of work that an open run holds."""
    return AlreadyRunning(
        f"turn {turn_id} is {state}; resume it, wait for it, or abandon it first",
        turn_id=turn_id,
        state=state,
        owner=owner,
    )


def done_before(turn_id: str, *, entry_id: str | None, failure: str) -> AlreadyHandled | TurnEnded:
    """The refusal of a turn that was completed: one that failed all the same has not done its work."""
    return turn_ended(turn_id, state="failed") if failure else already_handled(turn_id, entry_id=entry_id)


def turn_not_found(turn_id: str) -> TurnNotFound:
    """The refusal of a turn that has no record."""
    return TurnNotFound(f"there is no turn {turn_id}, or no longer", turn_id=turn_id)


def turn_ended(turn_id: str, *, state: str) -> TurnEnded:
    """The refusal of a turn that changes no more."""
    return TurnEnded(f"turn {turn_id} has ended: it is {state}", turn_id=turn_id, state=state)


def _refused(turn_id: str, answer: Sequence[Any]) -> Exception:
    if answer[0] == "missing":
        return turn_not_found(turn_id)
    if answer[0] == "ended":
        return turn_ended(turn_id, state=answer[1])
    return StaleTurn(
        f"turn {turn_id} is not this handle's to write: it is {answer[1]} at revision {answer[3]} of owner {answer[2]}",
        turn_id=turn_id,
        state=answer[1],
        owner=answer[2],
    )


def _pairs(flat: Sequence[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
