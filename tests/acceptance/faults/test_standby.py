"""A Postgres that takes no writes: a standby behind the URL, a failover, a standby that lags behind."""

import time
from collections.abc import Iterator

import pytest

from tests.engine import Engine, start_clock, start_worker
from tests.ledger_checks import wait_for_invariants, wait_until
from tests.processes import Processes
from tests.recovering import Recovery
from tests.standby import Standby
from turnledger.store import Message, NoReplyOwed, StoreUnavailable
from turnledger.workers.embedded import EmbeddedServers


@pytest.fixture
def primary(private_servers: EmbeddedServers) -> Iterator[Engine]:
    """A node at the primary."""
    node = Engine(private_servers.database_url, private_servers.redis_url)
    yield node
    node.close()


@pytest.fixture
def elsewhere(primary: Engine, standby: Standby) -> Iterator[Engine]:
    """A node of the same deployment whose URL leads to the standby."""
    node = Engine(standby.url, primary.redis_url)
    yield node
    node.close()


def test_turns_at_a_standby_are_flagged_and_kept_until_it_is_promoted(
    primary: Engine, elsewhere: Engine, standby: Standby, processes: Processes, recovery: Recovery
) -> None:
    """The history is there, and said to be perhaps not the newest; no worker dies, nothing is rejected (FL-1, QU-7)."""
    primary.play()
    primary.commit_all()
    standby.catch_up()
    environment = elsewhere.environment(TURNLEDGER_TRANSIENT_WAIT_S="1")
    worker, clock = start_worker(processes, environment), start_clock(processes, environment)
    turn = elsewhere.start(messages=[Message("m-1", "Hello")])
    assert isinstance(turn.history_error, StoreUnavailable)
    assert turn.history_error.is_read_only
    assert turn.earlier.count("### ") == 1
    elsewhere.complete(turn)
    worker.wait_for_line("commit_waits")
    time.sleep(1.5)  # longer than a job waits before it goes back to its queue
    assert elsewhere.state(turn.turn_id) == "completed"
    assert worker.running
    assert clock.running
    told = [*primary.told, *elsewhere.told]
    with recovery.of("the standby promoted"):
        standby.promote()
        wait_for_invariants(standby.url, elsewhere.redis_url, told=told)
    assert worker.running
    assert elsewhere.start().history_error is None


@pytest.mark.faults
def test_a_failover_is_followed_by_the_url_that_names_both_servers(
    primary: Engine, standby: Standby, processes: Processes, private_servers: EmbeddedServers, recovery: Recovery
) -> None:
    """Nodes, workers and clock find the new primary by themselves (FL-1, QU-7)."""
    engine = Engine(standby.both, primary.redis_url)
    environment = engine.environment(TURNLEDGER_TRANSIENT_WAIT_S="1")
    worker, clock = start_worker(processes, environment), start_clock(processes, environment)
    engine.play()
    wait_until(lambda: _assert_committed(engine))
    standby.catch_up()
    running = engine.start("jira:POC-2")
    private_servers.postgres.kill()
    flagged = engine.start("jira:POC-3")
    assert flagged.history_error is not None
    engine.complete(running)
    engine.complete(flagged)
    with recovery.of("the standby promoted after the primary was killed"):
        standby.promote()
        wait_for_invariants(standby.url, engine.redis_url, told=engine.told)
    assert worker.running
    assert clock.running
    assert engine.start().history_error is None
    engine.close()


def test_no_turn_is_blocked_by_what_a_standby_that_lags_does_not_have_yet(
    primary: Engine, elsewhere: Engine, standby: Standby
) -> None:
    """A resume and a sweep put their verdict off: the history may be there (CK-9, RC-1)."""
    standby.fall_behind()
    primary.play()
    primary.commit_all()
    turn = primary.start()
    turn.park(reason="waits")
    with pytest.raises(StoreUnavailable, match="standby"):
        elsewhere.turns.resume(turn.turn_id)
    with pytest.raises(StoreUnavailable, match="standby"):
        elsewhere.reconcile()
    assert not primary.redis.hget(primary.keys.record(turn.turn_id), "blocked")
    primary.turns.resume(turn.turn_id).complete(reply=NoReplyOwed())


def _assert_committed(engine: Engine) -> None:
    assert {engine.state(turn.turn_id) for turn in engine.told} == {"committed"}
