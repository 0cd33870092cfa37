"""Settings: from the environment or given, each with a range, and refused by name."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import BaseSettings
from redis.connection import SSLConnection

from turnledger.checkpoint import CheckpointSettings, Turns
from turnledger.checkpoint.connection import connect
from turnledger.store import Database, InvalidInput, StoreSettings, read_settings
from turnledger.store._database_url import read_url
from turnledger.workers.settings import WorkerSettings

URLS: dict[type[BaseSettings], dict[str, str]] = {
    StoreSettings: {"database_url": "postgresql://localhost/x"},
    CheckpointSettings: {"redis_url": "redis://localhost"},
    WorkerSettings: {},
}
NUMBERS = [
    (kind, name) for kind in URLS for name, field in kind.model_fields.items() if field.annotation in (int, float)
]


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(StoreSettings, "TURNLEDGER_DATABASE_URL"), (CheckpointSettings, "TURNLEDGER_REDIS_URL")],
)
def test_a_missing_url_is_named_by_its_variable(kind: type[BaseSettings], variable: str) -> None:
    """The message says what to set (RT-1)."""
    with pytest.raises(InvalidInput, match=f"{variable}.*set it"):
        read_settings(kind)


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_a_number_is_read_from_its_variable_and_refused_out_of_range(
    kind: type[BaseSettings], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every numeric setting (RT-1)."""
    variable = f"TURNLEDGER_{name.upper()}"
    default = kind.model_fields[name].default
    other = default + 1 if isinstance(default, int) else default / 2
    monkeypatch.setenv(variable, str(other))
    assert getattr(read_settings(kind, **URLS[kind]), name) == other
    for wrong in ("-1", "many", ""):
        monkeypatch.setenv(variable, wrong)
        with pytest.raises(InvalidInput, match=f"the setting {variable} is wrong"):
            read_settings(kind, **URLS[kind])


@pytest.mark.parametrize(
    ("kind", "variable", "value", "message"),
    [
        (CheckpointSettings, "TURNLEDGER_LEASE_S", "15", "TURNLEDGER_RENEW_S is wrong: .*every 15 s .*lease of 15 s"),
        (CheckpointSettings, "TURNLEDGER_RENEW_S", "61", "TURNLEDGER_RENEW_S is wrong: .*every 61 s .*lease of 60 s"),
        (WorkerSettings, "TURNLEDGER_WORKER_TTL_S", "15", "TURNLEDGER_HEARTBEAT_S is wrong: .*dead after 15 s"),
        (WorkerSettings, "TURNLEDGER_HEARTBEAT_S", "60.5", "TURNLEDGER_HEARTBEAT_S is wrong: .*every 60.5 s"),
    ],
)
def test_what_lives_says_so_before_it_is_given_up(
    kind: type[BaseSettings], variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of the two settings was changed alone (RT-1, CK-11)."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInput, match=message):
        read_settings(kind, **URLS[kind])


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (StoreSettings, {"schema_name": "Public"}),
        (StoreSettings, {"schema_name": 'x"; DROP SCHEMA public'}),
        (StoreSettings, {"schema_name": "a" * 64}),
        (CheckpointSettings, {"prefix": "a b"}),
        (CheckpointSettings, {"prefix": ""}),
        (CheckpointSettings, {"commit_queue": "Commits:1"}),
    ],
)
def test_a_name_that_would_not_work_is_refused(kind: type[BaseSettings], given: dict[str, Any]) -> None:
    """Before anything connects (RT-1)."""
    with pytest.raises(InvalidInput, match=re.escape(next(iter(given)).upper())):
        read_settings(kind, **URLS[kind], **given)


