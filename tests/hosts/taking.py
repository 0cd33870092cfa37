"""`python -m tests.hosts.taking SAVED TAKEN DELIVERING`: an engine node that takes over turns whose holder fell silent.

It completes one at once and one at SIGUSR1; the last must not be had. In the meantime it plays turns of its own.
"""

import signal
import sys
import time

from tests.hosts.saying import say, step_of, try_to
from turnledger.checkpoint import AlreadyRunning, Turn, Turns
from turnledger.store import Replied

OWN_TURNS = 5
POLL_S = 0.2


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # in every thread: it is waited for
    turns = Turns.from_settings()
    saved, taken, delivering = sys.argv[1:]
    for number in range(OWN_TURNS):
        own = turns.start(agent="lead", conversation=f"jira:OWN-{number}", triggered_by="Please")
        _complete(own, "own turn")
    in_hand = _resume(turns, saved)
    _complete(_resume(turns, taken), "took over")
    try_to("resume of a delivery", lambda: _resume(turns, delivering))
    say("done")
    signal.sigwait({signal.SIGUSR1})
    _complete(in_hand, "took over")
    turns.close()


def _resume(turns: Turns, turn_id: str) -> Turn:
    while True:
        try:
            return turns.resume(turn_id)
        except AlreadyRunning:
            time.sleep(POLL_S)  # until its lease has lapsed


def _complete(turn: Turn, what: str) -> None:
    steps = [step_of(turn, "completed by its second holder")]
    try_to(what, lambda: turn.complete(reply=Replied("Done"), steps=steps), turn=turn, steps=steps)


if __name__ == "__main__":
    main()
