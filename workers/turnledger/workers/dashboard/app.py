"""The web application: our page, the login, the button that requeues, and rq-dashboard."""

import secrets
from datetime import timedelta
from typing import Any

from flask import Flask, current_app, flash, redirect, render_template, request, session, url_for
from redis import Redis
from redis.exceptions import RedisError
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response

from turnledger.checkpoint import TurnNotFound
from turnledger.checkpoint.records import Records
from turnledger.store import Database, InvalidInput, TurnledgerError
from turnledger.store.identity import check_turn_id
from turnledger.workers.cli.output import visible
from turnledger.workers.cli.requeue import requeue_turn
from turnledger.workers.dashboard.accounts import Door, read_accounts
from turnledger.workers.dashboard.guard import enter, guard
from turnledger.workers.dashboard.headers import add_headers
from turnledger.workers.dashboard.plots import HEIGHT, LEFT, WIDTH, age, commit_waits, commits_a_second
from turnledger.workers.dashboard.reading import Reader
from turnledger.workers.dashboard.rq_pages import MendedFlask, mount
from turnledger.workers.dashboard.settings import DashboardSettings
from turnledger.workers.dashboard.survey import Surveyor

_MOST_FORM_BYTES = 64 * 1024  # a login, or a token
_DRAWING = {"width": WIDTH, "height": HEIGHT, "left": LEFT}


def create_app(
    settings: DashboardSettings, *, records: Records, database: Database, rq: Redis, surveyor: Surveyor
) -> Flask:
    """The application over these servers; `rq` is a client as RQ needs it. Nothing is asked before the first request.

    Raises:
        InvalidInput: an account cannot be read, or there is none where there has to be one.
    """
    accounts = read_accounts(settings)
    app = MendedFlask(__name__)
    app.config.update(_configuration(settings))
    app.extensions["turnledger"] = {
        "settings": settings,
        "records": records,
        "surveyor": surveyor,
        "reader": Reader(records=records, database=database, rq=rq, surveyor=surveyor),
        "door": Door(accounts, most_failures=settings.dashboard_failed_logins),
        "has_accounts": bool(accounts),
    }
    guard(app, accounts)
    add_headers(app)
    mount(app, rq)
    _add_pages(app)
    app.jinja_env.filters["age"] = age
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    return app


def _configuration(settings: DashboardSettings) -> dict[str, Any]:
    return {
        "SECRET_KEY": settings.dashboard_secret or secrets.token_hex(32),
        "SESSION_COOKIE_NAME": "turnledger_session",
        "SESSION_COOKIE_HTTPONLY": True,
        "SESSION_COOKIE_SAMESITE": "Lax",
        "SESSION_COOKIE_SECURE": settings.dashboard_https == "on",
        "PERMANENT_SESSION_LIFETIME": timedelta(seconds=settings.dashboard_session_s),
        "MAX_CONTENT_LENGTH": _MOST_FORM_BYTES,
    }


def _add_pages(app: Flask) -> None:
    app.add_url_rule("/", "page", _page)
    app.add_url_rule("/figures", "figures", _figures)
    app.add_url_rule("/turns/<turn_id>/requeue", "requeue", _requeue, methods=["POST"])
    app.add_url_rule("/login", "login", _login, methods=["GET", "POST"])
    app.add_url_rule("/logout", "logout", _logout, methods=["POST"])
    app.register_error_handler(HTTPException, _refused)
    app.register_error_handler(TurnledgerError, _in_trouble)
    app.register_error_handler(RedisError, _in_trouble)


def _ours(name: str) -> Any:
    return current_app.extensions["turnledger"][name]


def _page() -> str:
    settings: DashboardSettings = _ours("settings")
    return render_template(
        "turnledger/page.html", **_shown(), refresh_s=settings.dashboard_refresh_s, has_accounts=_ours("has_accounts")
    )


def _figures() -> str:
    """What an open page asks for again and again, to put it in place of what it shows."""
    return render_template("turnledger/figures.html", **_shown())


def _shown() -> dict[str, Any]:
    look = _ours("reader").look()
    plots = [commits_a_second(look.hour), commit_waits(look.hour)]
    return {"look": look, "status": look.status, "plots": plots, "drawing": _DRAWING}


def _requeue(turn_id: str) -> Response:
    try:
        requeued = requeue_turn(_ours("records"), check_turn_id(turn_id))
    except (InvalidInput, TurnNotFound) as error:
        flash(visible(str(error)), "bad")
    else:
        was = "rejected" if requeued.reinstated else "pending"
        flash(f"Turn {visible(turn_id)} was {was}, and is queued for its commit.", "good")
    _ours("surveyor").look_soon()
    return redirect(url_for("page"), 303)


def _login() -> str | tuple[str, int] | Response:
    door: Door = _ours("door")
    if not _ours("has_accounts"):
        return redirect(url_for("page"), 303)
    if request.method != "POST":
        return render_template("turnledger/login.html", refusal="")
    if door.is_shut():
        return render_template("turnledger/login.html", refusal="Too many failed logins; wait a minute."), 429
    account = door.let_in(request.form.get("name", ""), password=request.form.get("password", ""))
    if account is None:
        return render_template("turnledger/login.html", refusal="This name and password do not go together."), 403
    enter(account)
    return redirect(url_for("page"), 303)


def _logout() -> Response:
    session.clear()
    return redirect(url_for("login"), 303)


def _refused(error: HTTPException) -> tuple[str, int] | HTTPException:
    if error.code is None or error.code < 400:
        return error
    return render_template("turnledger/trouble.html", title=error.name, reason=error.description), error.code


def _in_trouble(error: Exception) -> tuple[str, int]:
    reason = visible(str(error))
    return render_template("turnledger/trouble.html", title="A server is in trouble", reason=reason), 503
