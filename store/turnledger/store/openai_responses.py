"""Items of OpenAI's Responses format, as the adapter `openai_step` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from turnledger.store.json_text import encode_json
from turnledger.store.steps import Answer, Call, Kind, Usage
from turnledger.store.vendor_forms import arguments_text, items, joined_text, mapping, text_member, tokens

_CALL, _OUTPUT = "_call", "_output"
_ASKED = ("action", "queries", "code", "operation")  # what built-in tools have in the place of arguments


class Parts(NamedTuple):
    """What a step needs to know of one item, or of all items of a response."""

    role: str
    content: Any
    calls: Sequence[Call]
    answers: Sequence[Answer]
    text: str | None
    usage: Usage | None


def is_response(value: Mapping[str, Any]) -> bool:
    """Whether this is a whole response, or an item that is no message."""
    return _is_whole(value) or ("role" not in value and isinstance(value.get("type"), str))


def response_parts(value: Mapping[str, Any], *, kinds: Mapping[str, Kind], error: str | None, where: str) -> Parts:
    """The parts of a response or of one item.

    A call whose item has a `call_id` waits for its output; any other one was run by the vendor, and is answered.

    Raises:
        InvalidInput: a call without id or name; names the path.
    """
    if not _is_whole(value):
        found = [(where, value)]
        role = "tool" if str(value["type"]).endswith(_OUTPUT) else "assistant"
        return _parts(found, role=role, content=value, usage=None, kinds=kinds, error=error)
    found = list(items(value["output"], where=f"{where}.output"))
    usage = _usage(value.get("usage"), where=f"{where}.usage")
    return _parts(found, role="assistant", content=value["output"], usage=usage, kinds=kinds, error=error)


def _parts(
    found: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    role: str,
    content: Any,
    usage: Usage | None,
    kinds: Mapping[str, Kind],
    error: str | None,
) -> Parts:
    calls = [_call(item, kinds=kinds, where=place) for place, item in found if _is_call(item)]
    answers = [_ran(item, where=place) for place, item in found if _is_call(item) and not _waits(item)]
    answers += [_output(item, error=error, where=place) for place, item in found if _is_output(item)]
    return Parts(role, content, calls, answers, _said(item for _, item in found), usage)


def _is_whole(value: Mapping[str, Any]) -> bool:
    return value.get("object") == "response" or (isinstance(value.get("output"), list) and "type" not in value)


def _is_call(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith(_CALL)


def _is_output(item: Mapping[str, Any]) -> bool:
    """With an empty `call_id` it is of what the vendor ran: that call is answered."""
    return str(item.get("type")).endswith(_OUTPUT) and item.get("call_id", "") is not None


def _waits(item: Mapping[str, Any]) -> bool:
    return item.get("call_id") is not None


def _call(item: Mapping[str, Any], *, kinds: Mapping[str, Kind], where: str) -> Call:
    name = item.get("name") or str(item["type"]).removesuffix(_CALL)
    call_id = text_member(item, "call_id" if _waits(item) else "id", where=where)
    if "input" in item:  # of a custom tool: free text
        return Call(call_id, name, encode_json(item["input"], where=f"{where}.input"), kinds.get(name))
    asked = next((item[member] for member in ("arguments", *_ASKED) if item.get(member) is not None), None)
    return Call(call_id, name, arguments_text(asked), kinds.get(name))


def _ran(item: Mapping[str, Any], *, where: str) -> Answer:
    call_id, error = text_member(item, "id", where=where), item.get("error")
    if error is None and item.get("status") != "failed":
        return Answer(call_id)
    return Answer(call_id, "error", error if isinstance(error, str) else "" if error is None else encode_json(error))


def _output(item: Mapping[str, Any], *, error: str | None, where: str) -> Answer:
    member = "id" if "call_id" not in item and "id" in item else "call_id"  # a local shell's names its call by `id`
    call_id = text_member(item, member, where=where)
    return Answer(call_id) if error is None else Answer(call_id, "error", error)


def _said(found: Iterable[Mapping[str, Any]]) -> str | None:
    texts = [joined_text(item.get("content")) for item in found if item.get("type") == "message"]
    return "".join(text for text in texts if text) or None


def _usage(usage: object, *, where: str) -> Usage | None:
    if not usage:
        return None
    counts = mapping(usage, where=where)
    details = mapping(counts.get("input_tokens_details") or {}, where=f"{where}.input_tokens_details")
    read, written = (tokens(counts, name, where=where) for name in ("input_tokens", "output_tokens"))
    return Usage(read, written, tokens(details, "cached_tokens", where=f"{where}.input_tokens_details"))
