"""Plays the machine for a number of examples."""

from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.machine import Machine
from tests.machine.world import World


def play(world: World, *, seed: int, examples: int, steps: int) -> None:
    """Play so many examples from a seed; the first failure is minimised and raised, with the steps that lead there.

    Raises:
        AssertionError: something does not hold.
    """

    @hypothesis.seed(seed)
    def machine() -> Any:  # hypothesis takes any function that makes a machine, and says type
        return Machine(world)

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]  # as above
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
