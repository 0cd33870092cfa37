"""A Redis that is full, read-only or busy, and connections to it that are cut in the middle of a call."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
from redis import ReadOnlyError, ResponseError
from redis import TimeoutError as RedisTimeoutError

from tests.ledger_checks import wait_for
from tests.processes import PATIENCE_S
from tests.proxy import DropReply, DropRequest, Proxy
from tests.stores import Stores, assistant, begin, contents, user
from turnledger.checkpoint import CheckpointSettings, CheckpointUnavailable, Completion, Turn, Turns
from turnledger.checkpoint.connection import connect, translated
from turnledger.store import Replied

Trouble = Callable[[Stores], AbstractContextManager[None]]
IMPATIENT: dict[str, Any] = {"redis_connect_timeout_s": 2, "redis_reply_timeout_s": 2, "redis_retries": 2}
GIVEN_UP_S = 15.0  # less than six silences, were each connection and each call repeated


def is_unsaved(turn: Turn) -> bool:
    assert turn.checkpoint_error is None or turn.checkpoint_error.retry
    return isinstance(turn.checkpoint_error, CheckpointUnavailable)


@contextmanager
def full(stores: Stores) -> Iterator[None]:
    stores.redis.config_set("maxmemory", "1")
    try:
        yield
    finally:
        stores.redis.config_set("maxmemory", "0")


@contextmanager
def read_only(stores: Stores) -> Iterator[None]:
    stores.redis.slaveof("127.0.0.1", 1)
    try:
        yield
    finally:
        stores.redis.slaveof()


@contextmanager
def busy(stores: Stores) -> Iterator[None]:
    stores.redis.config_set("lua-time-limit", "10")
    endless = threading.Thread(target=_run_for_ever, args=[stores])
    endless.start()
    wait_for(lambda: _is_busy(stores))
    try:
        yield
    finally:
        stores.redis.script_kill()
        endless.join()
        stores.redis.config_set("lua-time-limit", "5000")


def _is_busy(stores: Stores) -> bool:
    try:
        stores.redis.get("anything")
    except ResponseError as error:
        return "busy running a script" in str(error)
    return False


def _run_for_ever(stores: Stores) -> None:
    with suppress(ResponseError):
        stores.redis.eval("while true do end", 0)


@pytest.mark.parametrize("trouble", [full, read_only, busy])
def test_trouble_that_passes_loses_nothing(stores: Stores, trouble: Trouble) -> None:
    """The turn goes on unsaved, a start too, and the next save brings what is missing (FL-2, QU-7)."""
    node = stores.node(redis_reply_timeout_s=1)
    turn = begin(node)
    turn.save(steps=[user("one")])
    with trouble(stores):
        turn.save(steps=[user("two")])
        assert is_unsaved(turn)
        with pytest.raises(CheckpointUnavailable):
            turn.park(reason="waiting")
        late = begin(node, "Another")
        assert is_unsaved(late)
        late.save(steps=[user("late")])
        assert is_unsaved(late)
    for unsaved, text in ((turn, "three"), (late, "later")):
        unsaved.save(steps=[user(text)])
        assert not is_unsaved(unsaved)
    assert [step.value["content"] for step in node.read(turn.turn_id).steps] == ["one", "two", "three"]
    assert [step.value["content"] for step in node.read(late.turn_id).steps] == ["late", "later"]
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    assert stores.state(turn.turn_id) == "committed"
    assert len(stores.entries()) == 1


@pytest.mark.parametrize("write", ["a command", "a script"])
def test_a_connection_to_a_server_that_became_a_replica_is_closed(stores: Stores, write: str) -> None:
    """The next one may lead to the master, by name, by proxy, or by its sentinels (FL-8)."""
    node = stores.node(redis_retries=0)
    turn, client = begin(node), node._records.redis
    before = client.client_id()
    with read_only(stores):
        if write == "a command":
            with pytest.raises(ReadOnlyError):
                client.set("anything", "x")
        else:
            turn.save(steps=[user("one")])
            assert is_unsaved(turn)
        assert client.client_id() != before


@pytest.mark.parametrize("trouble", [full, read_only, busy])
def test_a_completion_that_redis_cannot_take_is_committed_directly(stores: Stores, trouble: Trouble) -> None:
    """Whole, once, and after the pending turn it was built on (FL-3, QU-3)."""
    node = stores.node(redis_reply_timeout_s=1)
    first = begin(node, "First")
    first.complete(reply=Replied("One"), steps=[assistant("One")])
    turn = begin(node, "Second")
    turn.save(steps=[user("two")])
    with trouble(stores):
        answer = turn.complete(reply=Replied("Two"), steps=[assistant("Two")])
        spooled = turn.spooled
    assert answer == Completion(turn.turn_id, turn.entry_id)
    node.recover()
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()] == [first.turn_id, turn.turn_id]
    assert [step.value["content"] for step in begin(node).history()] == ["One", "two", "Two"]
    assert (spooled is None) == (trouble is not busy)  # a Redis that cannot be read hides the turn before it


@pytest.fixture
def proxy(stores: Stores) -> Iterator[Proxy]:
    with Proxy(stores.redis_url) as standing:
        yield standing


@pytest.fixture
def far(stores: Stores, proxy: Proxy) -> Turns:
    """An engine node whose connection to Redis goes through the proxy."""
    return stores.node(redis_url=proxy.url, **IMPATIENT)


def script(stores: Stores, name: str) -> bytes:
    return str(stores.records._scripts[name].sha).encode()


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_save_whose_connection_is_cut_is_done_once(
    stores: Stores, proxy: Proxy, far: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """The client repeats it under its own id: one step, and never stale to itself (CK-2)."""
    turn = begin(far)
    turn.save(steps=[user("zero")])
    proxy.arm(fault(script(stores, "save")))
    turn.save(steps=[user("one")])
    assert proxy.fired.wait(PATIENCE_S)
    assert not is_unsaved(turn)
    turn.save(steps=[user("two")])
    assert [step.value["content"] for step in far.read(turn.turn_id).steps] == ["zero", "one", "two"]


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_completion_whose_connection_is_cut_is_done_once(
    stores: Stores, proxy: Proxy, far: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """Exactly one entry, one job, one set of steps (QU-1, QU-4)."""
    turn = begin(far)
    turn.save(steps=[user("one")])
    begin(far).complete(reply=Replied("warm"))  # the script is known to the server now
    stores.drain()
    proxy.arm(fault(script(stores, "complete")))
    answer = turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    assert proxy.fired.wait(PATIENCE_S)
    assert answer == Completion(turn.turn_id, turn.entry_id)
    assert stores.redis.lrange(stores.keys.queue, 0, -1) == [f"turn-{turn.turn_id}"]
    assert stores.pending() == [turn.turn_id]
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()][1:] == [turn.turn_id]
    assert stores.types(turn.turn_id).count("agent_step") == 2


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_an_end_whose_connection_is_cut_is_done_once(
    stores: Stores, proxy: Proxy, far: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """One terminal (EV-6, CK-5)."""
    turn = begin(far)
    begin(far).abandon()
    proxy.arm(fault(script(stores, "end")))
    turn.fail("agent_run_failed")
    assert proxy.fired.wait(PATIENCE_S)
    assert stores.types(turn.turn_id) == ["turn_started", "turn_failed"]


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_start_whose_connection_is_cut_gives_the_turn(
    stores: Stores, proxy: Proxy, far: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """Opening the record again by the same owner changes nothing (ST-8)."""
    begin(far).abandon()
    proxy.arm(fault(script(stores, "open")))
    turn = begin(far, work_key="k")
    assert proxy.fired.wait(PATIENCE_S)
    turn.save(steps=[user("one")])
    assert len(far.read(turn.turn_id).steps) == 1


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_resume_whose_connection_is_cut_gives_the_turn(
    stores: Stores, proxy: Proxy, far: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """Claiming it again with the same token is no second take-over (CK-2, CK-10)."""
    for number in range(2):
        turn = begin(far)
        turn.park(reason="waiting")
        if number == 1:
            proxy.arm(fault(script(stores, "claim")))
        again = far.resume(turn.turn_id)
    assert proxy.fired.wait(PATIENCE_S)
    assert again.slice == 2
    again.complete(reply=Replied("Done"))


@pytest.fixture
def once(stores: Stores, proxy: Proxy) -> Turns:
    """A node whose client repeats nothing, so that one cut connection is an answer never heard."""
    return stores.node(redis_url=proxy.url, **{**IMPATIENT, "redis_retries": 0})


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_save_that_never_heard_an_answer_is_settled_by_the_next_one(
    stores: Stores, proxy: Proxy, once: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """Whether it had been carried out or not, each step is there once (CK-2, FL-2)."""
    turn = begin(once)
    turn.save(steps=[user("zero")])
    proxy.arm(fault(script(stores, "save")))
    turn.save(steps=[user("one")])
    assert is_unsaved(turn)
    proxy.cut()
    turn.save(steps=[user("two")])
    assert is_unsaved(turn)
    proxy.restore()
    turn.save(steps=[user("three")])
    assert not is_unsaved(turn)
    expected = ["zero", "one", "two", "three"]
    assert [step.value["content"] for step in once.read(turn.turn_id).steps] == expected
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert [event.type for event in stores.events()].count("agent_step") == len(expected)


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_completion_that_never_heard_an_answer_may_be_repeated(
    stores: Stores, proxy: Proxy, once: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """It is committed directly, and found to be committed by the job, if there is one: once (FL-3, QU-1, QU-4)."""
    begin(once).complete(reply=Replied("warm"))
    stores.drain()
    turn = begin(once)
    proxy.arm(fault(script(stores, "complete")))
    answer = turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    assert answer == Completion(turn.turn_id, turn.entry_id)
    assert stores.run(turn.turn_id) == "completed"
    proxy.cut()
    assert turn.complete(reply=Replied("Done"), steps=[assistant("Done")]) == answer
    proxy.restore()
    stores.drain()
    assert [entry["turn_id"] for entry in stores.entries()][1:] == [turn.turn_id]
    assert contents(turn.history())[-1:] == ['{"role":"assistant","content":"Done"}']


@pytest.mark.parametrize("fault", [DropReply, DropRequest])
def test_a_completion_after_a_save_that_never_heard_an_answer_brings_everything(
    stores: Stores, proxy: Proxy, once: Turns, fault: type[DropReply] | type[DropRequest]
) -> None:
    """The commit is whole, each step once (CK-2, QU-4)."""
    turn = begin(once)
    turn.save(steps=[user("zero")])
    proxy.arm(fault(script(stores, "save")))
    turn.save(steps=[user("one")])
    assert is_unsaved(turn)
    turn.complete(reply=Replied("Done"), steps=[assistant("Done")])
    stores.drain()
    texts = [step.value["content"] for step in begin(once).history()]
    assert texts == ["zero", "one", "Done"]


def test_a_start_that_never_heard_an_answer_may_be_repeated_with_its_id(
    stores: Stores, proxy: Proxy, once: Turns
) -> None:
    """The same turn, block included (ST-8)."""
    begin(once).complete(reply=Replied("Earlier"))
    proxy.arm(DropReply(script(stores, "open")))
    assert is_unsaved(begin(once, turn_id="t-1", work_key="k"))
    stores.drain()
    turn = begin(once, turn_id="t-1", work_key="k")
    assert turn.earlier.count("### ") == 1
    turn.complete(reply=Replied("Done"))
    stores.drain()
    assert stores.types("t-1") == ["turn_started", "message", "turn_completed"]


def test_a_silent_redis_is_given_up_in_time(stores: Stores, proxy: Proxy, far: Turns) -> None:
    """No call waits longer than its timeouts and repeats allow (FL-2)."""
    turn = begin(far)
    proxy.pause()
    began = time.monotonic()
    turn.save(steps=[user("one")])
    assert time.monotonic() - began < GIVEN_UP_S
    assert is_unsaved(turn)
    proxy.unpause()
    turn.save(steps=[user("two")])
    assert len(far.read(turn.turn_id).steps) == 2


def test_silence_is_waited_for_once() -> None:
    """Neither the call nor the connecting is repeated, however often a broken connection would be (FL-2)."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        settings = CheckpointSettings(redis_url=url, redis_reply_timeout_s=0.05, redis_retries=9)
        with pytest.raises(CheckpointUnavailable, match="does not answer"), translated(), connect(settings) as redis:
            redis.get("x")
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize("scheme", ["redis", "redis+sentinel"])
def test_a_reply_that_comes_too_late_is_nobodys(scheme: str) -> None:
    """The connection on which it will come is closed, of whichever kind it is (FL-2, FL-8)."""

    class Silent:
        def read_response(self, *_: object, **__: object) -> None:
            raise TimeoutError

        def on_disconnect(self) -> None:
            pass

    settings = CheckpointSettings(redis_url=f"{scheme}://127.0.0.1:1/0")
    with connect(settings) as redis:
        pool = redis.connection_pool
        connection = pool.connection_class(**pool.connection_kwargs)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            connection._sock, connection._parser = ours, Silent()
            with pytest.raises(RedisTimeoutError):
                connection.read_response()
            assert connection._sock is None


def test_leases_survive_a_connection_that_is_cut(stores: Stores, proxy: Proxy) -> None:
    """The keeper's next round renews them (CK-11)."""
    node = stores.node(redis_url=proxy.url, renew_s=0.1, **IMPATIENT)
    turn = begin(node)
    proxy.cut()
    time.sleep(0.3)  # some rounds fail
    before = _lease_until(stores, turn)
    proxy.restore()
    wait_for(lambda: _lease_until(stores, turn) > before)


def _lease_until(stores: Stores, turn: Turn) -> int:
    return int(str(stores.redis.hget(stores.keys.record(turn.turn_id), "lease_until")))
