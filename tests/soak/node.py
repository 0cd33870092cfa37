"""One engine node under load, until SIGTERM: it plays turns of shared conversations in every way there is.

`python -m tests.soak.node NUMBER SEED TOLD_FILE PARENT`
"""

import os
import random
import signal
import sys
import time
import uuid
from pathlib import Path
from threading import Event
from typing import Any

from tests.soak.summary import summary_of
from tests.soak.told import Acknowledged, ToldFile
from turnledger.checkpoint import CheckpointSettings, Completion, Turn, Turns
from turnledger.checkpoint.connection import translated
from turnledger.checkpoint.records import Records
from turnledger.store import Message, Replied, Step, TurnledgerError, Undelivered, read_settings
from turnledger.store.errors import StaleHistory
from turnledger.workers.cli.stopping import end_with

AGENT = "agent"
LONGEST_TURNS = 5  # steps saved one by one
LOOKED_AT = 200  # open turns, oldest first
PAUSE_S = 0.05  # between two calls: an agent thinks for longer
RESUMED, COMPACTED, PARKED, DELIVERED, FAILED, REPEATED = 0.15, 0.05, 0.1, 0.2, 0.02, 0.05


class Node:
    """Plays one turn after the other; what it is told goes into its file before the next one begins."""

    def __init__(self, *, number: int, seed: int, told: ToldFile, conversations: int) -> None:
        self._number = number
        self._chance = random.Random(seed)
        self._told = told
        self._conversations = conversations
        self._turns = Turns.from_settings()
        self._records = Records.from_settings(read_settings(CheckpointSettings))
        self._keys: list[tuple[str, str]] = []

    def play(self, stopped: Event) -> None:
        while not stopped.wait(self._chance.uniform(0, PAUSE_S)):
            try:
                self._play_one()
            except TurnledgerError as error:
                self._told.counts(f"met {type(error).__name__}")
        self._turns.close()
        self._records.redis.close()

    def _play_one(self) -> None:
        turn = self._resume_one() if self._chance.random() < RESUMED else self._start_one()
        if turn is None:
            return
        self._told.holds(turn.turn_id)
        for _ in range(self._chance.randrange(LONGEST_TURNS)):
            turn.save(steps=[self._step(turn)], bootstrap={"node": self._number})
            time.sleep(self._chance.uniform(0, PAUSE_S))
        if self._chance.random() < COMPACTED:
            self._compact(turn)
        if self._chance.random() < PARKED:
            turn.park(reason="waiting", steps=[self._step(turn)])
            self._told.counts("parked")
        else:
            self._end(turn)

    def _start_one(self) -> Turn:
        conversation = f"jira:SOAK-{self._chance.randrange(self._conversations)}"
        key = uuid.UUID(int=self._chance.getrandbits(128)).hex
        if self._keys and self._chance.random() < REPEATED:
            conversation, key = self._chance.choice(self._keys)  # a trigger that comes twice
        self._keys = [*self._keys[-50:], (conversation, key)]
        message = Message(f"message-{key}", "Please")
        return self._turns.start(
            agent=AGENT, conversation=conversation, triggered_by="Please", work_key=key, messages=[message]
        )

    def _resume_one(self) -> Turn | None:
        """A turn that somebody died with, else one that somebody parked."""
        with translated():
            orphaned, parked = _free_turns(self._records)
        if not (orphaned or parked):
            return None
        turn = self._turns.resume(self._chance.choice(orphaned or parked))
        self._told.counts("resumed")
        return turn

    def _compact(self, turn: Turn) -> None:
        history = turn.history_to_replace()
        stands_for = [step.content for step in (*history.steps, *turn.steps)]
        try:
            if self._chance.random() < 0.5:
                turn.compact(history, steps=[summary_of(stands_for)], model="m-1")
            else:
                turn.hand_off(history, steps=[summary_of(stands_for)], model="m-2", profile="other")
            self._told.counts("replaced history")
        except StaleHistory:
            self._told.counts("was too late to replace history")

    def _end(self, turn: Turn) -> None:
        way, steps = self._chance.random(), [self._step(turn)]
        if way < FAILED:
            turn.fail("agent_run_failed")
            self._told.counts("failed")
        elif way < DELIVERED:
            self._acknowledge(turn, steps, turn.deliver(lambda: None, reply="Here you are", steps=steps))
        else:
            reply = Replied("Here you are") if way < 0.9 else Undelivered("")
            self._acknowledge(turn, steps, turn.complete(reply=reply, steps=steps))

    def _acknowledge(self, turn: Turn, steps: list[Step], answer: Completion) -> None:
        everything = tuple(step.content for step in (*turn._held.steps, *steps))
        ledger, epoch = turn.ledger, turn._record.epoch
        self._told.acknowledged(
            Acknowledged(
                turn.turn_id, ledger.agent, ledger.conversation, turn.work_key, everything, epoch, answer.duplicate
            )
        )
        if turn.spooled is not None:
            self._told.counts("spooled")

    def _step(self, turn: Turn) -> Step:
        content = {"role": "user", "content": f"{turn.turn_id} {uuid.UUID(int=self._chance.getrandbits(128)).hex}"}
        return Step.of(role="user", content=content)


def _free_turns(records: Records) -> tuple[list[str], list[str]]:
    """Turns whose lease has lapsed, and parked ones; not those that are blocked."""
    redis: Any = records.redis
    turn_ids = redis.zrange(records.keys.turns, 0, LOOKED_AT)
    now_ms = int(redis.time()[0]) * 1000
    with redis.pipeline(transaction=False) as pipeline:
        for turn_id in turn_ids:
            pipeline.hmget(records.keys.record(turn_id), "state", "lease_until", "blocked")
        found = [(turn_id, *row) for turn_id, row in zip(turn_ids, pipeline.execute(), strict=True) if not row[2]]
    lapsed = [turn_id for turn_id, state, until, _ in found if state == "running" and float(until) < now_ms]
    return lapsed, [turn_id for turn_id, state, *_ in found if state == "parked"]


def main() -> None:
    number, seed, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    end_with(int(sys.argv[4]))
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with ToldFile(path) as told:
        node = Node(number=number, seed=seed, told=told, conversations=int(os.environ["SOAK_CONVERSATIONS"]))
        node.play(stopped)


if __name__ == "__main__":
    main()
