"""The thread that keeps the leases outlives whatever a round meets, and is quiet where it holds nothing."""

import threading
from collections.abc import Iterator

import fakeredis
import pytest
from structlog.testing import capture_logs

from turnledger.checkpoint import CheckpointSettings
from turnledger.checkpoint.leases import LeaseKeeper
from turnledger.checkpoint.records import Claim, Records
from turnledger.store import LedgerName

PATIENCE_S = 30.0


class _Turn:
    """A running turn of this process, whose lease was lost."""

    turn_id, ledger, claim = "t1", LedgerName("lead", "jira:POC-7"), Claim("t1", "nobody", 0)

    def __init__(self) -> None:
        self.told = threading.Event()

    def lease_renewed(self, asked_at: float) -> None:
        raise AssertionError(f"there is no record that could be renewed at {asked_at}")

    def lease_lost(self) -> None:
        self.told.set()

    def submit_again(self) -> None:
        raise AssertionError("it was never completed")


@pytest.fixture
def server() -> fakeredis.FakeServer:
    return fakeredis.FakeServer()


@pytest.fixture
def keeper(server: fakeredis.FakeServer) -> Iterator[LeaseKeeper]:
    """One that does a round every few milliseconds."""
    redis = fakeredis.FakeRedis(server=server, decode_responses=True)
    settings = CheckpointSettings(redis_url="redis://nowhere:1/0", renew_s=0.01, lease_s=1)
    keeper = LeaseKeeper(Records(redis, settings))
    yield keeper
    keeper.close()


def test_a_round_that_fails_as_nobody_expected_is_told_of_and_the_next_one_comes(
    keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every lease of the process would lapse, and nobody would know why (CK-11)."""
    turn, failed, whole_round = _Turn(), threading.Event(), keeper.round

    def fails_once() -> None:
        if not failed.is_set():
            failed.set()
            raise LookupError("a text that may quote content")
        whole_round()

    monkeypatch.setattr(keeper, "round", fails_once)
    with capture_logs() as lines:
        keeper.keep(turn)
        assert turn.told.wait(PATIENCE_S)
    assert {"event": "lease_round_failed", "turn_ids": ["t1"], "error": "LookupError", "log_level": "error"} in lines


def test_a_turn_that_is_kept_after_the_end_is_kept_all_the_same(keeper: LeaseKeeper) -> None:
    """What was closed connects again with the next call, and so does its thread (CK-11)."""
    keeper.keep(_Turn())
    keeper.close()
    turn = _Turn()
    keeper.keep(turn)
    assert turn.told.wait(PATIENCE_S)


def test_without_redis_a_process_that_holds_turns_says_which_and_an_idle_one_nothing(
    keeper: LeaseKeeper, server: fakeredis.FakeServer
) -> None:
    """OP-7"""
    server.connected = False
    with capture_logs() as lines:
        keeper.round()
        assert lines == []
        keeper.confirm(turn := _Turn())
        keeper.round()
    assert [(line["event"], line["turn_ids"]) for line in lines] == [("leases_not_renewed", [turn.turn_id])]
