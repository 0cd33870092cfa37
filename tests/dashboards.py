"""The dashboard of a test: its application over the test's servers, and a browser's part of the talk."""

import re
from typing import Any
from urllib.parse import urlsplit

from flask import Flask
from flask.testing import FlaskClient
from werkzeug.security import generate_password_hash
from werkzeug.test import TestResponse

from tests.stores import Stores
from turnledger.workers.dashboard.app import create_app
from turnledger.workers.dashboard.settings import DashboardSettings
from turnledger.workers.dashboard.survey import Surveyor
from turnledger.workers.worker import rq_connection

PASSWORD = "correct horse"
HASH = generate_password_hash(PASSWORD, method="scrypt:256:8:1")  # quick to make, and to check
ACCOUNTS: dict[str, Any] = {"dashboard_operators": f"anna={HASH}", "dashboard_viewers": f"victor={HASH}"}
_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


class Dashboard:
    """One application with its surveyor, which counts when the test says so."""

    def __init__(self, stores: Stores, **settings: Any) -> None:
        records = stores.records
        self.surveyor = Surveyor(records, pause_s=60.0)
        self.rq = rq_connection(records.settings)
        self.app: Flask = create_app(
            DashboardSettings(**settings),
            records=records,
            database=stores.database,
            rq=self.rq,
            surveyor=self.surveyor,
        )

    def close(self) -> None:
        self.rq.close()

    def visitor(self, name: str | None = None) -> "Visitor":
        """Somebody new, logged in under this name where one is given."""
        visitor = Visitor(self.app.test_client())
        if name is not None:
            assert visitor.log_in(name).status_code == 303
        return visitor


class Visitor:
    """A browser that keeps cookies and runs no scripts."""

    def __init__(self, client: FlaskClient) -> None:
        self.client = client

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.client.get(path, buffered=True, **options)

    def page(self, path: str = "/") -> str:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def token(self, path: str = "/") -> str:
        """What a form of this page brings along."""
        found = _TOKEN.search(self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, *, token: str | None = None, **fields: str) -> TestResponse:
        return self.client.post(path, data={**fields, **({} if token is None else {"csrf_token": token})})

    def log_in(self, name: str, *, password: str = PASSWORD) -> TestResponse:
        return self.post("/login", token=self.token("/login"), name=name, password=password)

    def rq_token(self) -> str:
        """What rq-dashboard's own script sends back."""
        assert self.get("/rq/").status_code == 200
        cookie = self.client.get_cookie("_csrf_token")
        assert cookie is not None
        return str(cookie.value)


def path_of(answer: TestResponse) -> str:
    """Where a redirection leads."""
    return urlsplit(answer.headers["Location"]).path