def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that passes a setting means it (RT-1)."""
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", "postgresql://elsewhere/x")
    assert read_settings(StoreSettings, database_url="postgresql://here/x").database_url == "postgresql://here/x"


def test_rqs_prefix_comes_from_rqs_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that RQ and we always read the same one (CK-14)."""
    assert read_settings(CheckpointSettings, redis_url="redis://x").rq_prefix == "rq"
    monkeypatch.setenv("RQ_KEY_PREFIX", "{turnledger}:rq")
    assert read_settings(CheckpointSettings, redis_url="redis://x").rq_prefix == "{turnledger}:rq"
    assert read_settings(CheckpointSettings, redis_url="redis://x", rq_prefix="other").rq_prefix == "other"


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://localhost/x", "localhost:5432/x", "sqlite:///x.db"])
def test_a_database_url_that_cannot_be_used_is_refused_without_a_password_in_the_message(url: str) -> None:
    """Names the variable and the form (RT-1)."""
    with pytest.raises(InvalidInput, match="TURNLEDGER_DATABASE_URL"):
        Turns.from_settings(
            store=StoreSettings(database_url=url), checkpoint=CheckpointSettings(redis_url="redis://localhost")
        )


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u@one/x", {}),
        ("postgresql://u:a,b@one/x", {}),
        ("postgresql://one,two/x", {"host": "one,two", "port": "5432,5432"}),
        (
            "postgresql://u:a,b@one:1,[::1]:2,three/x?target_session_attrs=read-write",
            {"host": "one,::1,three", "port": "1,2,5432"},
        ),
    ],
)
def test_a_database_url_may_name_several_hosts(url: str, hosts: dict[str, str]) -> None:
    """As libpq writes them; a comma in a password is none between hosts (QU-7)."""
    read, found = read_url(url)
    assert found == hosts
    assert read.database == "x"


@pytest.mark.parametrize("url", ["postgresql://one,/x", "postgresql://one:port,two/x"])
def test_a_host_of_several_that_is_none_is_refused(url: str) -> None:
    """Before anything connects (RT-1)."""
    with pytest.raises(InvalidInput, match="TURNLEDGER_DATABASE_URL"):
        Database(StoreSettings(database_url=url))


def test_a_redis_url_may_name_sentinels() -> None:
    """User and password are those of Redis, the sentinels have their own (FL-8)."""
    url = "rediss+sentinel://me:mine%40@one:1,[::1]:2,three/service/3?sentinel_username=you&sentinel_password=yours"
    settings = CheckpointSettings(redis_url=url, redis_connect_timeout_s=1.5, redis_reply_timeout_s=7)
    client = connect(settings)
    pool: Any = client.connection_pool
    assert pool.service_name == "service"
    assert {pool.connection_kwargs[name] for name in ("username", "password", "db")} == {"me", "mine@", 3}
    asked = [sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels]
    assert [(each.connection_kwargs["host"], each.connection_kwargs["port"]) for each in asked] == [
        ("one", 1),
        ("::1", 2),
        ("three", 26_379),
    ]
    assert {each.connection_kwargs["username"] for each in asked} == {"you"}
    assert {each.connection_kwargs["socket_timeout"] for each in asked} == {1.5}
    assert pool.connection_kwargs["socket_timeout"] == 7
    assert all(
        issubclass(each, SSLConnection) for each in [pool.connection_class, *(a.connection_class for a in asked)]
    )


@pytest.mark.parametrize(
    "url", ["redis+sentinel://one/", "redis+sentinel:///service", "redis+sentinel://one:x/service"]
)
def test_sentinels_without_a_name_or_a_service_are_refused(url: str) -> None:
    """With the form to write (RT-1)."""
    with pytest.raises(InvalidInput, match=r"TURNLEDGER_REDIS_URL.*redis\+sentinel://"):
        connect(CheckpointSettings(redis_url=url))


def test_nothing_connects_before_the_first_call() -> None:
    """Servers that are not there are no error yet (RT-1)."""
    Turns.from_settings(
        store=StoreSettings(database_url="postgresql://127.0.0.1:1/x"),
        checkpoint=CheckpointSettings(redis_url="redis://127.0.0.1:1"),
    ).close()


def test_every_setting_has_a_description() -> None:
    """The settings reference is made of them (RT-1)."""
    for kind in URLS:
        assert [name for name, field in kind.model_fields.items() if not field.description] == []


def test_the_spool_is_in_the_home_folder_unless_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user without one is told which variable to set; nothing fails before that is needed (RT-1)."""
    monkeypatch.delenv("TURNLEDGER_SPOOL_FOLDER", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_settings(CheckpointSettings, **URLS[CheckpointSettings]).spool_folder == tmp_path / ".turnledger/spool"
    monkeypatch.setattr(Path, "expanduser", _no_home)
    with pytest.raises(InvalidInput, match=r"TURNLEDGER_SPOOL_FOLDER.*no home folder"):
        read_settings(CheckpointSettings, **URLS[CheckpointSettings])


def _no_home(_: Path) -> Path:
    raise RuntimeError("Could not determine home directory.")
