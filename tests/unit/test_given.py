"""What callers hand over as a list or as a function."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from turnledger.store.errors import InvalidInput
from turnledger.store.given import StillUnderWay, answer_of, check_function, listed


class Iterated:
    """One thing that is no list."""


@pytest.mark.parametrize("one", ["text", b"text", {"role": "user"}, Iterated(), None, 5])
def test_one_value_is_no_list(one: Any) -> None:
    """The refusal names the place and what was there (CK-4)."""
    with pytest.raises(InvalidInput, match=f"steps must be a list, not one {type(one).__name__}"):
        listed(one, where="steps")


def test_a_generator_is_run_through_once() -> None:
    """What it gave stays (CK-4)."""
    assert listed((number for number in range(3)), where="steps") == (0, 1, 2)


async def send() -> str:
    """Would send if somebody awaited it."""
    raise AssertionError("nobody awaits it")


@pytest.mark.parametrize("function", [send, partial(send)])
def test_an_async_function_is_refused_before_it_is_called(function: Callable[[], object]) -> None:
    """It would send nothing (DL-1)."""
    with pytest.raises(InvalidInput, match="send is asynchronous"):
        check_function(function, where="send")


def test_what_cannot_be_called_is_refused() -> None:
    """Named with its type (DL-1)."""
    with pytest.raises(InvalidInput, match="send must be a function, not str"):
        check_function("text", where="send")


def test_a_coroutine_that_is_returned_is_closed_and_refused() -> None:
    """Nothing of it has run, and Python warns of nothing (DL-1)."""
    function: Callable[[], object] = send
    with pytest.raises(InvalidInput, match="send is asynchronous"):
        answer_of(function, where="send")


def test_a_task_that_is_returned_is_left_alone_and_refused() -> None:
    """What it sends may be on its way: it is not told to have failed (DL-5)."""

    async def engine() -> str:
        tasks: list[asyncio.Task[str]] = []

        def begin() -> asyncio.Task[str]:
            tasks.append(asyncio.create_task(sent()))
            return tasks[0]

        with pytest.raises(StillUnderWay, match="returned before it has sent"):
            answer_of(begin, where="send")
        return await tasks[0]

    assert asyncio.run(engine()) == "r-1"


async def sent() -> str:
    """Sends once it is awaited or scheduled."""
    return "r-1"
