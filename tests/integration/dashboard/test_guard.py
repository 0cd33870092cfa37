"""Who may do what on the dashboard, and what its answers forbid a browser (OP-4)."""

import re
from typing import Any

import pytest
from itsdangerous import TimestampSigner

from tests.dashboards import ACCOUNTS, HASH, PASSWORD, Dashboard, path_of
from tests.integration.dashboard.conftest import MakeDashboard
from tests.stores import LEAD, Stores, begin, user
from turnledger.checkpoint import Turn, Turns
from turnledger.store import InvalidInput, Replied
from turnledger.workers.dashboard.accounts import Account, Door, read_accounts
from turnledger.workers.dashboard.rq_pages import CHANGES, READS
from turnledger.workers.dashboard.settings import DashboardSettings


@pytest.fixture
def rejected(stores: Stores, node: Turns) -> Turn:
    """A rejected turn whose cause is gone."""
    turn = begin(node, "ask", work_key="k")
    turn.complete(reply=Replied("Fixed"), steps=[user("ask")], decision="done")
    assert stores.records.reject(turn.turn_id, ledger=LEAD, reason="a byte it cannot hold")
    return turn


def _changes(dashboard: Dashboard) -> list[tuple[str, str]]:
    """Every way to change something: method and address, those of rq-dashboard included."""
    arguments: dict[str, Any] = {"job_id": "turn-x", "queue_name": "commits", "registry_name": "failed", "turn_id": "x"}
    found = []
    with dashboard.app.test_request_context("/"):
        for rule in dashboard.app.url_map.iter_rules():
            for method in sorted((rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}):
                if rule.endpoint not in ("login", "logout"):
                    given = {name: arguments[name] for name in rule.arguments}
                    found.append((method, dashboard.app.url_for(rule.endpoint, **given)))
    return sorted(set(found))


def test_every_address_is_known(dashboard: Dashboard) -> None:
    """One that another version of rq-dashboard brings is refused until somebody has looked at it (OP-4)."""
    there = {rule.endpoint for rule in dashboard.app.url_map.iter_rules()}
    assert {name for name in there if name.startswith("rq_dashboard.")} == READS | CHANGES
    assert there - READS - CHANGES == {"static", "page", "figures", "requeue", "login", "logout"}


def test_without_a_login_nothing_is_shown(dashboard: Dashboard) -> None:
    """A person is led to the login, a script is told (OP-4)."""
    visitor = dashboard.visitor()
    for path in ("/", "/figures", "/rq/", "/rq/0/view/jobs", "/rq/0/data/workers.json", "/rq/static/js/jobs.js", "/x"):
        assert path_of(visitor.get(path, headers={"Accept": "text/html"})) == "/login"
        assert visitor.get(path, headers={"Accept": "application/json"}).status_code == 401
    assert visitor.get("/login").status_code == 200


def test_a_wrong_password_opens_nothing(dashboard: Dashboard) -> None:
    """Nor a name that is not there, nor an empty password (OP-4)."""
    visitor = dashboard.visitor()
    for name, password in (("anna", "wrong"), ("nobody", PASSWORD), ("anna", ""), ("", "")):
        assert visitor.log_in(name, password=password).status_code == 403
    assert path_of(visitor.get("/", headers={"Accept": "text/html"})) == "/login"


def test_guessing_is_slowed_down(make_dashboard: MakeDashboard) -> None:
    """Then even the right password waits (OP-4)."""
    visitor = make_dashboard(**ACCOUNTS, dashboard_failed_logins=2).visitor()
    for status in (403, 403, 429):
        assert visitor.log_in("anna", password="wrong").status_code == status
    assert visitor.log_in("anna").status_code == 429


def test_the_door_opens_again_after_a_minute() -> None:
    """Not for ever (OP-4)."""
    now = [0.0]
    door = Door({"anna": Account("anna", "operator", HASH)}, most_failures=1, clock=lambda: now[0])
    assert door.let_in("anna", password="wrong") is None
    assert door.is_shut()
    now[0] = 61.0
    assert not door.is_shut()
    assert door.let_in("anna", password=PASSWORD) == Account("anna", "operator", HASH)


def test_an_operator_requeues_a_rejected_turn(stores: Stores, dashboard: Dashboard, rejected: Turn) -> None:
    """By the button of the page, and it is committed (OP-4)."""
    dashboard.surveyor.look()
    visitor = dashboard.visitor("anna")
    page = visitor.page()
    assert f"/turns/{rejected.turn_id}/requeue" in page
    assert visitor.post(f"/turns/{rejected.turn_id}/requeue", token=visitor.token()).status_code == 303
    assert "is queued for its commit" in visitor.page()
    assert stores.state(rejected.turn_id) == "completed"
    stores.drain()
    assert stores.run(rejected.turn_id) == "completed"


