"""What processes on other hosts tell the test: a JSON line each, through a pipe that no network cuts."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from turnledger.checkpoint import Turn
from turnledger.store import Step, TurnledgerError


def say(what: str, **more: object) -> None:
    """One line, whole: several threads of a host may say something at once."""
    sys.stdout.write(json.dumps({"said": what, **more}) + "\n")
    sys.stdout.flush()


def step_of(turn: Turn, text: str) -> Step:
    return Step.of(role="user", content={"role": "user", "content": f"{turn.turn_id} {text}"})


def try_to(what: str, call: Callable[[], Any], *, turn: Turn | None = None, steps: list[Step] | None = None) -> None:
    """Say how it went and how long it took; with the turn's steps where the turn was completed by it."""
    began = time.monotonic()
    error = None
    try:
        call()
    except TurnledgerError as raised:
        error = type(raised).__name__
    names: dict[str, object] = {}
    if turn is not None:
        contents = [step.content for step in (*turn.steps, *(steps or []))]
        names = {"turn_id": turn.turn_id, "conversation": turn.ledger.conversation, "steps": contents}
        names["spooled"] = turn.spooled is not None
    say(what, error=error, seconds=round(time.monotonic() - began, 2), **names)
