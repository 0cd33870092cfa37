"""Our page of the dashboard over real servers (OP-4)."""

import html
import re
from typing import Any

import pytest
from sqlalchemy import event

from tests.dashboards import Dashboard
from tests.stores import LEAD, Stores, assistant, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import CallRecord, LedgerName, Replied, openai_step
from turnledger.store.steps import Usage
from turnledger.workers.dashboard.reading import MOST_MODELS

MARKER = "MARKER-7Q"
HOSTILE = "<script>alert(1)</script>"


def _complete(node: Turns, number: int, *, ledger: LedgerName = LEAD, text: str = "ask") -> Turn:
    turn = begin(node, f"{text} {number}", work_key=f"k{number}", ledger=ledger)
    call = CallRecord("look", {"q": text}, "error", text)
    turn.save(steps=[user(text), assistant(text)], bootstrap={"note": text})
    turn.complete(reply=Replied(text), steps=[assistant(text)], calls=[call], decision="done")
    return turn


def _reject(stores: Stores, turn: Turn, *, ledger: LedgerName = LEAD, reason: str = "a byte it cannot hold") -> None:
    assert stores.records.reject(turn.turn_id, ledger=ledger, reason=reason)


def _tiles(page: str) -> dict[str, str]:
    found = re.findall(r'<h2>(\w+)</h2><p class="value">([^<]+)</p>', page)
    return {name: value.strip() for name, value in found}


