"""Steps from the message formats of OpenAI (chat) and Anthropic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnledger.store.errors import InvalidInput
from turnledger.store.json_text import decode_json, encode_json
from turnledger.store.steps import Answer, Call, Kind, Step, Usage


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

    Raises:
        InvalidInput: no dict, no role, a call without id or name, content that is not JSON; names the path.
    """
    response = _mapping(message, where=where)
    message = response["choices"][0]["message"] if "choices" in response else response
    role = _text(message, "role", where=where)
    return Step.of(
        role=role,
        content=message,
        calls=_openai_calls(message, kinds=kinds or {}, where=where),
        answers=_openai_answers(message, error=error, where=where),
        backend=backend,
        model=model or response.get("model"),
        tools_digest=tools_digest,
        usage=usage or _openai_usage(response.get("usage")),
        text=_joined_text(message.get("content")) if role == "assistant" else None,
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
    content = _mapping(message, where=where).get("content")
    role = _text(message, "role", where=where)
    return Step.of(
        role=role,
        content=message,
        calls=_anthropic_calls(content, kinds=kinds or {}, where=where),
        answers=_anthropic_answers(content, where=where),
        backend=backend,
        model=model or message.get("model"),
        tools_digest=tools_digest,
        usage=usage or _anthropic_usage(message.get("usage")),
        text=_joined_text(content) if role == "assistant" else None,
        where=where,
    )


def _openai_calls(message: Mapping[str, Any], *, kinds: Mapping[str, Kind], where: str) -> list[Call]:
    calls = []
    for index, made in enumerate(message.get("tool_calls") or ()):
        place = f"{where}.tool_calls[{index}]"
        # A custom tool takes free text where a function takes arguments.
        custom = made.get("custom")
        function = made.get("function") or {}
        name = _text(custom or function, "name", where=place)
        arguments = encode_json(custom.get("input")) if custom else _arguments_text(function.get("arguments"))
        calls.append(Call(_text(made, "id", where=place), name, arguments, kinds.get(name)))
    return calls


def _openai_answers(message: Mapping[str, Any], *, error: str | None, where: str) -> tuple[Answer, ...]:
    if message["role"] == "tool":
        call_id = _text(message, "tool_call_id", where=where)
        return (Answer(call_id) if error is None else Answer(call_id, "error", error),)
    if error is not None:
        raise InvalidInput(f"{where}: error is given, but the message answers no call", where=where)
    return ()


def _openai_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    read = usage.get("prompt_tokens") or 0
    return Usage(read, usage.get("completion_tokens") or 0, details.get("cached_tokens") or 0)


def _anthropic_calls(content: Any, *, kinds: Mapping[str, Kind], where: str) -> list[Call]:
    calls = []
    for index, block in _blocks(content, kind="tool_use"):
        place = f"{where}.content[{index}]"
        name = _text(block, "name", where=place)
        arguments = encode_json(block.get("input") or {}, where=f"{place}.input")
        calls.append(Call(_text(block, "id", where=place), name, arguments, kinds.get(name)))
    return calls


def _anthropic_answers(content: Any, *, where: str) -> list[Answer]:
    answers = []
    for index, block in _blocks(content, kind="tool_result"):
        call_id = _text(block, "tool_use_id", where=f"{where}.content[{index}]")
        error = _anthropic_error(block)
        answers.append(Answer(call_id) if error is None else Answer(call_id, "error", error))
    return answers


def _anthropic_error(block: Mapping[str, Any]) -> str | None:
    """Tools flag an error by ``is_error``, server tools by the type of their content."""
    content = block.get("content")
    if block.get("is_error"):
        return _joined_text(content) or ""
    if isinstance(content, Mapping) and str(content.get("type")).endswith("_error"):
        return str(content.get("error_code") or "")
    return None


def _anthropic_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    if not usage:
        return None
    cached = usage.get("cache_read_input_tokens") or 0
    fresh = (usage.get("input_tokens") or 0) + (usage.get("cache_creation_input_tokens") or 0)
    return Usage(fresh + cached, usage.get("output_tokens") or 0, cached)


def _arguments_text(arguments: Any) -> str:
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


def _blocks(content: Any, *, kind: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The blocks of a kind with their places; a server tool's kind has a prefix (``mcp_tool_use``)."""
    for index, block in enumerate(content if isinstance(content, (list, tuple)) else ()):
        if isinstance(block, Mapping) and str(block.get("type")).endswith(kind):
            yield index, block


def _joined_text(content: Any) -> str | None:
    """The plain text of a message's content: a string, or the text parts of a list."""
    if isinstance(content, str):
        return content or None
    texts = [block.get("text") for _, block in _blocks(content, kind="text")]
    return "".join(text for text in texts if isinstance(text, str)) or None


def _mapping(message: object, *, where: str) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return message
    kind = type(message).__name__
    raise InvalidInput(f"{where} must be a dict, not {kind}; use the client's model_dump()", where=where)


def _text(record: Mapping[str, Any], name: str, *, where: str) -> str:
    value = record.get(name)
    if isinstance(value, str) and value:
        return value
    raise InvalidInput(f"{where}.{name} is missing or empty; it must be text", where=f"{where}.{name}")
