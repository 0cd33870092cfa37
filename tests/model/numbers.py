"""Numbers for values, so that a state is a short tuple of them."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from tests.model.redis_model import Frozen, Item

Value = TypeVar("Value")


class Numbers(Generic[Value]):
    """Gives equal values one number, and the value back."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Hashable, int] = {}

    def of(self, value: Value, *, key: Hashable = None) -> int:
        """The number of this value; `key` stands for it where it cannot be hashed."""
        known = value if key is None else key
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = len(self.values)
            self.values.append(value)
        return number


Changes = tuple[tuple[str, int | None], ...]  # the number of each key's new item, None where the key went


class RedisNumbers:
    """Numbers for whole Redis states, made from the numbers of their items: a change costs what it changes."""

    def __init__(self) -> None:
        self._items: Numbers[Item] = Numbers()
        self._states: Numbers[Mapping[str, int]] = Numbers()

    def __len__(self) -> int:
        return len(self._states.values)

    def of(self, frozen: Frozen) -> int:
        """The number of a state."""
        return self._number({key: self._items.of(item) for key, item in frozen.items()})

    def value(self, number: int) -> Frozen:
        """The state of this number."""
        return {key: self._items.values[item] for key, item in self._states.values[number].items()}

    def changes(self, changes: Mapping[str, Item | None]) -> Changes:
        """Changed items as numbers."""
        return tuple((key, None if item is None else self._items.of(item)) for key, item in sorted(changes.items()))

    def changed(self, number: int, changes: Changes) -> int:
        """The number of the state after these changes."""
        if not changes:
            return number
        items = dict(self._states.values[number])
        for key, item in changes:
            if item is None:
                items.pop(key, None)
            else:
                items[key] = item
        return self._number(items)

    def part(self, number: int, keys: Iterable[str]) -> tuple[int | None, ...]:
        """What stands at these keys, in numbers."""
        items = self._states.values[number]
        return tuple([items.get(key) for key in keys])

    def _number(self, items: Mapping[str, int]) -> int:
        return self._states.of(items, key=frozenset(items.items()))
