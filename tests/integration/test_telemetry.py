"""What is measured of a turn: spans around what it waits for, and the size of its prompt."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from tests.stores import LEAD, Stores, assistant, begin, user
from turnledger.checkpoint import AlreadyHandled, Turns
from turnledger.store import NoReplyOwed, Replied, user_message

_agents = itertools.count(1)


@pytest.fixture(scope="session")
def _telemetry() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    """What an engine sets up once a process."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    return exporter, reader


@pytest.fixture
def exporter(_telemetry: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> InMemorySpanExporter:
    _telemetry[0].clear()
    return _telemetry[0]


@pytest.fixture
def reader(_telemetry: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> InMemoryMetricReader:
    return _telemetry[1]


@pytest.fixture
def agent() -> str:
    """One that no other test measures: a histogram is never emptied."""
    return f"agent-{next(_agents)}"


def spans(exporter: InMemorySpanExporter) -> list[tuple[str, Mapping[str, Any]]]:
    return [(span.name, dict(span.attributes or {})) for span in exporter.get_finished_spans()]


def sizes(reader: InMemoryMetricReader, agent: str) -> dict[tuple[str, str], tuple[int, float]]:
    """How many values, and their sum, by occasion and part."""
    return {
        (str(point.attributes["turnledger.occasion"]), str(point.attributes["turnledger.part"])): (
            point.count,
            point.sum,
        )
        for point in points(reader)
        if point.attributes is not None and point.attributes["turnledger.agent"] == agent
    }


def points(reader: InMemoryMetricReader) -> Iterator[HistogramDataPoint]:
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                assert (metric.name, metric.unit) == ("prompt.size", "By")
                for point in metric.data.data_points:
                    assert isinstance(point, HistogramDataPoint)
                    yield point


def told(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "prompt.size"]


def test_the_size_of_a_prompt_is_logged_once_a_start_and_once_a_resume(stores: Stores, node: Turns) -> None:
    """With block and user message in bytes, the ask as the task (OP-7)."""
    begin(node, "é\ud800").complete(reply=Replied("Done"))
    with capture_logs() as logs:
        turn = begin(node, "Go on, ü")
        turn.save(steps=[user("Go on, ü")])
        turn.park(reason="waiting")
        resumed = stores.node().resume(turn.turn_id)
        resumed.complete(reply=NoReplyOwed())
    size = len(user_message(earlier=turn.earlier, task="Go on, ü").encode())
    expected = {
        "event": "prompt.size",
        "log_level": "info",
        "turn_id": turn.turn_id,
        "agent": LEAD.agent,
        "conversation": LEAD.conversation,
        "block_bytes": len(turn.earlier.encode()),
        "user_bytes": size,
    }
    assert told(logs) == [{**expected, "occasion": "start"}, {**expected, "occasion": "resume"}]
    assert len(turn.earlier.encode()) > 0


def test_an_ask_that_is_no_text_has_a_size(node: Turns) -> None:
    """Half a surrogate counts three bytes; without a block the message is the ask (OP-7, BL-4)."""
    with capture_logs() as logs:
        begin(node, "é\ud800")
    assert [(line["block_bytes"], line["user_bytes"]) for line in told(logs)] == [(0, 5)]


def test_a_start_that_is_refused_has_no_prompt(stores: Stores, node: Turns) -> None:
    """Nor has a turn that is abandoned unseen (OP-7)."""
    begin(node, work_key="k").complete(reply=NoReplyOwed())
    turn = begin(node, work_key="k2")
    turn.park(reason="waiting")
    with capture_logs() as logs:
        with pytest.raises(AlreadyHandled):
            begin(node, work_key="k")
        node.abandon(turn.turn_id)
    assert told(logs) == []


def test_the_size_of_a_prompt_is_a_histogram(node: Turns, reader: InMemoryMetricReader, agent: str) -> None:
    """In bytes, for block and user message, by agent and occasion (OP-7)."""
    turn = node.start(agent=agent, conversation="jira:POC-7", triggered_by="12345")
    turn.park(reason="waiting")
    node.resume(turn.turn_id).complete(reply=Replied("Done"))
    later = node.start(agent=agent, conversation="jira:POC-7", triggered_by="12345")
    block, message = len(later.earlier.encode()), len(user_message(earlier=later.earlier, task="12345").encode())
    assert sizes(reader, agent) == {
        ("start", "block"): (2, 0 + block),
        ("start", "user"): (2, 5 + message),
        ("resume", "block"): (1, 0),
        ("resume", "user"): (1, 5),
    }
    assert all(24_000 in point.explicit_bounds for point in points(reader))


def test_a_turns_life_is_in_spans(stores: Stores, node: Turns, exporter: InMemorySpanExporter) -> None:
    """Start, save, complete and commit, and a resume, with ids and numbers (OP-7)."""
    turn = begin(node)
    turn.save(steps=[user("Please"), assistant("thinking")])
    turn.park(reason="waiting")
    node.resume(turn.turn_id).complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    names = {
        "turnledger.turn_id": turn.turn_id,
        "turnledger.agent": LEAD.agent,
        "turnledger.conversation": LEAD.conversation,
    }
    assert spans(exporter) == [
        ("turnledger.start", names),
        ("turnledger.save", {**names, "turnledger.steps": 2}),
        ("turnledger.resume", names),
        ("turnledger.complete", {**names, "turnledger.steps": 1, "turnledger.job_id": f"turn-{turn.turn_id}"}),
        ("turnledger.commit", {"turnledger.way": "group", "turnledger.ledgers": 1, "turnledger.turns": 1}),
    ]


def test_a_direct_commit_is_inside_its_completion(stores: Stores, node: Turns, exporter: InMemorySpanExporter) -> None:
    """The caller waits for it (OP-7, FL-3)."""
    turn = begin(node)
    stores.redis.flushall()
    turn.complete(reply=Replied("Done"))
    commit, complete = exporter.get_finished_spans()[-2:]
    assert (commit.name, complete.name) == ("turnledger.commit", "turnledger.complete")
    assert commit.parent == complete.get_span_context()


def test_a_span_tells_an_error_by_its_type_alone(node: Turns, exporter: InMemorySpanExporter) -> None:
    """A message or a traceback may quote a conversation (OP-7)."""
    turn = begin(node)
    with pytest.raises(ValueError, match="decision"):
        turn.complete(reply=Replied("a marked text"), decision="a marked text")
    span: ReadableSpan = exporter.get_finished_spans()[-1]
    assert (span.attributes or {})["error.type"] == "InvalidInput"
    assert (span.status.is_ok, span.status.description) == (False, "InvalidInput")
    assert list(span.events) == []
    assert "marked" not in span.to_json()
