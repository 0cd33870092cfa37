"""Several processes of one host share a spool folder: what one has replayed is no trouble to the others."""

from pathlib import Path

import pytest

from turnledger.checkpoint.spool import Spool
from turnledger.store import LedgerName
from turnledger.store.commit import CompletedTurn

WHEN = "2026-11-30T12:00:00.000Z"


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """With two turns, the older one first."""
    spool = Spool(tmp_path)
    for turn_id in ("t1", "t2"):
        turn = CompletedTurn(turn_id, LedgerName("lead", "jira:POC-7"), "", 1, WHEN, WHEN, f"e-{turn_id}", "{}", "done")
        spool.write(turn, built_on=[])
    return spool


def test_a_turn_that_another_process_has_replayed_is_passed_over(spool: Spool) -> None:
    """Between the look into the folder and into the file (FL-4)."""
    turns = spool.turns()
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
