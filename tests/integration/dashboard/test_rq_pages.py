"""rq-dashboard under our login, its faults mended (OP-4)."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from rq import Queue, Worker
from rq.job import Job, JobStatus
from rq.serializers import JSONSerializer

from tests.dashboards import Dashboard
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import Replied
from turnledger.workers.dashboard.rq_pages import mended

HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>"


@pytest.fixture
def pending(node: Turns) -> Turn:
    """A turn whose job is queued."""
    turn = begin(node, "ask", work_key="k")
    turn.complete(reply=Replied("Fixed"), steps=[user("ask")], decision="done")
    return turn


@pytest.fixture
def busy_worker(dashboard: Dashboard, pending: Turn) -> Iterator[Worker]:
    """A worker that has the turn's job in hand, as RQ writes it down."""
    queue = Queue("commits", connection=dashboard.rq, serializer=JSONSerializer)
    worker = Worker([queue], connection=dashboard.rq, serializer=JSONSerializer, name="w1")
    worker.register_birth()  # type: ignore[no-untyped-call]  # RQ's own
    job = Job.fetch(f"turn-{pending.turn_id}", connection=dashboard.rq, serializer=JSONSerializer)
    worker.prepare_execution(job)
    yield worker
    worker.register_death()  # type: ignore[no-untyped-call]  # RQ's own


def _templates() -> dict[str, str]:
    folder = files("rq_dashboard") / "templates" / "rq_dashboard"
    found = {each.name: each.read_text() for each in folder.iterdir() if each.is_file()}
    return {**found, **{f"scripts/{each.name}": each.read_text() for each in (folder / "scripts").iterdir()}}


def test_the_page_of_workers_shows_one_that_is_busy(dashboard: Dashboard, busy_worker: Worker, pending: Turn) -> None:
    """Its job is read as JSON, and never unpickled (OP-4)."""
    answer = dashboard.visitor("victor").get("/rq/0/data/workers.json")
    assert answer.status_code == 200
    (worker,) = json.loads(answer.text)["workers"]
    assert worker["name"] == "w1"
    assert worker["current_job"]["job_id"] == f"turn-{pending.turn_id}"
    assert worker["queues"] == ["commits"]


def test_our_page_shows_what_a_worker_has_in_hand(dashboard: Dashboard, busy_worker: Worker, pending: Turn) -> None:
    """By the turn's id (OP-4)."""
    assert f'<td class="id">{pending.turn_id}</td>' in dashboard.visitor("victor").page()


def test_no_template_puts_a_text_in_as_markup() -> None:
    """What rq-dashboard's scripts insert is escaped, everywhere and once (OP-4)."""
    templates = _templates()
    assert "<%= d.description %>" in templates["job.html"]
    for name, source in templates.items():
        text = mended(source)
        assert "<%=" not in text, name
        assert ".html() %>" not in text, name
        assert not re.search(r"'\{\{[^|}]*\}\}'", text), name
        assert not re.search(r"<script(?! nonce=)", text), name
    assert "<%- d.description %>" in mended(templates["job.html"])
    assert "<%- d.description %>" in mended(templates["jobs.html"])


def test_a_template_that_is_served_is_mended(dashboard: Dashboard, pending: Turn) -> None:
    """Not only the function that does it (OP-4)."""
    visitor = dashboard.visitor("anna")
    for path in ("/rq/", "/rq/0/view/workers", "/rq/0/view/jobs", f"/rq/0/view/job/turn-{pending.turn_id}"):
        page = visitor.page(path)
        assert "<%=" not in page
        assert "<%-" in page


@pytest.mark.parametrize(
    "path",
    [
        "/rq/0/view/jobs/');alert(1);('/queued/8/asc/1",
        "/rq/0/view/jobs/<script>/queued/8/asc/1",
        "/rq/0/view/jobs/commits/other/8/asc/1",
        "/rq/0/view/jobs/commits/queued/8/up/1",
        "/rq/0/view/job/<script>",
        "/rq/1/view/queues",
        "/rq/0/data/jobs/commits/queued/100000/asc/1.json",
        "/rq/0/data/jobs/commits/queued/-1/asc/1.json",
        "/rq/0/data/jobs/commits/queued/8/asc/x.json",
        "/rq/0/data/job/turn-nothing.json",
    ],
)
def test_an_address_that_its_pages_would_not_write_is_not_there(dashboard: Dashboard, path: str) -> None:
    """A queue's name in an address becomes part of a script there; huge pages would hold up Redis (OP-4)."""
    answer = dashboard.visitor("anna").get(path)
    assert answer.status_code == 404
    assert "alert(1)" not in answer.text


def test_a_hostile_description_travels_as_data(dashboard: Dashboard, pending: Turn) -> None:
    """In JSON that no browser takes for a page (OP-4)."""
    dashboard.rq.hset(f"rq:job:turn-{pending.turn_id}", "description", HOSTILE)
    visitor = dashboard.visitor("anna")
    listed = visitor.get("/rq/0/data/jobs/commits/queued/8/asc/1.json")
    assert json.loads(listed.text)["jobs"][0]["description"] == HOSTILE
    for answer in (listed, visitor.get(f"/rq/0/data/job/turn-{pending.turn_id}.json")):
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert HOSTILE not in visitor.page(f"/rq/0/view/job/turn-{pending.turn_id}")


def test_an_operator_may_use_its_buttons(stores: Stores, dashboard: Dashboard, pending: Turn) -> None:
    """With the token that its own script sends; the turn is committed in the end (OP-4)."""
    job = Job.fetch(f"turn-{pending.turn_id}", connection=dashboard.rq, serializer=JSONSerializer)
    queue = Queue("commits", connection=dashboard.rq, serializer=JSONSerializer)
    queue.remove(job.id)
    job.set_status(JobStatus.FAILED)
    queue.failed_job_registry.add(job, ttl=60)
    stores.records.reject(pending.turn_id, ledger=LEAD, reason="a byte it cannot hold")
    stores.records.take(pending.turn_id)  # its job has told why, and failed
    visitor = dashboard.visitor("anna")
    headers = {"X-CSRFToken": visitor.rq_token()}
    answer = visitor.client.post(f"/rq/job/{job.id}/requeue", headers=headers)
    assert (answer.status_code, answer.json) == (200, {"status": "OK"})
    assert queue.job_ids == [job.id]
    stores.drain()
    assert stores.run(pending.turn_id) == "completed"


def test_the_url_of_redis_is_on_no_page(dashboard: Dashboard, stores: Stores) -> None:
    """Nor a password in it (OP-4)."""
    page = dashboard.visitor("anna").page("/rq/")
    assert stores.redis_url not in page
    assert "[0] Redis" in page


def test_a_viewer_is_not_shown_buttons_that_would_refuse(dashboard: Dashboard) -> None:
    """A style sheet takes them away (OP-4)."""
    for name, shown in (("anna", True), ("victor", False)):
        visitor = dashboard.visitor(name)
        assert ("viewer.css" not in visitor.page("/rq/0/view/jobs")) == shown
    hidden: Any = dashboard.visitor("victor").page("/static/viewer.css")
    for button in ("#empty-btn", "#compact-btn", "#requeue-all-btn", "#requeue-job-btn", "#delete-job-btn"):
        assert button in hidden
