"""Both servers behind TLS, with a certificate of an authority that is not the system's."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import Processes
from tests.stores import Stores, begin, user
from tests.tls import NAME, Authority, TlsFront, make_authority
from turnledger.checkpoint import CheckpointUnavailable
from turnledger.store import Replied, StoreUnavailable
from turnledger.workers.cli.figures import read_status
from turnledger.workers.cli.servers import DATABASE_URL, REDIS_URL


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """The one that signed the servers' certificate, and another one."""
    if shutil.which("openssl") is None and not os.environ.get("CI"):
        pytest.skip("the command openssl is not there")
    folder = tmp_path_factory.mktemp("authorities")
    return make_authority(folder / "ours"), make_authority(folder / "other")


@dataclass
class Fronts:
    """TLS before both servers, and the URLs that lead through it."""

    redis_port: int
    postgres_port: int
    database: str

    def environment(self, *, root: Path, host: str = NAME) -> dict[str, str]:
        """Both certificates are verified by this authority, and both names."""
        return {
            DATABASE_URL: f"postgresql://turnledger@{host}:{self.postgres_port}/{self.database}"
            f"?sslmode=verify-full&sslrootcert={root}",
            REDIS_URL: f"rediss://{host}:{self.redis_port}/0?ssl_ca_certs={root}&ssl_check_hostname=true",
            "TURNLEDGER_REDIS_RETRIES": "0",
        }


@pytest.fixture
def fronts(stores: Stores, authorities: tuple[Authority, Authority]) -> Iterator[Fronts]:
    with (
        TlsFront(stores.redis_url, authority=authorities[0], protocol="redis") as redis,
        TlsFront(stores.database_url, authority=authorities[0], protocol="postgres") as postgres,
    ):
        yield Fronts(redis.port, postgres.port, stores.database_url.rpartition("/")[2])


def test_turns_are_started_and_committed_over_tls(
    stores: Stores, fronts: Fronts, authorities: tuple[Authority, Authority], processes: Processes
) -> None:
    """By an engine node, by our client of Redis and RQ's."""
    environment = fronts.environment(root=authorities[0].root)
    node = stores.node(store={"database_url": environment[DATABASE_URL]}, redis_url=environment[REDIS_URL])
    turn = begin(node, "First")
    turn.complete(reply=Replied("Fixed"), steps=[user("First")])
    assert (turn.history_error, turn.checkpoint_error, turn.spooled) == (None, None, None)
    worker = processes.command("worker", "--burst", environment=environment)
    assert worker.wait() == 0, worker.output
    assert stores.run(turn.turn_id) == "completed"


@pytest.mark.parametrize("fault", ["another authority", "another name", "no TLS at all"])
def test_what_cannot_be_trusted_is_not_talked_to(
    fronts: Fronts, authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Neither Redis nor Postgres; the reason is said, and it is worth another try: certificates are renewed."""
    good = fronts.environment(root=authorities[0].root)
    bad = {
        "another authority": fronts.environment(root=authorities[1].root),
        "another name": fronts.environment(root=authorities[0].root, host="127.0.0.1"),
        "no TLS at all": {
            DATABASE_URL: good[DATABASE_URL].partition("?")[0] + "?sslmode=disable",
            REDIS_URL: good[REDIS_URL].partition("?")[0].replace("rediss", "redis"),
        },
    }[fault]
    for name in (DATABASE_URL, REDIS_URL):
        for each, url in {**good, name: bad[name]}.items():
            monkeypatch.setenv(each, url)
        with pytest.raises((StoreUnavailable, CheckpointUnavailable)) as refused:
            read_status()
        words = str(refused.value).lower()
        assert fault == "no TLS at all" or any(word in words for word in ("certificate", "host name", "hostname"))
