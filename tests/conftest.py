"""Servers and processes for every kind of test."""

import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import fakeredis
import psycopg
import pytest
import redis
import structlog
from hypothesis import HealthCheck, settings

from tests.endpoint import Endpoint, served
from tests.engine import Engine
from tests.processes import Processes
from tests.recovering import Recovery
from tests.stores import Stores
from turnledger.checkpoint import Turns
from turnledger.store.database import Database
from turnledger.store.migrate import migrate
from turnledger.workers.embedded import Durability, EmbeddedMissing, EmbeddedServers, embedded_servers
from turnledger.workers.reconciler import Reconciler
from turnledger.workers.settings import WorkerSettings

_TEMPLATE = "migrated_template"
_FOLDER = Path(__file__).parent
_numbers = itertools.count(1)

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is.
settings.register_profile("turnledger", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turnledger")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test is what its folder is: unit, integration, acceptance or docs."""
    for item in items:
        parts = item.path.relative_to(_FOLDER).parts
        if len(parts) > 1:
            item.add_marker(parts[0])


@pytest.fixture(autouse=True)
def _own_settings_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the developer has set for turnledger must not reach the tests, nor what a test spools the developer."""
    for name in [name for name in os.environ if name.startswith("TURNLEDGER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TURNLEDGER_SPOOL_FOLDER", str(tmp_path / "spool"))


@pytest.fixture(autouse=True)
def _logs_not_set_up() -> None:
    """As an engine begins; what a test before has set up does not reach this one."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def servers() -> Iterator[EmbeddedServers]:
    """One Postgres and one Redis for the whole run; a test that stops them takes ``private_servers``."""
    with ExitStack() as stack:
        yield _start_servers(stack)


@pytest.fixture
def private_servers() -> Iterator[EmbeddedServers]:
    """Servers of the test's own, migrated, to be stopped and killed."""
    with ExitStack() as stack:
        own = _start_servers(stack)
        _migrate(own.database_url)
        yield own


@pytest.fixture(scope="session")
def migrated_template(servers: EmbeddedServers) -> str:
    """The name of a database in which all migrations have run and to which nobody is connected."""
    _administer(servers, f"CREATE DATABASE {_TEMPLATE}")
    _migrate(servers.postgres.url_of(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture
def database_url(servers: EmbeddedServers, migrated_template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    name = f"test_{next(_numbers)}"
    _administer(servers, f"CREATE DATABASE {name} TEMPLATE {migrated_template}")
    yield servers.postgres.url_of(name)
    _administer(servers, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_database_url(servers: EmbeddedServers) -> Iterator[str]:
    """A database of the test's own in which no migration has run."""
    name = f"empty_{next(_numbers)}"
    _administer(servers, f"CREATE DATABASE {name}")
    yield servers.postgres.url_of(name)
    _administer(servers, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis_url(servers: EmbeddedServers) -> str:
    """A real Redis with nothing in it."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return servers.redis_url


@pytest.fixture
def stores(database_url: str, redis_url: str) -> Iterator[Stores]:
    """Both servers, with nothing in them."""
    with closing(Stores(database_url=database_url, redis_url=redis_url)) as both:
        yield both


@pytest.fixture
def node(stores: Stores) -> Turns:
    """One engine node."""
    return stores.node()


@pytest.fixture
def reconciler(stores: Stores) -> Iterator[Reconciler]:
    """With the settings of a deployment."""
    settings = WorkerSettings()
    with closing(Reconciler(records=stores.records, database=stores.database, settings=settings)) as made:
        yield made


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """A model behind a real HTTP server."""
    with served() as found:
        yield found


@pytest.fixture
def engine_settings() -> dict[str, Any]:
    """What the Redis side of `engine` is told beside its URL; a module may have another one."""
    return {}


@pytest.fixture
def engine(database_url: str, redis_url: str, engine_settings: dict[str, Any]) -> Iterator[Engine]:
    """An engine node with an empty database and an empty Redis."""
    with closing(Engine(database_url, redis_url, **engine_settings)) as node:
        yield node


@pytest.fixture
def fake_redis() -> Iterator[fakeredis.FakeRedis]:
    """A Redis in this process, scripts included, with nothing in it."""
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield client


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts processes, and ends all of them with the test."""
    with Processes() as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: Postgres of root could not enter that."""
    made = Path(tempfile.mkdtemp(prefix="turnledger-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)  # a test that failed may have left servers in it


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says something on the terminal although the test passes: what was measured, or could not be tested as meant."""

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}\n")

    return say


@pytest.fixture
def recovery(request: pytest.FixtureRequest) -> Recovery:
    """Times what the test recovers from."""
    return Recovery(request.node.name)


def _start_servers(stack: ExitStack) -> EmbeddedServers:
    try:
        return stack.enter_context(embedded_servers(durability=Durability.SCRATCH))
    except EmbeddedMissing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _migrate(url: str) -> None:
    database = Database.from_settings(database_url=url)
    try:
        migrate(database)
    finally:
        database.close()


def _administer(servers: EmbeddedServers, command: str) -> None:
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        connection.execute(command.encode())