def test_a_turn_that_cannot_be_requeued_is_named(dashboard: Dashboard) -> None:
    """One that is not there, and what is no turn at all (OP-4)."""
    visitor = dashboard.visitor("anna")
    for turn_id in ("6f1c0a52-77d1-4f0e-9d2b-8a3f5f0d9e11", "no%20turn"):
        assert visitor.post(f"/turns/{turn_id}/requeue", token=visitor.token()).status_code == 303
        assert 'class="flash bad"' in visitor.page()


def test_a_viewer_changes_nothing(stores: Stores, dashboard: Dashboard, rejected: Turn) -> None:
    """There is no button, and every address refuses, rq-dashboard's too (OP-4)."""
    dashboard.surveyor.look()
    visitor = dashboard.visitor("victor")
    page = visitor.page()
    assert rejected.turn_id in page
    assert "/requeue" not in page
    changes = _changes(dashboard)
    assert len(changes) == 6
    for method, path in [*changes, ("POST", f"/turns/{rejected.turn_id}/requeue")]:
        headers = {"X-CSRFToken": visitor.rq_token()}
        answer = visitor.client.open(path, method=method, headers=headers)
        assert (answer.status_code, "look, and change nothing" in answer.text) == (403, True), path
    assert stores.state(rejected.turn_id) == "rejected"


@pytest.mark.parametrize("brought", [None, "", "wrong", "another session's"])
def test_a_change_without_the_token_of_the_session_is_refused(
    dashboard: Dashboard, rejected: Turn, stores: Stores, brought: str | None
) -> None:
    """On every address that changes something, the login and the logout included (OP-4)."""
    visitor, other = dashboard.visitor("anna"), dashboard.visitor("anna")
    token = other.token() if brought == "another session's" else brought
    own = ("POST", f"/turns/{rejected.turn_id}/requeue")
    for method, path in [*_changes(dashboard), own, ("POST", "/login"), ("POST", "/logout")]:
        for given in ({"headers": {"X-CSRFToken": token or ""}}, {"data": {"csrf_token": token or ""}}):
            answer = visitor.client.open(path, method=method, **given)  # type: ignore[arg-type]  # one of its options
            assert (answer.status_code, "page of this session" in answer.text) == (403, True), path
    assert stores.state(rejected.turn_id) == "rejected"
    assert visitor.page()


def test_looking_changes_nothing(stores: Stores, dashboard: Dashboard, rejected: Turn) -> None:
    """No address that changes something takes a GET: a link or an image cannot do it (OP-4)."""
    visitor = dashboard.visitor("anna")
    for _, path in _changes(dashboard):
        for method in ("GET", "HEAD", "OPTIONS"):
            answer = visitor.client.open(path, method=method)
            assert answer.status_code == 405 or (method == "OPTIONS" and not answer.text), path
    assert visitor.get("/logout").status_code == 405
    assert stores.state(rejected.turn_id) == "rejected"


def test_a_session_ends_with_its_logout(dashboard: Dashboard) -> None:
    """And a new one begins with another token (OP-4)."""
    visitor = dashboard.visitor("anna")
    token = visitor.token()
    assert visitor.post("/logout", token=token).status_code == 303
    assert visitor.get("/", headers={"Accept": "application/json"}).status_code == 401
    assert visitor.log_in("anna").status_code == 303
    assert visitor.token() != token


@pytest.mark.parametrize(("later_s", "status"), [(43_000, 200), (43_300, 401)])
def test_a_session_ends_after_its_time(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, later_s: int, status: int
) -> None:
    """Twelve hours, told by the signature of its cookie (OP-4)."""
    visitor = dashboard.visitor("anna")
    now = TimestampSigner.get_timestamp
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda signer: now(signer) + later_s)
    assert visitor.get("/", headers={"Accept": "application/json"}).status_code == status


@pytest.mark.parametrize(
    "changed",
    [
        {"dashboard_operators": "", "dashboard_viewers": f"victor={HASH} anna={HASH}"},
        {"dashboard_operators": f"bert={HASH}"},
        {"dashboard_operators": f"anna={HASH[:-1]}{'1' if HASH[-1] == '0' else '0'}"},
    ],
    ids=["another role", "gone", "another password"],
)
def test_a_session_ends_when_its_account_changes(make_dashboard: MakeDashboard, changed: dict[str, str]) -> None:
    """Also where the secret outlives the process (OP-4)."""
    secret = {"dashboard_secret": "s" * 32}
    visitor = make_dashboard(**ACCOUNTS, **secret).visitor("anna")
    cookie = visitor.client.get_cookie("turnledger_session")
    assert cookie is not None
    same, other = (make_dashboard(**{**ACCOUNTS, **secret, **each}).visitor() for each in ({}, changed))
    for later, status in ((same, 200), (other, 401)):
        later.client.set_cookie("turnledger_session", cookie.value)
        assert later.get("/", headers={"Accept": "application/json"}).status_code == status


