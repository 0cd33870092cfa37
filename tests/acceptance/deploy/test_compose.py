"""compose.yaml: what it says is a Compose file, and each of its services does its work (OP-5).

No container engine is needed: tests/deploying.py says what stands in for it.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from http.cookiejar import CookieJar
from importlib.resources import files
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import jsonschema
import psycopg
import pytest
import yaml
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError

from tests.deploying import COMPOSE, NEEDED, ROOT, Container, MissingVariable, Stack, compose, known_settings
from tests.ledger_checks import wait_until
from tests.stores import assistant, begin, user
from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.store import Replied, StoreSettings

OURS = ("worker", "rewriter", "upkeep", "clock", "dashboard")
ONCE = ("migrate", "logins")
A_MODEL = {"TURNLEDGER_REWRITE_BASE_URL": "http://127.0.0.1:1/v1", "TURNLEDGER_REWRITE_MODEL": "none"}
_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


def _engine(stack: Stack) -> Turns:
    return Turns.from_settings(
        store=StoreSettings(database_url=stack.url("DATABASE_URL")),
        checkpoint=CheckpointSettings(redis_url=stack.url("REDIS_URL")),
    )


@pytest.fixture
def node(stack: Stack) -> Iterator[Turns]:
    """An engine node with the URLs that the head of compose.yaml tells it to set."""
    node = _engine(stack)
    yield node
    node.close()


def _complete(node: Turns) -> str:
    turn = begin(node)
    turn.save(steps=[user("Please fix it"), assistant("Fixed.")])
    turn.complete(reply=Replied("Fixed."), decision="done")
    return turn.turn_id


def _outcome(stack: Stack, turn_id: str) -> str | None:
    """As the login of those who look may read it."""
    with psycopg.connect(stack.as_login("dashboard", "DATABASE_URL")) as watch:
        query = b"SELECT outcome FROM turnledger.ledger_turn WHERE turn_id = %s"
        row = watch.execute(query, [turn_id]).fetchone()
    return row[0] if row else None


def _healthy(container: Container) -> None:
    assert container.is_healthy(), container.process.output


def test_it_is_a_compose_file() -> None:
    """By the schema that the Compose Specification publishes, as check-jsonschema carries it (OP-5)."""
    schema = files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    validator = jsonschema.Draft202012Validator(json.loads(schema))
    document = yaml.safe_load(COMPOSE.read_text())
    assert [error.message for error in validator.iter_errors(document)] == []
    document["services"]["worker"]["stop_grace"] = "40s"
    assert list(validator.iter_errors(document)) != []


@pytest.mark.parametrize("missing", NEEDED)
def test_without_a_password_nothing_starts(missing: str) -> None:
    """And it says where one comes from (OP-5)."""
    with pytest.raises(MissingVariable, match=rf"{missing}: make .env first"):
        compose({name: word for name, word in NEEDED.items() if name != missing})


def test_every_service_is_confined_and_comes_back() -> None:
    """No service is root, has a capability, or writes to its image; each says whether it is well (OP-5)."""
    services = compose(NEEDED)
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] not in ("", "root", "0"), name
        assert service["restart"] == ("no" if name in ONCE else "unless-stopped"), name
        assert ("test" in service["healthcheck"]) is (name not in ONCE), name
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_no_setting_is_misspelt() -> None:
    """Each is one that our processes read (OP-5)."""
    given = {name for service in compose(NEEDED).values() for name in service["environment"]}
    assert {name for name in given if name.startswith("TURNLEDGER_")} <= known_settings()


def test_every_variable_is_made_or_explained(stack: Stack) -> None:
    """By `make-env`, or by the page; and `make-env` makes none that nothing reads (OP-5)."""
    asked = set(re.findall(r"\$\{(\w+)", COMPOSE.read_text()))
    page = (ROOT / "docs/how-to/deploy.md").read_text()
    assert set(stack.variables) <= asked
    assert {name for name in asked - set(stack.variables) if f"`{name}`" not in page} == set()


def test_services_start_in_their_order() -> None:
    """What works waits until the schema, the roles and the logins are there (OP-5)."""
    services = compose(NEEDED)
    assert services["logins"]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    for name in OURS:
        assert services[name]["depends_on"] == {
            "logins": {"condition": "service_completed_successfully"},
            "redis": {"condition": "service_healthy"},
        }


def test_the_number_of_workers_is_one_variable() -> None:
    """Two, unless somebody says otherwise; the workers that condense are there when they are asked for (OP-5)."""
    assert compose(NEEDED)["worker"]["deploy"]["replicas"] == "2"
    assert compose({**NEEDED, "TURNLEDGER_WORKERS": "8"})["worker"]["deploy"]["replicas"] == "8"
    assert compose(NEEDED)["rewriter"]["profiles"] == ["rewriting"]


def test_the_users_of_redis_are_those_of_this_version() -> None:
    """The file says what `turnledger acl` prints (OP-5)."""
    from turnledger.workers.redis_rights import COMMANDS, acl_line

    settings = CheckpointSettings(redis_url="redis://-")
    lines = [f"user turnledger-{role} {acl_line(role, settings=settings)}\n" for role in ("engine", "worker", "reader")]
    assert (ROOT / "deploy/compose/users.acl").read_text() == "".join(lines)
    assert len(lines) == len(COMMANDS)


def test_postgres_says_that_it_is_well(stack: Stack) -> None:
    """By its own health check (OP-5)."""
    assert subprocess.run(stack.health("postgres"), check=False, env=stack.programs).returncode == 0
    assert subprocess.run([*stack.health("postgres"), "--port", "1"], check=False, env=stack.programs).returncode != 0


def test_a_turn_of_an_engine_becomes_history(stack: Stack, node: Turns) -> None:
    """Each side with the login of its role (OP-5)."""
    turn_id = _complete(node)
    worker = stack.start("worker", TURNLEDGER_LOG_LEVEL="DEBUG")
    wait_until(lambda: _is(_outcome(stack, turn_id), "completed"))
    worker.process.signal(signal.SIGTERM)
    assert worker.process.wait(seconds=worker.grace_s) == 0, worker.process.output
    logged = [json.loads(line) for line in worker.process.output.splitlines()]
    assert turn_id in {line.get("turn_id") for line in logged}


def _is(found: object, wanted: object) -> None:
    assert found == wanted


def test_nobody_gets_in_without_a_login(stack: Stack) -> None:
    """And a worker's login does a worker's work, no more (OP-5)."""
    url = stack.as_login("worker", "REDIS_URL")
    with Redis.from_url(url) as worker:
        assert worker.ping()
        for command in (("FLUSHALL",), ("CONFIG", "SET", "appendonly", "no"), ("SHUTDOWN",), ("SET", "other", "1")):
            with pytest.raises(NoPermissionError):
                worker.execute_command(*command)
    with Redis.from_url(url.replace("turnledger-worker:", ":")) as nobody, pytest.raises(AuthenticationError):
        nobody.ping()
    wrong = stack.as_login("worker", "DATABASE_URL").replace("worker:", "worker:x")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(wrong)


def test_logins_may_be_made_again(stack: Stack) -> None:
    """With new passwords, at every `docker compose up`; no login has more than its role (OP-5)."""
    again = stack.start("logins", READER_PASSWORD="other")
    assert again.process.wait() == 0, again.process.output
    changed = stack.as_login("dashboard", "DATABASE_URL").replace(stack.variables["READER_PASSWORD"], "other")
    with psycopg.connect(changed) as watch:
        query = b"SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = ANY(%s)"
        assert watch.execute(query, [["node", "worker", "watch"]]).fetchall() == [(False,)] * 3
    assert stack.start("logins").process.wait() == 0


def test_each_process_is_well_until_it_is_stopped(stack: Stack) -> None:
    """By its health check; SIGTERM ends it with 0 within its grace, which is longer than ours (OP-5, OP-6)."""
    containers = {name: stack.start(name, **(A_MODEL if name == "rewriter" else {})) for name in OURS}
    for container in containers.values():
        wait_until(partial(_healthy, container), pause_s=0.5)  # a check is a process that starts, too
        container.process.signal(signal.SIGTERM)
    for name, container in containers.items():
        assert container.process.wait(seconds=container.grace_s) == 0, (name, container.process.output)
        assert container.grace_s > 30.0
        assert not container.is_healthy(), name


def _page(visitor: OpenerDirector, url: str, **fields: str) -> str:
    data = urlencode(fields).encode() if fields else None
    try:
        with visitor.open(url, data, timeout=20) as answer:
            return str(answer.read().decode())
    except (URLError, ConnectionError) as error:
        raise AssertionError(str(error)) from None


def test_the_page_asks_who_is_there_and_requeues(stack: Stack, node: Turns) -> None:
    """It looks with a reader's login in Postgres, and has a worker's in Redis, for its button (OP-5, OP-4)."""
    turn_id = _complete(node)
    with Redis.from_url(stack.as_login("worker", "REDIS_URL")) as worker:
        worker.lrem("rq:queue:commits", 0, f"turn-{turn_id}")
        assert worker.delete(f"rq:job:turn-{turn_id}") == 1
    dashboard = stack.start("dashboard")
    visitor, url = build_opener(HTTPCookieProcessor(CookieJar())), f"http://127.0.0.1:{stack.dashboard_port}"
    visitor.addheaders = [("Accept", "text/html")]
    wait_until(lambda: _page(visitor, url))
    login = _page(visitor, url)
    assert "Password" in login
    assert "Pending" not in login
    account = {"name": "operator", "password": stack.dashboard_password}
    page = _page(visitor, f"{url}/login", csrf_token=_token(login), **account)
    assert "Pending" in page
    queued = _page(visitor, f"{url}/turns/{turn_id}/requeue", csrf_token=_token(page))
    assert f"Turn {turn_id} was pending, and is queued" in queued
    with Redis.from_url(stack.as_login("worker", "REDIS_URL")) as worker:
        assert worker.exists(f"rq:job:turn-{turn_id}") == 1
    dashboard.process.kill()


def _token(page: str) -> str:
    found = _TOKEN.search(page)
    assert found is not None
    return found[1]
