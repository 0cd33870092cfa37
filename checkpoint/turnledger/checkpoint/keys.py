"""Every key in Redis, made in one place. The heads of the scripts say what each holds."""

from dataclasses import dataclass
from urllib.parse import quote, unquote

from turnledger.store import InvalidInput, LedgerName


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under one prefix, and RQ's keys that our scripts write."""

    prefix: str
    rq_prefix: str
    commit_queue: str
    rewrite_queue: str = "rewrites"

    @property
    def turn_prefix(self) -> str:
        """What precedes a turn_id in the key of its record."""
        return f"{self.prefix}:turn:"

    @property
    def ledger_prefix(self) -> str:
        """What precedes an encoded ledger name in the keys of that ledger."""
        return f"{self.prefix}:ledger:"

    def record(self, turn_id: str) -> str:
        """The hash of one turn."""
        return f"{self.prefix}:turn:{turn_id}"

    def steps(self, turn_id: str) -> str:
        """The list of one turn's saved steps."""
        return f"{self.prefix}:turn:{turn_id}:steps"

    def open(self, ledger: LedgerName) -> str:
        """The set of a ledger's unfinished turns."""
        return f"{self.ledger_prefix}{encode_ledger(ledger)}:open"

    def pending(self, ledger: LedgerName) -> str:
        """The list of a ledger's completed, uncommitted turns, in completion order."""
        return f"{self.ledger_prefix}{encode_ledger(ledger)}:pending"

    def rejected(self, ledger: LedgerName) -> str:
        """The list of a ledger's turns that were refused for good."""
        return f"{self.ledger_prefix}{encode_ledger(ledger)}:rejected"

    def completions(self, ledger: LedgerName) -> str:
        """The counter of a ledger's completions."""
        return f"{self.ledger_prefix}{encode_ledger(ledger)}:completions"

    @property
    def turns(self) -> str:
        """The index of all turns that have not ended, by last update."""
        return f"{self.prefix}:turns"

    @property
    def backlog(self) -> str:
        """The index of all pending turns by time of completion."""
        return f"{self.prefix}:backlog"

    def quarantine(self, turn_id: str) -> str:
        """Where the record of one turn lies that nobody could read, as it was found."""
        return f"{self.prefix}:quarantine:{turn_id}"

    def quarantine_steps(self, turn_id: str) -> str:
        """The saved steps of a turn in quarantine."""
        return f"{self.prefix}:quarantine:{turn_id}:steps"

    @property
    def quarantined(self) -> str:
        """The index of the turns in quarantine, by the time at which they were found."""
        return f"{self.prefix}:quarantined"

    @property
    def queue(self) -> str:
        """RQ's list of queued commit jobs."""
        return f"{self.rq_prefix}:queue:{self.commit_queue}"

    @property
    def rewrites(self) -> str:
        """RQ's list of queued jobs that rewrite."""
        return f"{self.rq_prefix}:queue:{self.rewrite_queue}"

    @property
    def queues(self) -> str:
        """RQ's set of known queues."""
        return f"{self.rq_prefix}:queues"

    @property
    def job_prefix(self) -> str:
        """What precedes a job id in the key of its hash."""
        return f"{self.rq_prefix}:job:"

    def job(self, turn_id: str) -> str:
        """RQ's hash of a turn's commit job."""
        return f"{self.job_prefix}{job_id(turn_id)}"

    def fit_job(self, turn_id: str) -> str:
        """RQ's hash of the job that rewrites a turn's over-long pieces."""
        return f"{self.job_prefix}{fit_job_id(turn_id)}"

    @property
    def registries(self) -> tuple[str, ...]:
        """All of RQ's registries in which a turn's jobs may be left behind."""
        names = ("failed", "finished", "deferred", "scheduled", "canceled")
        queues = (self.commit_queue, self.rewrite_queue)
        return tuple(f"{self.rq_prefix}:{name}:{queue}" for queue in queues for name in names)

    @property
    def failed_registry(self) -> str:
        """RQ's registry of failed commit jobs."""
        return self.failed(self.queue)

    def failed(self, queue: str) -> str:
        """RQ's registry of the failed jobs of a queue, by the queue's key."""
        return queue.replace(":queue:", ":failed:", 1)

    def canceled(self, queue: str) -> str:
        """RQ's registry of the cancelled jobs of a queue, by the queue's key."""
        return queue.replace(":queue:", ":canceled:", 1)

    def taken(self, queue: str) -> str:
        """RQ's list of the jobs that a worker has taken off a queue and not yet begun, by the queue's key."""
        return f"{queue}:intermediate"

    def executions(self, job: str) -> str:
        """RQ's registry of the executions of a job, by the job's id; expires with the last one."""
        return f"{self.rq_prefix}:executions:{job}"

    def results(self, job: str) -> str:
        """RQ's stream of what came of a job, by the job's id."""
        return f"{self.rq_prefix}:results:{job}"


def job_id(turn_id: str) -> str:
    """The one job id of a turn: a second push of the same turn is the same job."""
    return f"turn-{turn_id}"


def fit_job_id(turn_id: str) -> str:
    """The one id of the job that rewrites a turn's over-long pieces; its commit has an id of its own."""
    return f"fit-{turn_id}"


def readable_ledger(encoded: str) -> LedgerName | None:
    """The ledger, or None for a name that a broken record holds in its place."""
    try:
        return decode_ledger(encoded)
    except InvalidInput:
        return None


def encode_ledger(ledger: LedgerName) -> str:
    """A ledger as one part of a key: no two ledgers share it, whatever their names contain."""
    return f"{quote(ledger.agent, safe='')}:{quote(ledger.conversation, safe='')}"


def decode_ledger(encoded: str) -> LedgerName:
    """The ledger that `encode_ledger` wrote."""
    agent, _, conversation = encoded.partition(":")
    return LedgerName(agent=unquote(agent), conversation=unquote(conversation))