def test_cookies_are_out_of_reach(make_dashboard: MakeDashboard) -> None:
    """Of scripts, of other sites, and of plain HTTP where there is a proxy for HTTPS (OP-4)."""
    visitor = make_dashboard(**ACCOUNTS, dashboard_https="on").visitor()
    visitor.client.get("/login", base_url="https://localhost")
    answer = visitor.client.get("/login", base_url="https://localhost")
    dashboard = make_dashboard(**ACCOUNTS)
    plain = dashboard.visitor().get("/login").headers["Set-Cookie"]
    assert "HttpOnly" in plain
    assert "SameSite=Lax" in plain
    assert answer.status_code == 200
    secure = make_dashboard(**ACCOUNTS, dashboard_https="on").visitor().get("/login").headers["Set-Cookie"]
    assert "Secure" in secure
    of_rq = dashboard.visitor("anna").get("/rq/").headers["Set-Cookie"]
    assert "_csrf_token=" in of_rq
    assert "SameSite=Strict" in of_rq


def _policy(answer: Any) -> dict[str, str]:
    parts = answer.headers["Content-Security-Policy"].split("; ")
    return {name: rest for name, _, rest in (part.partition(" ") for part in parts)}


def test_our_pages_run_no_script_but_ours(dashboard: Dashboard) -> None:
    """Nothing inline and nothing from elsewhere, on pages and on refusals (OP-4)."""
    visitor = dashboard.visitor("anna")
    for path in ("/", "/figures", "/login", "/nothing", "/rq/requeue/commits", "/static/dashboard.js"):
        answer = visitor.get(path)
        policy = _policy(answer)
        assert "unsafe" not in answer.headers["Content-Security-Policy"], path
        assert (policy["default-src"], policy["script-src"]) == ("'none'", "'self'")
        assert (policy["frame-ancestors"], policy["base-uri"]) == ("'none'", "'none'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_pages_of_rq_dashboard_run_only_scripts_with_their_nonce(dashboard: Dashboard) -> None:
    """A new one for each answer; one that got in as text has none (OP-4)."""
    visitor = dashboard.visitor("anna")
    nonces = set()
    for path in ("/rq/", "/rq/0/view/workers", "/rq/0/view/jobs"):
        answer = visitor.get(path)
        script = _policy(answer)["script-src"]
        (nonce,) = re.findall(r"'nonce-([^']+)'", script)
        nonces.add(nonce)
        assert "unsafe-inline" not in script
        assert answer.text.count("<script ") == answer.text.count(f'<script nonce="{nonce}"') > 4
        assert not re.search(r"\son\w+=", answer.text)
    assert len(nonces) == 3


def test_without_accounts_only_this_machine_is_served(open_dashboard: Dashboard) -> None:
    """By its own name: not a stranger's site whose name leads here, nor a proxy (OP-4)."""
    visitor = open_dashboard.visitor()
    for name in ("localhost", "127.0.0.1", "[::1]"):
        assert visitor.get("/", base_url=f"http://{name}:8181").status_code == 200
    assert visitor.get("/", base_url="http://rebound.example").status_code == 403
    assert visitor.get("/", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "dashboard.example"])
def test_it_does_not_start_open_to_others(host: str) -> None:
    """Without accounts it says what to do (OP-4)."""
    with pytest.raises(InvalidInput, match="TURNLEDGER_DASHBOARD_OPERATORS"):
        read_accounts(DashboardSettings(dashboard_host=host))
    assert read_accounts(DashboardSettings(dashboard_host=host, **ACCOUNTS))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_on_loopback_it_starts_without_accounts(host: str) -> None:
    """As on a developer's machine (OP-4)."""
    assert read_accounts(DashboardSettings(dashboard_host=host)) == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"dashboard_operators": "anna"}, "not name=hash"),
        ({"dashboard_operators": f"={HASH}"}, "not name=hash"),
        ({"dashboard_viewers": "anna=plain-password"}, "not name=hash"),
        ({"dashboard_operators": f"anna={HASH}", "dashboard_viewers": f"anna={HASH}"}, "twice"),
        ({"dashboard_secret": "short"}, "shorter than 32"),
    ],
)
def test_wrong_accounts_are_refused(settings: dict[str, Any], said: str) -> None:
    """Without quoting them (OP-4)."""
    with pytest.raises(InvalidInput, match=said) as refused:
        read_accounts(DashboardSettings(**settings))
    assert "plain-password" not in str(refused.value)


def test_hashes_and_the_secret_are_not_in_the_words_of_the_settings() -> None:
    """A log of them tells nobody (OP-4)."""
    words = repr(DashboardSettings(**ACCOUNTS, dashboard_secret="x" * 40))
    assert HASH not in words
    assert "x" * 40 not in words
