"""What the demo does and says while the conversations are played."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console

from turnledger.checkpoint.records import Records
from turnledger.workers.demo.killing import Killed, is_pending, kill_a_busy_worker
from turnledger.workers.replay.reading import read_commit_times
from turnledger.workers.replay.stage import Reached, Stage

KILL_AFTER = 0.4  # of the turns
PATIENCE_S = 15.0
SHORT_ID = 8
POLL_S = 0.1


@dataclass(slots=True)
class Watcher:
    """Moves the bars, kills one worker in the middle, and tells what becomes of the turn it had in hand."""

    playing: Stage
    records: Records
    screen: Console
    show: Callable[[Reached], None]
    killed: Killed | None = None
    recovered: bool = False
    _before: set[int] = field(default_factory=set)

    def __call__(self, reached: Reached) -> None:
        """Called ten times a second."""
        self.show(reached)
        if self.killed is None:
            if reached.completed >= KILL_AFTER * self.playing.plan.turns:
                self._kill()
        else:
            self._follow(self.killed)

    def finish(self) -> None:
        """Wait until the turn that was in hand is known to be committed, in Redis too."""
        deadline = time.monotonic() + PATIENCE_S
        while self.killed is not None and not self.recovered and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self._follow(self.killed)

    def _kill(self) -> None:
        self._before = set(self.playing.supervisor.process_ids)
        self.killed = kill_a_busy_worker(self.playing.supervisor, fleet=self.playing.fleet, records=self.records)
        if self.killed is not None:
            turn = self.killed.turn_id[:SHORT_ID]
            self._say(f"Worker {self.killed.process_id} is killed with SIGKILL. It had turn {turn} in hand.")

    def _follow(self, killed: Killed) -> None:
        if not self.recovered and not is_pending(self.records, killed.turn_id):
            self.recovered = True
            waited = [times.waited_ms for times in read_commit_times(self.records, [killed.turn_id])]
            after = f", {waited[0] / 1000:.2f} s after it was completed" if waited else ""
            self._say(f"Turn {killed.turn_id[:SHORT_ID]} is committed all the same{after}.")
        newcomers = self.playing.fleet.at_work(set(self.playing.supervisor.process_ids) - self._before)
        if newcomers:
            self._say(f"Worker {min(newcomers)} has taken its place.")
            self._before |= newcomers

    def _say(self, sentence: str) -> None:
        self.screen.print(f"  {sentence}", markup=False, soft_wrap=True)
