"""One step of a turn: an item of model history, with what we need to know of it beside it.

The content is the vendor's own and opaque: it is kept as JSON text, byte for byte. Beside it stand
the calls the step makes, the calls it answers, and which model produced it at what cost.

Wire form (Redis): three parts joined by a line feed, ``payload``, ``arguments``, ``content``.
The payload is one line of jsonb text (role, calls, answers, backend, model, tools_digest, usage;
what is absent is left out), the arguments one line of JSON: a list with the arguments text of each
call. The content is the rest, line feeds included. Postgres stores payload and content.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from turnledger.store.errors import CorruptData, InvalidInput, without_content
from turnledger.store.json_text import (
    decode_json,
    decode_jsonb,
    encode_json,
    encode_jsonb,
    spell_surrogates,
)

Kind = Literal["read", "write"]
Outcome = Literal["success", "error", "unknown"]
OUTCOMES = ("success", "error", "unknown")
KINDS = ("read", "write")
MOST_TOKENS = 10**12  # of one call; sums of them stay far from the end of what Redis counts to


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a step makes.

    ``arguments`` is JSON text: the arguments object as the model wrote it, or a JSON string holding
    what it wrote when that was not JSON. A call of unstated kind counts as a write.
    """

    id: str
    name: str
    arguments: str = "{}"
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call, without its output. ``outcome`` is a flag that the tool's runner recorded."""

    call_id: str
    outcome: Outcome = "success"
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model call. ``input_tokens`` counts all that the model read, cached ones included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One item of model history. Make it with ``of``, ``raw`` or an adapter, which check what they get.

    ``text`` is what an assistant step says in plain text. It serves to recognise the reply while the
    turn runs; it is not stored, and does not count when steps are compared. ``source`` is the seq of the
    event that a step was read from, and stays with it when it is copied into a replacement of history.
    """

    role: str
    content: str
    calls: tuple[Call, ...] = ()
    answers: tuple[Answer, ...] = ()
    backend: str | None = None
    model: str | None = None
    tools_digest: str | None = None
    usage: Usage | None = None
    text: str | None = field(default=None, compare=False)
    source: int | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        *,
        role: str,
        content: object,
        calls: Iterable[Call] = (),
        answers: Iterable[Answer] = (),
        backend: str | None = None,
        model: str | None = None,
        tools_digest: str | None = None,
        usage: Usage | None = None,
        text: str | None = None,
        where: str = "step",
    ) -> Step:
        """A step whose content is any JSON value. Raises InvalidInput naming the path of what is not JSON."""
        _check_role(role, where)
        encoded = encode_json(content, where=f"{where}.content")
        return cls(role, encoded, tuple(calls), tuple(answers), backend, model, tools_digest, usage, text)

    @classmethod
    def raw(
        cls,
        *,
        role: str,
        content: str,
        calls: Iterable[Call] = (),
        answers: Iterable[Answer] = (),
        backend: str | None = None,
        model: str | None = None,
        tools_digest: str | None = None,
        usage: Usage | None = None,
        text: str | None = None,
        where: str = "step",
    ) -> Step:
        """A step whose content is JSON text, kept as it is: spacing, member order, spelling of numbers.

        (Surrogate code points, which no bytes can carry, are spelled as their escapes.) Raises
        InvalidInput for text that is not JSON, NaN and Infinity included.
        """
        _check_role(role, where)
        decode_json(content, where=f"{where}.content")
        kept = spell_surrogates(content)
        return cls(role, kept, tuple(calls), tuple(answers), backend, model, tools_digest, usage, text)

    @property
    def value(self) -> Any:
        """The content, decoded."""
        return decode_json(self.content, where="content")


def total_usage(steps: Iterable[Step]) -> Usage:
    """The tokens of all these steps together."""
    used = [step.usage for step in steps if step.usage is not None]
    return Usage(
        sum(usage.input_tokens for usage in used),
        sum(usage.output_tokens for usage in used),
        sum(usage.cached_tokens for usage in used),
    )


def check_step(step: object, *, where: str) -> None:
    """Refuse a step that could be saved, and then neither completed nor read back.

    Raises:
        InvalidInput: it is no Step, or what stands beside its content has not the types of one; names the place.
    """
    if not isinstance(step, Step):
        raise InvalidInput(f"{where} must be a Step, not {type(step).__name__}", where=where)
    _check_role(step.role, where)
    _check_texts(where, content=step.content)
    _check_texts(where, are_optional=True, backend=step.backend, model=step.model, tools_digest=step.tools_digest)
    if step.usage is not None:
        _check_usage(step.usage, where=f"{where}.usage")
    for index, call in enumerate(step.calls):
        _check_call(call, where=f"{where}.calls[{index}]")
    for index, answer in enumerate(step.answers):
        _check_answer(answer, where=f"{where}.answers[{index}]")


def encode_step(step: Step) -> str:
    """The wire form, valid as UTF-8. ``decode_step`` undoes it."""
    arguments = encode_json([call.arguments for call in step.calls]) if step.calls else "[]"
    return f"{encode_jsonb(_payload(step), where='step')}\n{arguments}\n{step.content}"


def decode_step(text: str) -> Step:
    """The step that ``encode_step`` was given, but for ``text``. Raises CorruptData for anything else."""
    try:
        payload_text, arguments_text, content = text.split("\n", 2)
        payload = _decode_payload(payload_text)
        return _step(payload, arguments=decode_json(arguments_text), content=content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"a saved step cannot be read: {_reason(error)}") from None


def stated_usage(text: str) -> tuple[str | None, Usage] | None:
    """The model and the tokens of a step in wire form; None where it states none that can be counted.

    Its content is not decoded.
    """
    payload_text = text.partition("\n")[0]
    if '"usage"' not in payload_text:
        return None
    try:
        payload = _decode_payload(payload_text)
        usage = Usage(**payload["usage"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    model = payload.get("model")
    return (model if isinstance(model, str) else None, usage) if _is_countable(usage) else None


def _decode_payload(text: str) -> Any:
    payload = decode_json(text)
    return decode_jsonb(payload) if "\\u001a" in text else payload


def _is_countable(usage: Usage) -> bool:
    numbers = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    return all(type(number) is int and 0 <= number <= MOST_TOKENS for number in numbers)


def decode_stored(payload: Any, content: str) -> Step:
    """The step from its two columns: the decoded jsonb payload and the JSON text of the content.

    The arguments of its calls are not stored in Postgres and come back as "". Raises CorruptData.
    """
    try:
        known = decode_jsonb(payload)
        _require_text(known["role"])
        _require_text(content)
        return _step(known, arguments=[""] * len(known.get("calls", ())), content=content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"a stored step cannot be read: {_reason(error)}") from None


def _require_text(value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput("its role or its content is no text")


def _payload(step: Step) -> dict[str, object]:
    payload: dict[str, object] = {"role": step.role}
    if step.calls:
        payload["calls"] = [_call_payload(call) for call in step.calls]
    if step.answers:
        payload["answers"] = [_answer_payload(answer) for answer in step.answers]
    if step.backend is not None:
        payload["backend"] = step.backend
    if step.model is not None:
        payload["model"] = step.model
    if step.tools_digest is not None:
        payload["tools_digest"] = step.tools_digest
    if step.usage is not None:
        payload["usage"] = _usage_payload(step.usage)
    return payload


def _call_payload(call: Call) -> dict[str, str]:
    if call.kind is None:
        return {"id": call.id, "name": call.name}
    return {"id": call.id, "name": call.name, "kind": call.kind}


def _answer_payload(answer: Answer) -> dict[str, str]:
    if answer.error is None:
        return {"call_id": answer.call_id, "outcome": answer.outcome}
    return {"call_id": answer.call_id, "outcome": answer.outcome, "error": answer.error}


def _usage_payload(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
    }


def _step(payload: Any, *, arguments: list[str], content: str) -> Step:
    usage = payload.get("usage")
    calls = zip(payload.get("calls", ()), arguments, strict=True)
    answers = payload.get("answers", ())
    return Step(
        payload["role"],
        content,
        tuple(Call(call["id"], call["name"], text, call.get("kind")) for call, text in calls),
        tuple(Answer(each["call_id"], each["outcome"], each.get("error")) for each in answers),
        payload.get("backend"),
        payload.get("model"),
        payload.get("tools_digest"),
        Usage(**usage) if usage is not None else None,
    )


def _reason(error: Exception) -> str:
    return f"member {error} is missing" if isinstance(error, KeyError) else without_content(error)


def _check_usage(usage: object, *, where: str) -> None:
    if not isinstance(usage, Usage):
        raise InvalidInput(f"{where} must be a Usage, not {type(usage).__name__}", where=where)
    for name, number in _usage_payload(usage).items():
        if type(number) is not int:
            raise InvalidInput(f"{where}.{name} must be a whole number, not {number!r}", where=f"{where}.{name}")


def _check_call(call: object, *, where: str) -> None:
    if not isinstance(call, Call):
        raise InvalidInput(f"{where} must be a Call, not {type(call).__name__}", where=where)
    _check_texts(where, id=call.id, name=call.name, arguments=call.arguments)
    _check_one_of(call.kind, (None, *KINDS), where=f"{where}.kind")


def _check_answer(answer: object, *, where: str) -> None:
    if not isinstance(answer, Answer):
        raise InvalidInput(f"{where} must be an Answer, not {type(answer).__name__}", where=where)
    _check_texts(where, call_id=answer.call_id)
    _check_texts(where, are_optional=True, error=answer.error)
    _check_one_of(answer.outcome, OUTCOMES, where=f"{where}.outcome")


def _check_texts(where: str, *, are_optional: bool = False, **texts: object) -> None:
    for name, value in texts.items():
        if not isinstance(value, str) and not (are_optional and value is None):
            raise InvalidInput(f"{where}.{name} must be text, not {type(value).__name__}", where=f"{where}.{name}")


def _check_one_of(value: object, known: tuple[object, ...], *, where: str) -> None:
    if value not in known:
        raise InvalidInput(f"{where} is {value!r}; it is one of {', '.join(map(str, known))}", where=where)


def _check_role(role: object, where: str) -> None:
    if not isinstance(role, str) or not role:
        raise InvalidInput(f"{where}.role is missing; it must be text", where=f"{where}.role")
