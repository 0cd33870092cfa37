"""What callers hand over as a list or as a function, seen before anything is written or sent; pure."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from turnledger.store.errors import InvalidInput

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


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
        InvalidInput: an awaitable, which nobody would await; it is ended before it has begun.
        Exception: whatever the function raises.
    """
    answer = function()
    if not inspect.isawaitable(answer):
        return answer
    end = getattr(answer, "close", None) or getattr(answer, "cancel", None)  # of a coroutine; of a task
    if end is not None:
        end()
    raise _nothing_awaits(where)


def _nothing_awaits(where: str) -> InvalidInput:
    return InvalidInput(
        f"{where} is asynchronous, and nothing here awaits it; give a function that returns once it has sent",
        where=where,
    )
