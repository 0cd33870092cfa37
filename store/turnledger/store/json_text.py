r"""JSON text that keeps every string as it was given, and strings that Postgres can hold.

Two forms are written. *JSON text* goes into Redis and into ``json`` columns: a lone surrogate is
spelled as its escape (``\ud800``) and NUL as ``\u0000``, so the text itself is always valid UTF-8.
*jsonb text* goes into ``jsonb`` columns, which can hold neither: there each NUL, each lone surrogate
and each U+001A becomes U+001A followed by four hex digits.

One thing cannot be told apart: a high and a low surrogate given side by side as two code points are
spelled exactly like the character they form, and come back as that character. (``escape`` keeps
them apart.) As in Python's ``json``, tuples come back as lists, and member names that are numbers,
booleans or None as strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Annotated, Any, Literal, NoReturn

from pydantic import PlainValidator

from turnledger.store.errors import InvalidInput

ESCAPE_CHARACTER = "\x1a"
_CONTAINERS = (dict, list, tuple)

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_JSON_UNIT = re.compile("\\\\(?:u0000|u001a|.)|[\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def encode_json(value: object, *, where: str = "value") -> str:
    """Compact JSON text of one line, valid as UTF-8 whatever the strings hold.

    Raises InvalidInput, naming the path (``steps[2].content.amount``), for NaN, infinities, bytes
    and every other type that JSON has no form for.
    """
    return spell_surrogates(_encode_strictly(value, where))


def encode_jsonb(value: object, *, where: str = "value") -> str:
    """Like encode_json, with every string and member name escaped so that jsonb can hold it."""
    text = _encode_strictly(value, where)
    if "\\u0000" in text or "\\u001a" in text or has_surrogates(text):
        return _JSON_UNIT.sub(_escape_unit, text)
    return text


def decode_json(text: str, *, where: str = "value", numbers: Literal["any", "finite"] = "any") -> Any:
    """The value that a JSON text stands for. Raises InvalidInput for anything else, NaN included.

    A number beyond what a float holds is an infinity, or with ``numbers="finite"`` refused too.
    """
    try:
        return _decode(text) if numbers == "any" else _decode_finite(text)
    except RecursionError:
        raise InvalidInput(f"{where} is nested too deeply to be read", where=where) from None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where} is not JSON: {error}", where=where) from None


def nests_deeper(value: object, *, levels: int) -> bool:
    """Whether lists and objects stand in each other more than so many levels deep; also of one that holds itself."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(levels):
        if not level:
            return False
        members = (each for item in level for each in (item.values() if isinstance(item, dict) else item))
        # Each container once a level: one that holds itself twice would double with every level.
        level = list({id(each): each for each in members if isinstance(each, _CONTAINERS)}.values())
    return bool(level)


def decode_jsonb(value: Any) -> Any:
    """The value that encode_jsonb was given, from the value that jsonb gives back."""
    if isinstance(value, str):
        return unescape(value)
    if isinstance(value, dict):
        return {unescape(name): decode_jsonb(member) for name, member in value.items()}
    if isinstance(value, list):
        return [decode_jsonb(item) for item in value]
    return value


def escape(text: str) -> str:
    """The text as Postgres can hold it: no NUL, no lone surrogate. ``unescape`` undoes it exactly."""
    return _UNSTORABLE.sub(lambda found: f"{ESCAPE_CHARACTER}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """The text that ``escape`` was given."""
    if ESCAPE_CHARACTER not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def has_surrogates(text: str) -> bool:
    """Whether the text holds a surrogate code point, which UTF-8 cannot carry."""
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def spell_surrogates(json_text: str) -> str:
    r"""The same JSON with surrogate code points written as ``\udXXX``, hence valid as UTF-8."""
    if has_surrogates(json_text):
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
    return json_text


def is_text(value: object) -> str:
    """The value itself when it is a str, whatever its characters. Raises ValueError otherwise."""
    if isinstance(value, str):
        return value
    raise ValueError(f"must be text, not {type(value).__name__}")


Text = Annotated[str, PlainValidator(is_text)]
"""For pydantic models: any Python str, as it is. (pydantic's own ``str`` refuses lone surrogates.)"""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


def _finite(number: str) -> float:
    value = float(number)
    if isfinite(value):
        return value
    raise ValueError("a number is out of range")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
_decode_finite = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


def _escape_unit(found: re.Match[str]) -> str:
    unit = found[0]
    if unit in ("\\u0000", "\\u001a"):
        return f"\\u001a{unit[2:]}"
    return unit if unit[0] == "\\" else f"\\u001a{ord(unit):04x}"


def _encode_strictly(value: object, where: str) -> str:
    try:
        return _encode(value)
    except RecursionError:
        raise InvalidInput(f"{where} is nested too deeply to be stored", where=where) from None
    except (TypeError, ValueError) as error:
        path, problem = next(_refusals(value, where), (where, str(error)))
        raise InvalidInput(f"{path} {problem}", where=path) from None


def _refusals(value: object, where: str) -> Iterator[tuple[str, str]]:
    """Path and problem of what JSON has no form for, in the order in which the encoder meets them."""
    open_ids: set[int] = set()
    stack: list[tuple[object, str]] = [(value, where)]
    while stack:
        item, path = stack.pop()
        if isinstance(item, _Leave):
            open_ids.discard(item.container)
        elif isinstance(item, (dict, list, tuple)):
            if id(item) in open_ids:
                yield path, "holds itself"
                return
            open_ids.add(id(item))
            stack.append((_Leave(id(item)), path))
            stack.extend(reversed(list(_members(item, path))))
        elif problem := _problem(item):
            yield path, problem


class _Leave:
    """Marks on the stack that all members of a container were looked at."""

    def __init__(self, container: int) -> None:
        self.container = container


class _Name:
    """A member name that JSON cannot have."""


def _members(container: Any, path: str) -> Iterator[tuple[object, str]]:
    if not isinstance(container, dict):
        yield from ((item, f"{path}[{index}]") for index, item in enumerate(container))
        return
    for name, member in container.items():
        plain = isinstance(name, str) and _PLAIN_NAME.fullmatch(name)
        member_path = f"{path}.{name}" if plain else f"{path}[{name!r}]"
        yield member if _can_name(name) else _Name(), member_path


def _can_name(name: object) -> bool:
    if isinstance(name, float):
        return isfinite(name)
    return name is None or isinstance(name, (str, int))


def _problem(item: object) -> str | None:
    if item is None or isinstance(item, (str, bool)):
        return None
    if isinstance(item, _Name):
        return "has a member name that is not text"
    if isinstance(item, float):
        return None if isfinite(item) else f"is {item}, which JSON has no form for; send text or null instead"
    if isinstance(item, int):
        return _problem_of_int(item)
    kind = type(item).__name__
    return f"is of type {kind}, which JSON has no form for; convert it to text, a number, a list or a dict"


def _problem_of_int(item: int) -> str | None:
    try:
        int.__repr__(item)
    except ValueError:
        return "is a number with too many digits; send it as text"
    return None
