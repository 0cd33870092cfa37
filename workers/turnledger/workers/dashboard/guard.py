"""What stands before every page: who asks, whether the request is their own, and whether they may.

Whatever is not a plain look needs an operator and the token of their session, on rq-dashboard's addresses as on ours: a
new address is refused until it is known.
"""

import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, abort, current_app, g, redirect, request, session, url_for
from werkzeug.wrappers import Response as AnyResponse

from turnledger.workers.dashboard.accounts import WHOEVER_IS_HERE, Account, is_loopback

_KEPT_AS = "csrf"
FIELD = "csrf_token"
HEADER = "X-CSRFToken"
COOKIE = "_csrf_token"  # rq-dashboard's pages read it and send it back in the header
LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"login", "static"})
_OWN_SESSION = frozenset({"login", "logout"})
_RQ_STATIC = "rq_dashboard.static"
_FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")


def guard(app: Flask, accounts: Mapping[str, Account]) -> None:
    """Put the guard before every page of the app, those of blueprints included."""
    app.extensions["turnledger_accounts"] = accounts
    app.before_request(_admit)
    app.after_request(_hand_out_token)
    app.context_processor(lambda: {"account": g.get("account"), "csrf_token": token, "may_change": may_change})


def enter(account: Account) -> None:
    """Begin a session of this account; nothing of an earlier one is kept."""
    session.clear()
    session.update(name=account.name, mark=account.mark)
    token()


def token() -> str:
    """The token of this session, which every request that changes something has to bring."""
    if _KEPT_AS not in session:
        session[_KEPT_AS] = secrets.token_urlsafe(32)
    return str(session[_KEPT_AS])


def may_change() -> bool:
    """Whether whoever asks may change anything."""
    account: Account | None = g.get("account")
    return account is not None and account.role == "operator"


def _admit() -> AnyResponse | None:
    g.account = _account(_accounts())
    if request.method not in LOOKS and not _brings_token():
        abort(403, "This request did not come from a page of this session; load the page again.")
    if request.endpoint in _OPEN:
        return None
    if g.account is None:
        return _ask_to_log_in()
    if request.method not in LOOKS and request.endpoint not in _OWN_SESSION and not may_change():
        abort(403, "This account may look, and change nothing.")
    return None


def _accounts() -> Mapping[str, Account]:
    accounts: Mapping[str, Account] = current_app.extensions["turnledger_accounts"]
    return accounts


def _account(accounts: Mapping[str, Account]) -> Account | None:
    if not accounts:
        _check_nearness()
        return WHOEVER_IS_HERE
    account = accounts.get(str(session.get("name")))
    if account is None or not hmac.compare_digest(account.mark, str(session.get("mark"))):
        return None
    return account


def _check_nearness() -> None:
    """Without a login, the name in the address tells a page of ours from one that a stranger's site leads here."""
    if not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
        abort(403, "Without accounts the dashboard answers to localhost and 127.0.0.1 alone.")
    if any(header in request.headers for header in _FORWARDED):
        abort(403, "Behind a proxy the dashboard needs accounts: set TURNLEDGER_DASHBOARD_OPERATORS.")


def _brings_token() -> bool:
    known = session.get(_KEPT_AS)
    brought = request.headers.get(HEADER) or request.form.get(FIELD, "")
    return bool(known) and hmac.compare_digest(str(known).encode(), brought.encode())


def _ask_to_log_in() -> AnyResponse:
    if request.method not in LOOKS or not request.accept_mimetypes.accept_html:
        abort(401, "Log in first.")
    return redirect(url_for("login"), 303)


def _hand_out_token(response: Response) -> Response:
    if g.get("account") is not None and request.blueprint == "rq_dashboard" and request.endpoint != _RQ_STATIC:
        options: dict[str, Any] = {"samesite": "Strict", "secure": _is_secure()}
        response.set_cookie(COOKIE, token(), **options)
    return response


def _is_secure() -> bool:
    return bool(current_app.config["SESSION_COOKIE_SECURE"])
