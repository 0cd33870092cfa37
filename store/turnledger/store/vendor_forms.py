"""What the adapters of vendors' formats share: reading what has a shape, and refusing by its place what has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnledger.store.errors import InvalidInput
from turnledger.store.json_text import decode_json, encode_json


def mapping(value: object, *, where: str) -> Mapping[str, Any]:
    """The value itself. Raises InvalidInput for what is no dict."""
    if isinstance(value, Mapping):
        return value
    kind = type(value).__name__
    raise InvalidInput(f"{where} must be a dict, not {kind}; use the client's model_dump()", where=where)


def text_member(record: Mapping[str, Any], name: str, *, where: str) -> str:
    """The member of this name. Raises InvalidInput where it is no text, or empty."""
    value = record.get(name)
    if isinstance(value, str) and value:
        return value
    raise InvalidInput(f"{where}.{name} is missing or empty; it must be text", where=f"{where}.{name}")


def tokens(usage: Mapping[str, Any], name: str, *, where: str) -> int:
    """A count of tokens, 0 where it is absent. Raises InvalidInput for what is no number."""
    value = usage.get(name) or 0
    if isinstance(value, int):
        return value
    raise InvalidInput(f"{where}.{name} must be a whole number, not {type(value).__name__}", where=f"{where}.{name}")


def items(value: object, *, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The dicts of a list, each with its place. Raises InvalidInput for anything else; None is an empty list."""
    if value is not None and (isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence)):
        raise InvalidInput(f"{where} must be a list, not {type(value).__name__}", where=where)
    for index, item in enumerate(value or ()):
        place = f"{where}[{index}]"
        yield place, mapping(item, where=place)


def arguments_text(arguments: Any) -> str:
    """The arguments as JSON text, as the model wrote them, or as a JSON string when they are not JSON."""
    if not isinstance(arguments, str):
        return encode_json(arguments or {}, where="arguments")
    if not arguments.strip():
        return "{}"
    try:
        decode_json(arguments)
    except InvalidInput:
        return encode_json(arguments)
    return arguments


def blocks(content: Any, *, kind: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The blocks of a kind with their places; a server tool's kind has a prefix (``mcp_tool_use``)."""
    for index, block in enumerate(content if isinstance(content, (list, tuple)) else ()):
        if isinstance(block, Mapping) and str(block.get("type")).endswith(kind):
            yield index, block


def joined_text(content: Any) -> str | None:
    """The plain text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content or None
    texts = [block.get("text") for _, block in blocks(content, kind="text")]
    return "".join(text for text in texts if isinstance(text, str)) or None
