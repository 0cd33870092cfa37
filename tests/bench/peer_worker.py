"""The peer of the group commit: plain RQ, one job a turn, one transaction a job, by the same store function.

Run as a process it is a `SimpleWorker` of RQ's own on its own queue, with RQ's own settings.
"""

from functools import cache

import redis
from rq import Queue, SimpleWorker
from rq.job import Job

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.loading import load_turns
from turnledger.checkpoint.records import Finished, Records
from turnledger.store import Database, StoreSettings, read_settings
from turnledger.store.commit import commit_turns
from turnledger.store.ledger import lock_ledger

QUEUE = "plain"


def commit_one(turn_id: str) -> None:
    """Read the turn, commit it, and let its record and its ledger's pending list know."""
    records, database = _records(), _database()
    turns = load_turns(records, [turn_id])
    ledger = turns[0].ledger
    with database.transaction() as connection:
        head = lock_ledger(connection, ledger)
        assert head is not None
        most = database.config.current().max_entries
        outcome = commit_turns(connection, heads={ledger: head}, turns=turns, most_entries=most)[0]
    records.finish([Finished(turn_id, ledger, "completed", outcome.ordinal, outcome.first)], window_jobs=1)


def enqueue(redis_url: str, *, turn_ids: list[str]) -> None:
    """One job a turn."""
    with redis.Redis.from_url(redis_url) as client:
        jobs = [Queue.prepare_data(commit_one, (turn_id,), result_ttl=0) for turn_id in turn_ids]
        Queue(QUEUE, connection=client).enqueue_many(jobs)


@cache
def _records() -> Records:
    return Records.from_settings(read_settings(CheckpointSettings))


@cache
def _database() -> Database:
    return Database(read_settings(StoreSettings))


def main() -> None:
    client = redis.Redis.from_url(read_settings(CheckpointSettings).redis_url)
    worker = SimpleWorker([QUEUE], connection=client, job_class=Job)
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    main()
