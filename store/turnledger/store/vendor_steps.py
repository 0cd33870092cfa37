"""Steps from the message formats of OpenAI (chat and Responses) and Anthropic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnledger.store.errors import InvalidInput
from turnledger.store.json_text import encode_json
from turnledger.store.openai_responses import Parts, is_response, response_parts
from turnledger.store.steps import Answer, Call, Kind, Step, Usage
from turnledger.store.vendor_forms import arguments_text, blocks, items, joined_text, mapping, text_member, tokens


def openai_step(
    message: Mapping[str, Any],
    *,
    backend: str | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    usage: Usage | None = None,
    kinds: Mapping[str, Kind] | None = None,
    error: str | None = None,
    where: str = "step",
) -> Step:
    """A step from a message of OpenAI's chat format, or from a whole chat completion (as a dict).

    The content is the whole message. Model and usage come from the completion where they are not
    given. ``kinds`` says by tool name which tools read. A message of role ``tool`` answers its call
    with success, or with ``error`` when that is given: the text of its output is never judged.

    Of the Responses format an item is a step too, and so is a whole response, whose content is the list of its items.

    Raises:
        InvalidInput: no dict, no role, a call without id or name, content that is not JSON; names the path.
    """
    response = mapping(message, where=where)
    if is_response(response):
        parts = response_parts(response, kinds=kinds or {}, error=error, where=where)
    else:
        parts = _chat_parts(response, kinds=kinds or {}, error=error, where=where)
    if error is not None and not parts.answers:
        raise InvalidInput(f"{where}: error is given, but the message answers no call", where=where)
    return Step.of(
        role=parts.role,
        content=parts.content,
        calls=parts.calls,
        answers=parts.answers,
        backend=backend,
        model=model or response.get("model"),
        tools_digest=tools_digest,
        usage=usage or parts.usage,
        text=parts.text if parts.role == "assistant" else None,
        where=where,
    )


def anthropic_step(
    message: Mapping[str, Any],
    *,
    backend: str | None = None,
    model: str | None = None,
    tools_digest: str | None = None,
    usage: Usage | None = None,
    kinds: Mapping[str, Kind] | None = None,
    where: str = "step",
) -> Step:
    """A step from a message of Anthropic's format; a response (as a dict) is a message with model and usage.

    The content is the whole message. Calls come from ``tool_use`` blocks, answers from
    ``tool_result`` blocks (with ``is_error`` as the recorded flag), those of server tools included.

    Raises:
        InvalidInput: as `openai_step`.
    """
    content = mapping(message, where=where).get("content")
    role = text_member(message, "role", where=where)
    return Step.of(
        role=role,
        content=message,
        calls=_anthropic_calls(content, kinds=kinds or {}, where=where),
        answers=_anthropic_answers(content, where=where),
        backend=backend,
        model=model or message.get("model"),
        tools_digest=tools_digest,
        usage=usage or _anthropic_usage(message.get("usage"), where=f"{where}.usage"),
        text=joined_text(content) if role == "assistant" else None,
        where=where,
    )


def _chat_parts(response: Mapping[str, Any], *, kinds: Mapping[str, Kind], error: str | None, where: str) -> Parts:
    message = _chosen(response, where=where) if "choices" in response else response
    return Parts(
        role=text_member(message, "role", where=where),
        content=message,
        calls=_openai_calls(message, kinds=kinds, where=where),
        answers=_openai_answers(message, error=error, where=where),
        text=joined_text(message.get("content")),
        usage=_openai_usage(response.get("usage"), where=f"{where}.usage"),
    )


def _chosen(completion: Mapping[str, Any], *, where: str) -> Mapping[str, Any]:
    for place, choice in items(completion["choices"], where=f"{where}.choices"):
        return mapping(choice.get("message"), where=f"{place}.message")
    raise InvalidInput(f"{where}.choices is empty; the completion holds no message", where=f"{where}.choices")


def _openai_calls(message: Mapping[str, Any], *, kinds: Mapping[str, Kind], where: str) -> list[Call]:
    calls = []
    for place, made in items(message.get("tool_calls"), where=f"{where}.tool_calls"):
        # A custom tool takes free text where a function takes arguments.
        custom = made.get("custom")
        function = mapping(custom or made.get("function") or {}, where=f"{place}.function")
        name = text_member(function, "name", where=place)
        arguments = encode_json(function.get("input")) if custom else arguments_text(function.get("arguments"))
        calls.append(Call(text_member(made, "id", where=place), name, arguments, kinds.get(name)))
    return calls


def _openai_answers(message: Mapping[str, Any], *, error: str | None, where: str) -> tuple[Answer, ...]:
    if message["role"] != "tool":
        return ()
    call_id = text_member(message, "tool_call_id", where=where)
    return (Answer(call_id) if error is None else Answer(call_id, "error", error),)


def _openai_usage(usage: object, *, where: str) -> Usage | None:
    if not usage:
        return None
    counts = mapping(usage, where=where)
    details = mapping(counts.get("prompt_tokens_details") or {}, where=f"{where}.prompt_tokens_details")
    read, written = (tokens(counts, name, where=where) for name in ("prompt_tokens", "completion_tokens"))
    return Usage(read, written, tokens(details, "cached_tokens", where=f"{where}.prompt_tokens_details"))


def _anthropic_calls(content: Any, *, kinds: Mapping[str, Kind], where: str) -> list[Call]:
    calls = []
    for index, block in blocks(content, kind="tool_use"):
        place = f"{where}.content[{index}]"
        name = text_member(block, "name", where=place)
        arguments = encode_json(block.get("input") or {}, where=f"{place}.input")
        calls.append(Call(text_member(block, "id", where=place), name, arguments, kinds.get(name)))
    return calls


def _anthropic_answers(content: Any, *, where: str) -> list[Answer]:
    answers = []
    for index, block in blocks(content, kind="tool_result"):
        call_id = text_member(block, "tool_use_id", where=f"{where}.content[{index}]")
        error = _anthropic_error(block)
        answers.append(Answer(call_id) if error is None else Answer(call_id, "error", error))
    return answers


def _anthropic_error(block: Mapping[str, Any]) -> str | None:
    """Tools flag an error by ``is_error``, server tools by the type of their content."""
    content = block.get("content")
    if block.get("is_error"):
        return joined_text(content) or ""
    if isinstance(content, Mapping) and str(content.get("type")).endswith("_error"):
        return str(content.get("error_code") or "")
    return None


def _anthropic_usage(usage: object, *, where: str) -> Usage | None:
    if not usage:
        return None
    counts = mapping(usage, where=where)
    cached = tokens(counts, "cache_read_input_tokens", where=where)
    fresh = tokens(counts, "input_tokens", where=where) + tokens(counts, "cache_creation_input_tokens", where=where)
    return Usage(fresh + cached, tokens(counts, "output_tokens", where=where), cached)
