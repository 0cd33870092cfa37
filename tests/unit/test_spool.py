"""Several processes of one host share a spool folder: what one has replayed is no trouble to the others."""

from hashlib import sha256
from pathlib import Path

import pytest

from turnledger.checkpoint.spool import Spool
from turnledger.store import Database, LedgerName
from turnledger.store.commit import CompletedTurn
from turnledger.store.deployment import Home

WHEN = "2026-11-30T12:00:00.000Z"
HOME = Home("at-0123456789abcdef", "0c1b6d2e-8f7a-4b53-8a43-0e1d2c3b4a59")


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """With two turns, the older one first."""
    spool = Spool(tmp_path)
    for turn_id in ("t1", "t2"):
        spool.write(_turn(turn_id), built_on=[], home=HOME)
    return spool


def _turn(turn_id: str) -> CompletedTurn:
    return CompletedTurn(turn_id, LedgerName("lead", "jira:POC-7"), "", 1, WHEN, WHEN, f"e-{turn_id}", "{}", "done")


def test_a_turn_that_another_process_has_replayed_is_passed_over(spool: Spool) -> None:
    """Between the look into the folder and into the file (FL-4)."""
    turns = spool.turns(spool.files())
    assert next(turns).turn.turn_id == "t1"
    spool.remove(spool.files()[1])
    assert list(turns) == []


def test_a_file_that_is_gone_is_passed_over_in_the_order_of_age(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the list of names and their times (FL-4)."""
    both = spool.files()
    spool.remove(both[0])
    monkeypatch.setattr(Path, "glob", lambda *_: iter(both))
    assert spool.files() == both[1:]


def test_two_who_are_refused_set_one_file_aside(spool: Spool) -> None:
    """The second one finds it done (FL-4)."""
    path = spool.files()[0]
    assert spool.set_aside(path) == spool.set_aside(path)
    assert [each.name for each in path.parent.glob("*.refused")] == [f"{path.name}.refused"]


def test_a_holder_that_has_heard_of_its_deployment_replaces_its_own_file(tmp_path: Path) -> None:
    """And no other's: neither of another turn, nor of the same one at another place (FL-4)."""
    spool = Spool(tmp_path)
    unasked = Home(HOME.address)
    other = spool.write(_turn("t2"), built_on=[], home=unasked)
    elsewhere = spool.write(_turn("t1"), built_on=[], home=Home("at-fedcba9876543210"))
    spool.write(_turn("t1"), built_on=[], home=unasked)
    replaced = spool.write(_turn("t1"), built_on=[], home=HOME)
    assert set(spool.files()) == {other, elsewhere, replaced}
    assert spool.whose(unasked).own == (other,)


@pytest.mark.parametrize(
    ("url", "schema"),
    [
        ("postgresql://u:p@h/d", "another"),
        ("postgresql://u:p@h/e", "s"),
        ("postgresql://u:p@h:5433/d", "s"),
        ("postgresql://u:p@i/d", "s"),
        ("postgresql://u:p@h,i/d", "s"),
        ("postgresql:///d?service=x", "s"),
        ("postgresql:///d?host=/h", "s"),
    ],
)
def test_another_schema_database_or_server_is_another_address(url: str, schema: str) -> None:
    """Two deployments of which nothing else is known are not taken for one (FL-4)."""
    assert _address(url, schema) != _address("postgresql://u:p@h/d", "s")


def test_an_address_is_made_as_the_wire_contract_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever logs in there; what the URL leaves out is what libpq takes (FL-4)."""
    expected = "at-" + sha256(b"h\n5432\nd\ns").hexdigest()[:16]
    monkeypatch.setenv("PGHOST", "h")
    for url in ("postgresql://u:p@h:5432/d", "postgresql://v@h/d?sslmode=prefer", "postgresql:///d", "postgresql://d@"):
        assert _address(url, "s") == expected


def _address(url: str, schema: str) -> str:
    return Database.from_settings(database_url=url, schema_name=schema).home.address
