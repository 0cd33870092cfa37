"""The dashboard as a person meets it, in a real browser (OP-4). `make browser` runs these."""

import math
import random
from pathlib import Path
from typing import Any

import pytest
from rq import Queue, Worker
from rq.serializers import JSONSerializer

from tests.browser.conftest import Served
from tests.stores import Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import LedgerName, Replied
from turnledger.workers.worker import rq_connection

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
_LISTED = "document.body.innerText.includes({0!r})"


def _complete(node: Turns, number: int, *, ledger: LedgerName) -> Turn:
    turn = begin(node, f"ask {number}", work_key=f"k{number}", ledger=ledger)
    turn.complete(reply=Replied("Fixed"), steps=[user("ask")], decision="done")
    return turn


def _rejected(stores: Stores, node: Turns, *, ledger: LedgerName, reason: str) -> Turn:
    turn = _complete(node, 1, ledger=ledger)
    assert stores.records.reject(turn.turn_id, ledger=ledger, reason=reason)
    return turn


def _load(stores: Stores, node: Turns) -> None:
    """An hour of work, with a lull and a bad quarter of an hour, and turns in every state."""
    seconds: Any = stores.redis.time()
    newest, dice = seconds[0] // 60, random.Random(7)
    for back in range(1, 60):
        turns = 0 if 30 <= back < 34 else int(60 * (9 + 5 * math.sin(back / 9)) * dice.uniform(0.85, 1.15))
        slow = 6 if 12 <= back < 20 else 0
        waits: dict[Any, Any] = {f"w{13 + slow}": turns // 3, f"w{14 + slow}": turns // 2, f"w{17 + slow}": turns // 6}
        if turns:
            stores.redis.hset(f"{{turnledger}}:tally:{newest - back}", mapping={"turns": turns, **waits})
    for number in range(40):
        ledger = LedgerName(("lead", "triage", "docs")[number % 3], f"jira:POC-{number}")
        turn = begin(node, "ask", work_key="k", ledger=ledger)
        if number % 5 == 0:
            turn.park(reason="authorization")
        elif number % 3 == 0:
            turn.complete(reply=Replied("Fixed"), steps=[user("ask")], decision="done")
        elif number == 13:
            stores.redis.hset(stores.keys.record(turn.turn_id), "blocked", "delivery_unknown")
        elif number in (14, 22):
            stores.redis.hset(stores.keys.record(turn.turn_id), "replaced_by", str(number % 4))


def _register_workers(stores: Stores, number: int) -> None:
    redis = rq_connection(stores.records.settings)
    for place in range(number):
        queue = Queue("upkeep" if place == 2 else "commits", connection=redis, serializer=JSONSerializer)
        worker = Worker([queue], connection=redis, serializer=JSONSerializer, name=f"host-a.{4_100 + place}")
        worker.register_birth()  # type: ignore[no-untyped-call]  # RQ's own
    redis.close()


def test_a_rejected_turn_is_requeued_by_a_click(stores: Stores, node: Turns, served: Served, pictures: Path) -> None:
    """And the page looks as it should, light and dark (OP-4)."""
    _load(stores, node)
    _register_workers(stores, 3)
    turn = _rejected(
        stores, node, ledger=LedgerName("lead", "slack:C9:1718.001"), reason="22P05: a character this database lacks"
    )
    page = served.person("anna")
    page.wait(_LISTED.format(turn.turn_id))
    page.wait("document.body.innerText.includes('delivery_unknown')")
    for scheme in ("light", "dark"):
        page.show(scheme)
        page.screenshot(pictures / f"dashboard-{scheme}.png")
    page.click(f"form[action$='{turn.turn_id}/requeue'] button")
    page.wait("document.body.innerText.includes('is queued for its commit')")
    page.wait(f"document.querySelector(\"form[action$='{turn.turn_id}/requeue']\") === null")
    assert stores.state(turn.turn_id) == "completed"
    assert page.refused == []


def test_a_page_that_stays_open_follows(stores: Stores, node: Turns, served: Served) -> None:
    """Without being loaded again (OP-4)."""
    page = served.person("victor")
    page.run("window.same = true")
    _complete(node, 1, ledger=LedgerName("lead", "jira:POC-1"))
    page.wait("document.querySelector('.tile .value').innerText === '1'")
    assert page.run("window.same") is True
    assert page.refused == []


def test_hostile_texts_are_shown_as_text(stores: Stores, node: Turns, served: Served, pictures: Path) -> None:
    """In names and reasons on our page, and in a job's description on those of rq-dashboard (OP-4)."""
    ledger = LedgerName(f"lead{HOSTILE}", f"jira:{HOSTILE}")
    turn = _rejected(stores, node, ledger=ledger, reason=HOSTILE)
    job = stores.keys.job(turn.turn_id)
    stores.redis.hset(job, "description", HOSTILE)
    page = served.person("anna")
    page.wait(_LISTED.format(HOSTILE))
    base = f"{served.url}rq/0/view"
    for path in (f"job/turn-{turn.turn_id}", "jobs/commits/queued/8/asc/1"):
        page.open(f"{base}/{path}")
        page.wait(_LISTED.format(HOSTILE))
        assert page.run("document.querySelectorAll('img[src=x]').length") == 0
    page.screenshot(pictures / "rq-jobs.png")
    assert page.dialogs == []
    assert [text for text in page.refused if "script" in text.lower()] == []


def test_a_viewer_is_refused_the_button(stores: Stores, node: Turns, served: Served) -> None:
    """There is none, and one that is made by hand is refused (OP-4)."""
    turn = _rejected(stores, node, ledger=LedgerName("lead", "jira:POC-7"), reason="a byte it cannot hold")
    page = served.person("victor")
    page.wait(_LISTED.format(turn.turn_id))
    assert page.run("document.querySelectorAll('#figures button').length") == 0
    made = f"fetch('/turns/{turn.turn_id}/requeue', {{method: 'POST', body: new URLSearchParams({{csrf_token: "
    made += "document.querySelector('[name=csrf_token]').value})}).then(answer => answer.status)"
    assert page.run(made) == 403
    page.open(f"{served.url}rq/0/view/jobs/commits/failed/8/asc/1")
    page.wait("getComputedStyle(document.getElementById('requeue-all-btn')).display === 'none'")
    assert stores.state(turn.turn_id) == "rejected"


def test_an_operator_uses_a_button_of_rq_dashboard(stores: Stores, node: Turns, served: Served) -> None:
    """Its script sends the token of the session by itself (OP-4)."""
    turn = _complete(node, 1, ledger=LedgerName("lead", "jira:POC-7"))
    page = served.person("anna")
    page.open(f"{served.url}rq/0/view/job/turn-{turn.turn_id}")
    page.wait(_LISTED.format("commits"))
    page.click("#delete-job-btn")
    page.wait("document.getElementById('confirmation-modal').classList.contains('show')")
    page.wait("document.getElementById('confirmation-modal').getAnimations({subtree: true}).length === 0")
    page.click("#confirmation-modal-yes")
    page.wait("!location.pathname.includes('/job/') && document.readyState === 'complete'")
    assert stores.redis.exists(stores.keys.job(turn.turn_id)) == 0
