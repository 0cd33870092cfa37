"""What callers hand over as a list or as a function, seen before anything is written or sent; pure."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from turnledger.store.errors import InvalidInput

_WANTED = "give a function that returns once it has sent"
_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


class StillUnderWay(InvalidInput):
    """A function has returned something that goes on by itself: nobody knows what will become of it."""


def listed(values: Iterable[_Item], *, where: str) -> tuple[_Item, ...]:
    """All the values, of which a generator gives each only once.

    Raises:
        InvalidInput: one value in the place of a list.
    """
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InvalidInput(f"{where} must be a list, not one {type(values).__name__}", where=where)
    return tuple(values)


def check_function(function: object, *, where: str) -> None:
    """Refuse what cannot be called, and what would only begin when awaited.

    Raises:
        InvalidInput: says which of the two it is.
    """
    if not callable(function):
        raise InvalidInput(f"{where} must be a function, not {type(function).__name__}", where=where)
    if inspect.iscoroutinefunction(function):
        raise _nothing_awaits(where)


def answer_of(function: Callable[[], _Answer], *, where: str) -> _Answer:
    """What the function returns.

    Raises:
        InvalidInput: a coroutine, which nobody would await; it is ended before it has begun.
        StillUnderWay: a task or a future; it is left alone.
        Exception: whatever the function raises.
    """
    answer = function()
    if inspect.iscoroutine(answer):
        answer.close()
        raise _nothing_awaits(where)
    if inspect.isawaitable(answer):
        raise StillUnderWay(f"{where} has returned before it has sent; {_WANTED}", where=where)
    return answer


def _nothing_awaits(where: str) -> InvalidInput:
    return InvalidInput(f"{where} is asynchronous, and nothing here awaits it; {_WANTED}", where=where)
