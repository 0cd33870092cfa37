"""The rules: what nodes, workers, stores and chance do, in any order hypothesis or the dice think of.

A call of an engine may be interrupted where it is between two systems. Lower picks mean newer turns.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.machine import acting, draining, interrupting, invariants, replacing, starting, trouble
from tests.machine.example import TROUBLE, Example
from tests.machine.faults import Died
from tests.machine.model import Handle, ModelTurn
from tests.machine.moves import Interrupted, Letters, Newest, OneOf, move
from tests.machine.world import World

PICK = Newest(4)
NODE = OneOf([0, 1, 2])
LETTERS = Letters("uac", most=3)
AT_START = Interrupted(["start.recorded", "start.opened", "resume.fenced"])
AT_SAVE = Interrupted(["save.sent"])
AT_END = Interrupted(["end.sent"])
AT_RESUME = Interrupted(["resume.claimed", "resume.fenced"])
AT_COMPLETE = Interrupted(["complete.sent", "save.sent", "direct.committed", "spool.written", "end.sent"])
AT_REPLACE = Interrupted(["replace.committed", "replace.advanced", "save.sent", "commit.committed", "commit.read"])
AT_COMMIT = Interrupted([
    "commit.taken", "commit.locked", "commit.read", "commit.written", "commit.committed", "commit.finished",
    "upkeep.ended", "upkeep.told",
])  # fmt: skip


def has_turns(machine: "Machine") -> bool:
    return bool(machine.turns)


def has_active(machine: "Machine") -> bool:
    return bool(machine.active)


class Machine(RuleBasedStateMachine):
    """One example over a world that many share."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.example = Example(world)

    @property
    def world(self) -> World:
        return self.example.world

    @property
    def turns(self) -> list[ModelTurn]:
        """The newest first."""
        return list(self.example.model.turns.values())[::-1]

    @property
    def active(self) -> list[Handle]:
        """Handles that have not completed their turn, those of the newest turns first."""
        return [handle for turn in self.turns for handle in turn.handles[::-1] if handle.attempt is None]

    # What engines do.

    @move(
        6,
        node=NODE,
        ledger=OneOf([0, 0, 1]),
        work_key=OneOf(["", "", "k1", "k2"]),
        message=OneOf(["", "m1", "m2"]),
        letters=LETTERS,
        meanwhile=AT_START,
    )
    def start(
        self,
        node: int,
        ledger: int,
        work_key: str,
        message: str,
        letters: str,
        meanwhile: interrupting.Interruption | None,
    ) -> None:
        ledgers = self.example.model.ledgers
        with self._interrupted(meanwhile):
            turn = starting.start(
                self.example,
                self.example.node(node),
                ledger=ledgers[ledger % len(ledgers)],
                work_key=work_key,
                message=message,
            )
        for handle in turn.handles[-1:] if letters else []:
            acting.save(self.example, handle, letters=letters, bootstrap=bool(ledger))

    @move(2, need=has_turns, node=NODE, pick=PICK, meanwhile=AT_START)
    def start_again(self, node: int, pick: int, meanwhile: interrupting.Interruption | None) -> None:
        with self._interrupted(meanwhile):
            starting.begin(self.example, self.example.node(node), self._turn(pick))

    @move(6, need=has_active, pick=PICK, letters=LETTERS, bootstrap=OneOf(["with", "without"]), meanwhile=AT_SAVE)
    def save(self, pick: int, letters: str, bootstrap: str, meanwhile: interrupting.Interruption | None) -> None:
        with self._interrupted(meanwhile):
            acting.save(self.example, self._handle(pick), letters=letters, bootstrap=bootstrap == "with")

    @move(
        3,
        need=has_active,
        pick=PICK,
        reason=OneOf(["waiting", "authorization"]),
        letters=OneOf(["", "a", "o", "ao"]),
        meanwhile=AT_SAVE,
    )
    def park(self, pick: int, reason: str, letters: str, meanwhile: interrupting.Interruption | None) -> None:
        with self._interrupted(meanwhile):
            acting.park(self.example, self._handle(pick), reason=reason, letters=letters)

    @move(6, need=has_turns, node=NODE, pick=PICK, after=OneOf(["a lapse", "nothing"]), meanwhile=AT_RESUME)
    def resume(self, node: int, pick: int, after: str, meanwhile: interrupting.Interruption | None) -> None:
        turn = self._turn(pick)
        if after == "a lapse":
            draining.lapse(self.example, turn)
        with self._interrupted(meanwhile):
            starting.resume(self.example, self.example.node(node), turn)

    @move(1, need=has_turns, node=NODE, pick=PICK, after=OneOf(["a lapse", "nothing"]), meanwhile=AT_RESUME)
    def give_up(self, node: int, pick: int, after: str, meanwhile: interrupting.Interruption | None) -> None:
        turn = self._turn(pick)
        if after == "a lapse":
            draining.lapse(self.example, turn)
        with self._interrupted(meanwhile):
            starting.give_up(self.example, self.example.node(node), turn)

    @move(2, need=has_turns, node=NODE, pick=PICK)
    def append_input(self, node: int, pick: int) -> None:
        acting.append_input(self.example, self.example.node(node), self._turn(pick))

    @move(
        5,
        need=has_active,
        pick=PICK,
        reach=OneOf(["replied", "undelivered", "no reply owed"]),
        letters=LETTERS,
        meanwhile=AT_COMPLETE,
    )
    def complete(
        self, pick: int, reach: acting.Reach, letters: str, meanwhile: interrupting.Interruption | None
    ) -> None:
        handle = self._handle(pick)
        with self._interrupted(meanwhile):
            acting.complete(self.example, handle, reach=reach, letters=letters)
        if handle.attempt is not None and letters == "u":
            acting.complete_again(self.example, handle)

    @move(4, need=has_active, pick=PICK, sending=OneOf(["arrives", "arrives", "raises", "dies"]), meanwhile=AT_COMPLETE)
    def deliver(self, pick: int, sending: acting.Sending, meanwhile: interrupting.Interruption | None) -> None:
        with self._interrupted(meanwhile):
            acting.deliver(self.example, self._handle(pick), sending=sending)

    @move(1, need=has_active, pick=PICK, how=OneOf(["failed", "abandoned"]), meanwhile=AT_END)
    def end(self, pick: int, how: str, meanwhile: interrupting.Interruption | None) -> None:
        with self._interrupted(meanwhile):
            if how == "failed":
                acting.fail(self.example, self._handle(pick))
            else:
                acting.abandon(self.example, self._handle(pick))

    @move(1, need=has_active, pick=PICK)
    def take_history(self, pick: int) -> None:
        replacing.take_history(self.example, self._handle(pick))

    @move(
        3,
        need=has_active,
        pick=PICK,
        kind=OneOf(["compaction", "handoff"]),
        covers=OneOf(range(5)),
        meanwhile=AT_REPLACE,
    )
    def replace(
        self, pick: int, kind: replacing.Kind, covers: int, meanwhile: interrupting.Interruption | None
    ) -> None:
        handle = self._handle(pick)
        with self._interrupted(meanwhile):
            if handle.history is None:
                replacing.take_history(self.example, handle)
            if handle.history is not None:
                replacing.replace(self.example, handle, kind=kind, covers=covers)

    @move(1, need=has_active, pick=PICK)
    def read_history(self, pick: int) -> None:
        replacing.read_history(self.example, self._handle(pick))

    @move(1, need=has_active, pick=PICK, child=PICK)
    def see_to_a_child(self, pick: int, child: int) -> None:
        handle = self._handle(pick)
        if not replacing.end_child(self.example, handle, pick=child):
            replacing.open_child(self.example, handle)

    # What the processes of the deployment do by themselves.

    @move(
        6,
        need=has_turns,
        who=OneOf(["workers", "workers", "the clock", "the reconciler"]),
        jobs=OneOf([1, 2, 3]),
        meanwhile=AT_COMMIT,
    )
    def processes_run(self, who: str, jobs: int, meanwhile: interrupting.Interruption | None) -> None:
        """A worker that dies loses what it had taken off the queue; trouble is for its supervisor."""
        whole = self.world.worker.seat.is_whole
        with self._interrupted(meanwhile):
            try:
                self._run(who, jobs)
            except Died:
                self.example.note_interruption()
            except TROUBLE:
                assert not whole or meanwhile is not None, "trouble in calm"

    @move(3, need=has_turns, node=NODE, what=OneOf(["round of leases", "recover"]))
    def a_node_looks_after_its_turns(self, node: int, what: str) -> None:
        keeper = self.example.node(node)
        action = keeper.turns.recover if what == "recover" else keeper.leases.round
        self.example.call(keeper, action, what=what).unless()

    # What goes wrong.

    @move(1, need=has_active, pick=PICK)
    def doubt_own_lease(self, pick: int) -> None:
        self._handle(pick).turn._session._owned_until = 0.0

    @move(2, node=NODE, kind=OneOf(trouble.ON_A_NODE))
    def trouble_a_node(self, node: int, kind: trouble.OnANode) -> None:
        trouble.befall(self.example.node(node).seat, kind)

    @move(5, need=has_turns, node=NODE)
    def mend_a_node(self, node: int) -> None:
        self.example.node(node).seat.mend()

    @move(1, need=has_turns, kind=OneOf(trouble.ON_THE_WORKER))
    def trouble_the_worker(self, kind: trouble.OnANode) -> None:
        trouble.befall(self.world.worker.seat, kind)

    @move(1, need=has_turns, node=NODE)
    def kill(self, node: int) -> None:
        self.example.kill(self.example.node(node))

    @move(1, need=has_turns, kind=OneOf(trouble.OF_REDIS), pick=PICK)
    def redis_loses(self, kind: trouble.OfRedis, pick: int) -> None:
        trouble.redis_loses(self.example, kind, pick=pick)

    @invariant()
    def everything_holds(self) -> None:
        invariants.check(self.example)

    def teardown(self) -> None:
        if sys.exc_info()[1] is None:
            self.finish()

    def finish(self) -> None:
        """The end of an example that held so far."""
        draining.finish(self.example)

    @contextmanager
    def _interrupted(self, meanwhile: interrupting.Interruption | None) -> Iterator[None]:
        if meanwhile is not None:
            interrupting.arm(self.example, meanwhile)
        try:
            yield
        finally:
            self.world.interruptions.disarm()

    def _handle(self, pick: int) -> Handle:
        active = self.active
        return active[pick % len(active)]

    def _turn(self, pick: int) -> ModelTurn:
        turns = self.turns
        return turns[pick % len(turns)]

    def _run(self, who: str, jobs: int) -> None:
        if who == "workers":
            draining.work(self.example, jobs=jobs)
        elif who == "the clock":
            self.world.worker.sweep()
        else:
            draining.reconcile(self.example)
