"""A Redis small enough to be part of a state: the commands our scripts use, and the scripts' own text over them.

A state is one immutable value (`Frozen`); a command works on a `Keyspace` that was thawed from one. Time stands
still: every state is then the same however long it took to get there. What lapses or falls due is a choice of
the model, not of a clock.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lupa.lua51 import LuaRuntime, lua_type

NOW_S = 4_000_000_000  # far enough ahead that a real server does not expire what the model keeps
NOW_MS = NOW_S * 1000

Reply = Any  # None, int, str, or a list of replies
Item = tuple[str, Any, int | None]  # kind, value, when it expires
Frozen = Mapping[str, Item]  # never changed in place


class SortedSet(dict[str, float]):
    """Scores by member."""


class Keyspace:
    """The keys of one Redis, to be changed in place by one command or script.

    A key is thawed when a command names it, so that what a script costs, and what it depends on, is what it touches.
    """

    def __init__(self, frozen: Frozen, *, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms
        self.values: dict[str, Any] = {}
        self.expiry: dict[str, int] = {}
        self.touched: set[str] = set()
        self._frozen = frozen

    @classmethod
    def whole(cls, frozen: Frozen) -> "Keyspace":
        """With every key thawed, for who wants to look around."""
        keyspace = cls(frozen)
        keyspace._thaw(*frozen)
        return keyspace

    def call(self, name: str, arguments: Sequence[str]) -> Reply:
        """Run one command; the reply as a client that decodes text would see it."""
        command = name.upper()
        keys = arguments if command in _MANY_KEYS else arguments[:1]
        self._thaw(*keys)
        reply = COMMANDS[command](self, *arguments)
        for key in keys:
            if key in self.values and not self.values[key] and not isinstance(self.values[key], str):
                del self.values[key]
            if key not in self.values:
                self.expiry.pop(key, None)
        return reply

    def changes(self) -> dict[str, Item | None]:
        """What differs from what was thawed; None: the key is gone."""
        after = {key: self._item(key) for key in self.touched}
        return {key: item for key, item in after.items() if item != self._frozen.get(key)}

    def freeze(self) -> Frozen:
        """All of it as one value."""
        changes = self.changes()
        if not changes:
            return self._frozen
        merged = {**self._frozen, **changes}
        return {key: item for key, item in merged.items() if item is not None}

    def find(self, key: str, kind: Callable[[], Any]) -> Any:
        """The collection at the key, an empty one that is not stored when there is none."""
        return self.values.get(key, kind())

    def make(self, key: str, kind: Callable[[], Any]) -> Any:
        """The collection at the key, made when there is none."""
        return self.values.setdefault(key, kind())

    def _thaw(self, *keys: str) -> None:
        for key in keys:
            if key not in self.touched:
                self.touched.add(key)
                kind, value, expires = self._frozen.get(key, ("none", None, None))
                if kind != "none":
                    self.values[key] = _KINDS[kind](value)
                if expires is not None:
                    self.expiry[key] = expires

    def _item(self, key: str) -> Item | None:
        return (*_frozen(self.values[key]), self.expiry.get(key)) if key in self.values else None


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "string": str,
    "hash": dict,
    "list": list,
    "set": set,
    "zset": SortedSet,
}
_MANY_KEYS = ("DEL", "EXISTS")


def _frozen(value: Any) -> tuple[str, Any]:
    if isinstance(value, str):
        return "string", value
    if isinstance(value, SortedSet):
        return "zset", tuple(sorted(value.items()))
    if isinstance(value, dict):
        return "hash", tuple(sorted(value.items()))
    return ("set", tuple(sorted(value))) if isinstance(value, set) else ("list", tuple(value))


def _time(keyspace: Keyspace) -> Reply:
    return [str(keyspace.now_ms // 1000), str(keyspace.now_ms % 1000 * 1000)]


def _get(keyspace: Keyspace, key: str) -> Reply:
    return keyspace.values.get(key)


def _incr(keyspace: Keyspace, key: str) -> Reply:
    number = int(keyspace.values.get(key, "0")) + 1
    keyspace.values[key] = str(number)
    return number


def _exists(keyspace: Keyspace, *keys: str) -> Reply:
    return sum(key in keyspace.values for key in keys)


def _delete(keyspace: Keyspace, *keys: str) -> Reply:
    return sum(keyspace.values.pop(key, None) is not None for key in keys)


def _persist(keyspace: Keyspace, key: str) -> Reply:
    return int(keyspace.expiry.pop(key, None) is not None)


def _pexpireat(keyspace: Keyspace, key: str, at_ms: str) -> Reply:
    if key not in keyspace.values:
        return 0
    keyspace.expiry[key] = int(at_ms)
    return 1


def _pexpire(keyspace: Keyspace, key: str, in_ms: str) -> Reply:
    return _pexpireat(keyspace, key, str(keyspace.now_ms + int(in_ms)))


def _hget(keyspace: Keyspace, key: str, field: str) -> Reply:
    return keyspace.find(key, dict).get(field)


def _hmget(keyspace: Keyspace, key: str, *fields: str) -> Reply:
    found = keyspace.find(key, dict)
    return [found.get(field) for field in fields]


def _hgetall(keyspace: Keyspace, key: str) -> Reply:
    return [item for pair in sorted(keyspace.find(key, dict).items()) for item in pair]


def _hset(keyspace: Keyspace, key: str, *pairs: str) -> Reply:
    found = keyspace.make(key, dict)
    given = dict(zip(pairs[::2], pairs[1::2], strict=True))
    fresh = sum(field not in found for field in given)
    found.update(given)
    return fresh


def _hsetnx(keyspace: Keyspace, key: str, field: str, value: str) -> Reply:
    return _hset(keyspace, key, field, value) if field not in keyspace.find(key, dict) else 0


def _hincrby(keyspace: Keyspace, key: str, field: str, amount: str) -> Reply:
    found = keyspace.make(key, dict)
    found[field] = str(int(found.get(field, "0")) + int(amount))
    return int(found[field])


def _hdel(keyspace: Keyspace, key: str, *fields: str) -> Reply:
    found = keyspace.find(key, dict)
    return sum(found.pop(field, None) is not None for field in fields)


def _rpush(keyspace: Keyspace, key: str, *values: str) -> Reply:
    keyspace.make(key, list).extend(values)
    return len(keyspace.values[key])


def _lpush(keyspace: Keyspace, key: str, *values: str) -> Reply:
    found = keyspace.make(key, list)
    found[:0] = reversed(values)
    return len(found)


def _lpop(keyspace: Keyspace, key: str) -> Reply:
    found = keyspace.find(key, list)
    return found.pop(0) if found else None


def _llen(keyspace: Keyspace, key: str) -> Reply:
    return len(keyspace.find(key, list))


def _lrange(keyspace: Keyspace, key: str, first: str, last: str) -> Reply:
    found = keyspace.find(key, list)
    start, end = _bounds(len(found), first, last)
    return found[start:end]


def _ltrim(keyspace: Keyspace, key: str, first: str, last: str) -> Reply:
    found = keyspace.find(key, list)
    start, end = _bounds(len(found), first, last)
    found[:] = found[start:end]
    return "OK"


def _bounds(length: int, first: str, last: str) -> tuple[int, int]:
    start, end = (int(place) + length if int(place) < 0 else int(place) for place in (first, last))
    return max(start, 0), max(end + 1, 0)


def _lrem(keyspace: Keyspace, key: str, count: str, value: str) -> Reply:
    found = keyspace.find(key, list)
    most = int(count) or len(found)
    removed = 0
    while removed < most and value in found:
        found.remove(value)
        removed += 1
    return removed


def _lpos(keyspace: Keyspace, key: str, value: str) -> Reply:
    found = keyspace.find(key, list)
    return found.index(value) if value in found else None


def _linsert(keyspace: Keyspace, key: str, where: str, *pair: str) -> Reply:
    found = keyspace.find(key, list)
    pivot, value = pair
    if pivot not in found:
        return -1 if found else 0
    found.insert(found.index(pivot) + (where.upper() == "AFTER"), value)
    return len(found)


def _sadd(keyspace: Keyspace, key: str, *members: str) -> Reply:
    found = keyspace.make(key, set)
    before = len(found)
    found.update(members)
    return len(found) - before


def _srem(keyspace: Keyspace, key: str, *members: str) -> Reply:
    found = keyspace.find(key, set)
    before = len(found)
    found.difference_update(members)
    return before - len(found)


def _smembers(keyspace: Keyspace, key: str) -> Reply:
    return sorted(keyspace.find(key, set))


def _zadd(keyspace: Keyspace, key: str, *pairs: str) -> Reply:
    found = keyspace.make(key, SortedSet)
    before = len(found)
    found.update({member: float(score) for score, member in zip(pairs[::2], pairs[1::2], strict=True)})
    return len(found) - before


def _zrem(keyspace: Keyspace, key: str, *members: str) -> Reply:
    found = keyspace.find(key, SortedSet)
    return sum(found.pop(member, None) is not None for member in members)


def _zcard(keyspace: Keyspace, key: str) -> Reply:
    return len(keyspace.find(key, SortedSet))


def _zrangebyscore(keyspace: Keyspace, key: str, *bounds: str) -> Reply:
    lowest, highest, *limit = bounds
    found = sorted(keyspace.find(key, SortedSet).items(), key=lambda item: (item[1], item[0]))
    members = [member for member, score in found if float(lowest) <= score <= float(highest)]
    if not limit:
        return members
    offset, count = int(limit[1]), int(limit[2])
    return members[offset:] if count < 0 else members[offset : offset + count]


COMMANDS: Mapping[str, Callable[..., Reply]] = {
    "TIME": _time,
    "GET": _get,
    "INCR": _incr,
    "EXISTS": _exists,
    "DEL": _delete,
    "PERSIST": _persist,
    "PEXPIREAT": _pexpireat,
    "PEXPIRE": _pexpire,
    "HGET": _hget,
    "HMGET": _hmget,
    "HGETALL": _hgetall,
    "HSET": _hset,
    "HSETNX": _hsetnx,
    "HINCRBY": _hincrby,
    "HDEL": _hdel,
    "RPUSH": _rpush,
    "LPUSH": _lpush,
    "LPOP": _lpop,
    "LLEN": _llen,
    "LRANGE": _lrange,
    "LTRIM": _ltrim,
    "LREM": _lrem,
    "LPOS": _lpos,
    "LINSERT": _linsert,
    "SADD": _sadd,
    "SREM": _srem,
    "SMEMBERS": _smembers,
    "ZADD": _zadd,
    "ZREM": _zrem,
    "ZCARD": _zcard,
    "ZRANGEBYSCORE": _zrangebyscore,
}


class Scripts:
    """Runs scripts as Redis does: the product's own text, in Lua 5.1, over a keyspace."""

    def __init__(self) -> None:
        self._lua = LuaRuntime(unpack_returned_tuples=True)
        self._functions: dict[str, Any] = {}
        self._keyspace: Keyspace | None = None

    def run(self, text: str, *, keyspace: Keyspace, keys: Sequence[str], arguments: Sequence[Any]) -> Reply:
        """Run the script to its end and decode what it returns."""
        self._keyspace = keyspace
        answer = self._function(text)(
            self._lua.table_from(list(keys)), self._lua.table_from([as_text(value) for value in arguments])
        )
        return _from_lua(answer)

    def _function(self, text: str) -> Any:
        if text not in self._functions:
            make = self._lua.eval(
                "function(call) local redis = {call = call}; return function(KEYS, ARGV)\n" + text + "\nend end"
            )
            self._functions[text] = make(self._call)
        return self._functions[text]

    def _call(self, name: str, *arguments: Any) -> Any:
        assert self._keyspace is not None
        return self._to_lua(self._keyspace.call(name, [as_text(value) for value in arguments]))

    def _to_lua(self, reply: Reply) -> Any:
        if isinstance(reply, list):
            return self._lua.table_from([self._to_lua(item) for item in reply])
        return False if reply is None else reply


def as_text(value: Any) -> str:
    """An argument as Redis receives it; a number without a fraction has no point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def _from_lua(value: Any) -> Reply:
    if lua_type(value) == "table":
        items: list[Reply] = []
        while (item := value[len(items) + 1]) is not None:
            items.append(_from_lua(item))
        return items
    if isinstance(value, bool):
        return 1 if value else None
    return int(value) if isinstance(value, float) else value