def test_turns_are_shown_by_state(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """Each where it belongs (OP-4)."""
    begin(node, "a", work_key="a")
    begin(node, "b", work_key="b").park(reason="authorization")
    for number in range(3):
        _complete(node, number)
    _reject(stores, _complete(node, 9))
    open_dashboard.surveyor.look()
    tiles = _tiles(open_dashboard.visitor().page())
    assert tiles == {"Pending": "3", "Running": "1", "Parked": "1", "Replaced": "0", "Blocked": "0", "Rejected": "1"}


def test_rejected_blocked_and_stale_turns_are_listed_with_their_reasons(
    stores: Stores, node: Turns, open_dashboard: Dashboard
) -> None:
    """And only those that still are what the last count found (OP-4)."""
    rejected, requeued = _complete(node, 1), _complete(node, 2)
    for turn in (rejected, requeued):
        _reject(stores, turn)
    blocked, stale = begin(node, "b", work_key="b"), begin(node, "s", work_key="s")
    stores.redis.hset(stores.keys.record(blocked.turn_id), "blocked", "delivery_unknown")
    stores.redis.hset(stores.keys.record(stale.turn_id), "replaced_by", "4")
    open_dashboard.surveyor.look()
    stores.records.reinstate(requeued.turn_id, ledger=LEAD)
    page = open_dashboard.visitor().page()
    rows = {row[0]: row[1] for row in re.findall(r'<td class="id">([^<]+)</td>\s*<td class="why">([^<]+)</td>', page)}
    assert rows[rejected.turn_id] == "a byte it cannot hold"
    assert rows[blocked.turn_id] == "delivery_unknown"
    assert "version 4" in rows[stale.turn_id]
    assert requeued.turn_id not in rows


def test_the_last_hour_is_told_minute_by_minute(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """Commits a second, and how long completed turns waited (OP-4)."""
    for number in range(6):
        _complete(node, number)
    stores.drain()
    (key,) = map(str, stores.redis.scan_iter("{turnledger}:tally:*"))
    minute = int(key.rpartition(":")[2])
    fields: Any = stores.redis.hgetall(key)
    assert fields["turns"] == "6"
    assert sum(int(count) for name, count in fields.items() if name.startswith("w")) == 6
    assert stores.redis.pttl(key) > 3_600_000
    stores.redis.rename(key, f"{{turnledger}}:tally:{minute - 1}")
    page = open_dashboard.visitor().page()
    assert "· 0.1/s</title>" in page
    assert re.search(r"half within [^,]+, 95 % within", page)


def test_the_tokens_of_the_last_day_are_told_by_model(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """A model's name is text like any other (OP-4)."""
    assert "Tokens by model" not in open_dashboard.visitor().page()
    step = openai_step({"role": "assistant", "content": "x"}, model=f"m{HOSTILE}", usage=Usage(12_345, 678, 9_000))
    begin(node, "ask").complete(reply=Replied("x"), steps=[step], decision="done")
    stores.drain()
    page = open_dashboard.visitor().page()
    row = re.search(r'<td class="name">m([^<]*)</td>' + r'\s*<td class="number">([^<]+)</td>' * 4, page)
    assert row is not None
    assert html.unescape(row[1]) == HOSTILE
    assert row.groups()[1:] == ("1", "12,345", "9,000", "678")


def test_the_costliest_models_are_named_alone(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """However many there are (OP-4)."""
    steps = [
        openai_step({"role": "assistant", "content": "x"}, model=f"m{number:02}", usage=Usage(1 + number))
        for number in range(MOST_MODELS + 3)
    ]
    begin(node, "ask").complete(reply=Replied("x"), steps=steps, decision="done")
    stores.drain()
    named = re.findall(r'<td class="name">(m\d\d)</td>', open_dashboard.visitor().page())
    assert named == [f"m{number:02}" for number in reversed(range(3, MOST_MODELS + 3))]


def test_a_commit_that_cannot_be_tallied_is_a_commit(stores: Stores, node: Turns) -> None:
    """The tally decides nothing (OP-4, QU-1)."""
    turn = _complete(node, 1)
    seconds, _ = stores.redis.time()
    for minute in (seconds // 60, seconds // 60 + 1):
        stores.redis.set(f"{{turnledger}}:tally:{minute}", "no hash", ex=60)
    stores.drain()
    assert stores.run(turn.turn_id) == "completed"


def _cost(stores: Stores, dashboard: Dashboard) -> tuple[int, int]:
    """Commands and statements of one refresh."""
    statements: list[str] = []
    visitor = dashboard.visitor()
    visitor.page("/figures")  # connections are open and scripts loaded
    engine = stores.database.engine
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    before: Any = stores.redis.info("stats")
    visitor.page("/figures")
    after: Any = stores.redis.info("stats")
    return after["total_commands_processed"] - before["total_commands_processed"], len(statements)


def test_a_refresh_costs_the_same_with_a_thousand_pending_turns(
    stores: Stores, node: Turns, open_dashboard: Dashboard
) -> None:
    """A fixed number of commands and statements, whatever the backlog (OP-4)."""
    empty = _cost(stores, open_dashboard)
    turn = _complete(node, 1)
    node.close()  # its thread would be counted too
    record: Any = stores.redis.hgetall(stores.keys.record(turn.turn_id))
    with stores.redis.pipeline() as pipeline:
        for number in range(999):
            pipeline.hset(stores.keys.record(f"copy-{number}"), mapping=record)
            pipeline.zadd(stores.keys.backlog, {f"copy-{number}": 1})
            pipeline.zadd(stores.keys.turns, {f"copy-{number}": 1})
            pipeline.rpush(stores.keys.pending(LEAD), f"copy-{number}")
        pipeline.execute()
    open_dashboard.surveyor.look()
    # The sentence about the oldest pending turn looks at ten of them, and no further.
    pending = _cost(stores, open_dashboard)
    assert _tiles(open_dashboard.visitor().page())["Pending"] == "1,000"
    assert pending[1] == empty[1]
    assert pending[0] - empty[0] <= 40
    more = open_dashboard.visitor()
    with stores.redis.pipeline() as pipeline:
        for number in range(999, 3_000):
            pipeline.zadd(stores.keys.backlog, {f"copy-{number}": 2})
        pipeline.execute()
    assert more.page()
    assert _cost(stores, open_dashboard) == pending


@pytest.mark.parametrize("state", ["running", "parked", "blocked", "stale", "pending", "rejected", "committed"])
def test_no_text_of_a_conversation_is_ever_on_a_page(
    stores: Stores, node: Turns, open_dashboard: Dashboard, state: str
) -> None:
    """Whatever state a turn is in, on our pages and on those of rq-dashboard (OP-4)."""
    turn = _marked(stores, node, state)
    open_dashboard.surveyor.look()
    visitor = open_dashboard.visitor()
    queue = "/rq/0/data/jobs/commits/queued/8/asc/1.json"
    pages = ["/", "/figures", "/rq/", "/rq/0/view/jobs", queue, "/rq/0/data/queues.json", "/rq/0/data/workers.json"]
    texts = [visitor.page(path) for path in pages]
    job = visitor.get(f"/rq/0/data/job/turn-{turn.turn_id}.json")
    assert (job.status_code == 200) == (state in ("pending", "rejected"))
    assert not [text for text in [*texts, job.text] if MARKER in text]


def _marked(stores: Stores, node: Turns, state: str) -> Turn:
    """A turn in this state, whose every text bears the marker."""
    if state in ("pending", "rejected", "committed"):
        turn = _complete(node, 1, text=MARKER)
    else:
        turn = begin(node, MARKER, work_key="k")
        turn.save(steps=[user(MARKER)], bootstrap={"note": MARKER})
    if state == "parked":
        turn.park(reason="authorization")
    if state in ("blocked", "stale"):
        field, value = ("blocked", "delivery_unknown") if state == "blocked" else ("replaced_by", "1")
        stores.redis.hset(stores.keys.record(turn.turn_id), field, value)
    if state == "rejected":
        _reject(stores, turn)
    if state == "committed":
        stores.drain()
    return turn


def test_hostile_names_and_reasons_are_shown_as_text(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """Agent, conversation and reason (OP-4)."""
    ledger = LedgerName(f"lead{HOSTILE}", f"jira:{HOSTILE}")
    _reject(stores, _complete(node, 1, ledger=ledger), ledger=ledger, reason=f"\x1b[31m{HOSTILE}")
    open_dashboard.surveyor.look()
    page = open_dashboard.visitor().page()
    assert HOSTILE not in page
    assert page.count(html.escape(HOSTILE)) >= 3
    assert "\x1b" not in page


def test_a_page_is_shown_while_postgres_is_away(stores: Stores, node: Turns, open_dashboard: Dashboard) -> None:
    """That is when somebody looks (OP-4)."""
    _complete(node, 1)
    with stores.connection() as connection:
        connection.execute("ALTER TABLE ledger RENAME TO ledger_gone")
    try:
        page = open_dashboard.visitor().page()
    finally:
        with stores.connection() as connection:
            connection.execute("ALTER TABLE ledger_gone RENAME TO ledger")
    assert "Postgres cannot be asked" in page
    assert _tiles(page)["Pending"] == "1"


def test_nothing_on_our_pages_comes_from_elsewhere_or_runs_inline(open_dashboard: Dashboard) -> None:
    """As the content security policy demands, so that nothing is missing either (OP-4)."""
    page = open_dashboard.visitor().page()
    assert not re.search(r"""(src|href|action)=["'](https?:)?//""", page)
    assert not re.search(r"<script(?! src=)|\sstyle=|<style|\son\w+=|javascript:", page)
