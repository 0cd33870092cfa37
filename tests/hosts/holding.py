"""`python -m tests.hosts.holding`: an engine node with turns in hand when its host is cut off, and what it tries then.

It goes on at each SIGUSR1: first cut off, then connected again.
"""

import signal
import threading

from tests.hosts.saying import say, step_of, try_to
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Replied, StoreUnavailable

TURNS = ("saved", "kept", "taken", "delivering")  # what becomes of each is the test's to say


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # in every thread: it is waited for
    turns = Turns.from_settings()
    held = {name: _begin(turns, name) for name in TURNS}
    connected = threading.Event()
    delivery = threading.Thread(target=_deliver, args=(held["delivering"], connected))
    delivery.start()
    say("ready", **{name: turn.turn_id for name, turn in held.items()})
    signal.sigwait({signal.SIGUSR1})
    for name in ("kept", "taken"):
        _complete(held[name], f"complete {name} while cut off")
    say("cut off")
    signal.sigwait({signal.SIGUSR1})
    stale = held["saved"]
    try_to("save", lambda: _save(stale))
    _complete(stale, "complete")
    connected.set()
    delivery.join()
    try_to("recover", lambda: _recover(turns))
    turns.close()


def _save(turn: Turn) -> None:
    """Again, when the first try met a connection from before the cut, and is flagged."""
    turn.save(steps=[step_of(turn, "too late")])
    if turn.checkpoint_error is not None:
        turn.save()


def _recover(turns: Turns) -> None:
    """Again, when the first try met a connection from before the cut."""
    try:
        turns.recover()
    except StoreUnavailable:
        turns.recover()


def _begin(turns: Turns, name: str) -> Turn:
    turn = turns.start(agent="lead", conversation=f"jira:{name.upper()}-1", triggered_by="Please", work_key=name)
    turn.save(steps=[step_of(turn, "saved")], bootstrap={"round": 1})
    return turn


def _complete(turn: Turn, what: str) -> None:
    steps = [step_of(turn, "completed by its first holder")]
    try_to(what, lambda: turn.complete(reply=Replied("Done"), steps=steps), turn=turn, steps=steps)


def _deliver(turn: Turn, connected: threading.Event) -> None:
    steps = [step_of(turn, "delivered")]

    def send() -> str:
        say("sending")
        connected.wait()
        return "receipt"

    try_to("deliver", lambda: turn.deliver(send, reply="Done", steps=steps), turn=turn, steps=steps)


if __name__ == "__main__":
    main()
