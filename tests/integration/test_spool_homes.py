"""Deployments that share a spool folder, by default or by mistake: each turn ends up in its own, and in no other."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.commands import CommandLine
from tests.proxy import Proxy
from tests.stores import Stores, assistant, begin
from turnledger.checkpoint import Turns
from turnledger.store import CorruptData, Database, Replied, StoreMisconfigured, migrate

NO_REDIS: dict[str, Any] = {"redis_url": "redis://127.0.0.1:1/0", "redis_retries": 0}


@dataclass
class Deployment:
    """One Postgres behind a proxy, no Redis, and the folder that another deployment spools into as well."""

    stores: Stores
    proxy: Proxy
    folder: Path

    def node(self) -> Turns:
        """A process that has not asked anything yet."""
        return self.stores.node(store={"database_url": self.proxy.url}, spool_folder=self.folder, **NO_REDIS)

    def spool(self, word: str, *, turn_id: str = "t-1", is_known: bool = True) -> Path:
        """A turn on the disk, whose process heard from Postgres before it was lost, or never did."""
        if not is_known:
            self.proxy.cut()
        turn = begin(self.node(), turn_id=turn_id, work_key=f"of {turn_id}")
        if is_known:
            self.proxy.cut()
        turn.complete(reply=Replied(word), steps=[assistant(word)])
        self.proxy.restore()
        assert turn.spooled is not None
        return turn.spooled

    def replies(self) -> list[str]:
        return [entry["reply"]["text"] for entry in self.stores.entries()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where both spool."""
    return tmp_path / "spool"


@pytest.fixture
def deployments(
    database_url: str, empty_database_url: str, redis_url: str, folder: Path
) -> Iterator[tuple[Deployment, Deployment]]:
    with closing(Database.from_settings(database_url=empty_database_url)) as fresh:
        migrate(fresh)
    with ExitStack() as stack:
        made = []
        for url in (database_url, empty_database_url):
            stores = stack.enter_context(closing(Stores(database_url=url, redis_url=redis_url)))
            made.append(Deployment(stores, stack.enter_context(Proxy(url)), folder))
        one, other = made
        yield one, other


@pytest.mark.parametrize("is_known", [True, False], ids=["asked before", "never asked"])
def test_turns_of_two_deployments_in_one_folder_end_up_each_in_its_own(
    deployments: tuple[Deployment, Deployment], folder: Path, *, is_known: bool
) -> None:
    """Of one id and one work key, although nobody told their nodes which deployment it was (FL-4)."""
    one, other = deployments
    files = [each.spool(word, is_known=is_known) for each, word in ((one, "One"), (other, "Other"))]
    kept = files[1].read_bytes()
    assert sorted(folder.iterdir()) == sorted(files)
    begin(one.node())
    assert (one.replies(), other.replies()) == (["One"], [])
    assert (list(folder.iterdir()), files[1].read_bytes()) == ([files[1]], kept)
    begin(other.node())
    assert (one.replies(), other.replies()) == (["One"], ["Other"])
    assert list(folder.iterdir()) == []


def test_a_process_that_could_not_ask_before_asks_when_it_spools(deployments: tuple[Deployment, Deployment]) -> None:
    """Postgres is back by then; the turn may not go there, since another node may hold it by now (FL-4)."""
    one, _ = deployments
    one.proxy.cut()
    turn = begin(one.node(), turn_id="t-1")
    one.proxy.restore()
    turn._session._owned_until = 0.0
    turn.complete(reply=Replied("One"))
    assert turn.spooled == one.folder / f"t-1.1.{one.stores.deployment_id}.turn.json"


def test_a_file_of_another_deployment_is_told_of_once_a_process(deployments: tuple[Deployment, Deployment]) -> None:
    """By its name; and once it is known to be foreign, no start asks Postgres for it again (FL-4)."""
    one, other = deployments
    file = other.spool("Other")
    node = one.node()
    with capture_logs() as logs:
        begin(node)
        node._database.ask_home = None  # type: ignore[assignment,method-assign]  # a call of it would fail
        begin(node)
    (told,) = [line for line in logs if "spool" in line["event"]]
    assert told == {"event": "spool_of_another_deployment", "log_level": "warning", "files": 1, "first": str(file)}


def test_recover_says_how_many_turns_of_others_it_left(
    deployments: tuple[Deployment, Deployment], cli: CommandLine, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Which is no failure: their own `recover` is there for them (FL-4)."""
    one, other = deployments
    ours, theirs = one.spool("One"), other.spool("Other")
    monkeypatch.setenv("TURNLEDGER_SPOOL_FOLDER", str(folder))
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", one.stores.database_url)
    ended = cli.run("recover", "--json")
    told = {"spool": str(folder), "deployment": one.stores.deployment_id, "spooled": 1, "others": 1, "drained": 0}
    assert (ended.code, ended.json) == (0, told)
    assert (ours.exists(), theirs.exists()) == (False, True)
    ended = cli.run("recover")
    assert ended.output.splitlines()[1] == (
        f"1 turn of other deployments left there, the oldest in {theirs}; this one is {one.stores.deployment_id}."
    )
    theirs.rename(theirs.with_name(f"t-2.1.{one.stores.deployment_id}.turn.json"))  # an operator gives it to this one
    assert cli.run("recover", "--json").json["spooled"] == 1


def test_a_file_that_does_not_say_whose_it_is_is_nobodys_and_stays(
    deployments: tuple[Deployment, Deployment], folder: Path
) -> None:
    """What is ours is committed all the same, and then the oldest of them is named (FL-4)."""
    one, _ = deployments
    file, name = one.spool("Ours"), one.stores.deployment_id
    damaged = ["", f".{name[:-1]}", f".{name.replace('-', '_')}", f".{name.upper()}", f".{name}.{name}", ".at-home"]
    paths = {file.with_name(f"t-1.1{each}.turn.json") for each in damaged}
    for path in paths:
        path.write_bytes(file.read_bytes())
    with pytest.raises(CorruptData, match="does not say whose it is") as refused:
        one.node().recover()
    assert Path(str(refused.value.where)) in paths
    assert one.replies() == ["Ours"]
    assert set(folder.iterdir()) == paths


def test_a_process_whose_database_was_replaced_commits_nothing_into_the_new_one(
    deployments: tuple[Deployment, Deployment],
) -> None:
    """What it heard at its first contact holds no longer (FL-4)."""
    one, _ = deployments
    file, node = one.spool("One"), one.node()
    node._check_revision()
    one.stores.execute("UPDATE deployment SET deployment_id = DEFAULT")
    assert node.recover() == 0
    assert (one.replies(), file.exists()) == ([], True)


def test_a_schema_that_lost_its_id_takes_nothing_from_a_disk(deployments: tuple[Deployment, Deployment]) -> None:
    """And says what to do; turns go on, and their files name the place (FL-4)."""
    one, _ = deployments
    file = one.spool("One")
    ((deployment_id,),) = one.stores.rows("DELETE FROM deployment RETURNING deployment_id")
    with pytest.raises(StoreMisconfigured, match="INSERT INTO deployment DEFAULT VALUES"):
        one.node().recover()
    begin(one.node())
    assert (one.replies(), file.exists()) == ([], True)
    one.spool("Two", turn_id="t-2")
    one.stores.execute("INSERT INTO deployment (deployment_id) VALUES (%s)", deployment_id)
    assert one.node().recover() == 2
    assert one.replies() == ["One", "Two"]
