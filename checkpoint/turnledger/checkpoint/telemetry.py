"""OpenTelemetry, where a process uses it: spans around what turns wait for, and the sizes of prompts.

A process that has not imported a part of OpenTelemetry has configured none of it: then nothing here imports it either,
and nothing is measured. Names and numbers are told, never content; of an error its type alone.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Literal

Attribute = str | int
Note = Callable[..., None]
Part = Literal["block", "user"]

SCOPE = "turnledger"
# Bytes; 24,000 is the budget of a block, the rest tells a large prompt from one that no model takes.
PROMPT_SIZES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 24_000, 32_000, 64_000, 128_000, 512_000, 2_000_000, 8_000_000)


def span(name: str, **attributes: Attribute) -> AbstractContextManager[Note]:
    """A span `turnledger.{name}` around a block; what it gives adds attributes, each as `turnledger.{attribute}`."""
    return _span(name, attributes) if _is_used("trace") else nullcontext(_ignore)


def measure_prompt(size_bytes: int, *, part: Part, occasion: str, agent: str) -> None:
    """One value of the histogram `prompt.size`."""
    if _is_used("metrics"):
        attributes = _named({"part": part, "occasion": occasion, "agent": agent})
        _prompt_size().record(size_bytes, attributes)


def _is_used(part: Literal["trace", "metrics"]) -> bool:
    return f"opentelemetry.{part}" in sys.modules


@contextmanager
def _span(name: str, attributes: dict[str, Attribute]) -> Iterator[Note]:
    from opentelemetry.trace import Status, StatusCode

    with _tracer().start_as_current_span(
        f"{SCOPE}.{name}",
        attributes=_named(attributes),
        record_exception=False,  # its message and its traceback may quote a conversation
        set_status_on_exception=False,
    ) as current:
        try:
            yield lambda **more: current.set_attributes(_named(more))
        except BaseException as error:
            current.set_attribute("error.type", type(error).__name__)
            current.set_status(Status(StatusCode.ERROR, type(error).__name__))
            raise


@cache
def _tracer() -> Any:
    """Made once: until a provider is set it records nothing, from then on it is that provider's."""
    from opentelemetry.trace import get_tracer

    return get_tracer(SCOPE)


@cache
def _prompt_size() -> Any:
    from opentelemetry.metrics import get_meter

    return get_meter(SCOPE).create_histogram(
        "prompt.size",
        unit="By",
        description="UTF-8 bytes of the block, and of the user message with the ask as its task.",
        explicit_bucket_boundaries_advisory=PROMPT_SIZES,
    )


def _named(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {f"{SCOPE}.{name}": value for name, value in attributes.items()}


def _ignore(**_: Attribute) -> None:
    """Notes of a span that nobody records."""
