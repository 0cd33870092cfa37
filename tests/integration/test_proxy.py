"""The proxy breaks connections where it is told to, and nowhere else."""

import threading
import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import PATIENCE_S
from tests.proxy import DropAfter, DropReply, DropRequest, Proxy


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    with Proxy(redis_url) as standing:
        yield standing


@pytest.fixture
def through(proxy: Proxy) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(
        proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=2, decode_responses=True
    ) as client:
        yield client


@pytest.fixture
def direct(redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


def test_bytes_pass_unchanged_in_both_directions(through: redis.Redis) -> None:
    value = "x" * 1_000_000
    through.set("key", value)
    assert through.get("key") == value


def test_a_dropped_request_never_reaches_the_server(proxy: Proxy, through: redis.Redis, direct: redis.Redis) -> None:
    through.set("key", "before")
    proxy.arm(DropRequest(b"dropped-value"))
    with pytest.raises(redis.ConnectionError):
        through.set("key", "dropped-value")
    assert proxy.fired.wait(PATIENCE_S)
    assert direct.get("key") == "before"


def test_a_dropped_reply_leaves_the_request_carried_out(
    proxy: Proxy, through: redis.Redis, direct: redis.Redis
) -> None:
    proxy.arm(DropReply(b"kept-value"))
    with pytest.raises(redis.ConnectionError):
        through.set("key", "kept-value")
    assert proxy.fired.wait(PATIENCE_S)
    assert direct.get("key") == "kept-value"


def test_a_marker_is_found_across_chunks(proxy: Proxy, through: redis.Redis, direct: redis.Redis) -> None:
    proxy.arm(DropReply(b"y" * 100_000 + b"end"))
    with pytest.raises(redis.ConnectionError):
        through.set("key", "x" * 50_000 + "y" * 100_000 + "end")
    assert direct.strlen("key") == 150_003


def test_a_fault_happens_once(proxy: Proxy, through: redis.Redis) -> None:
    proxy.arm(DropReply(b"value"))
    with pytest.raises(redis.ConnectionError):
        through.set("key", "value")
    assert through.set("key", "value")


def test_the_connection_is_dropped_after_that_many_bytes_of_replies(proxy: Proxy, through: redis.Redis) -> None:
    through.set("key", "x" * 1000)
    proxy.arm(DropAfter(reply_bytes=500))
    with pytest.raises(redis.ConnectionError):
        through.get("key")
    assert proxy.fired.wait(PATIENCE_S)
    assert through.get("key") == "x" * 1000


def test_a_cut_proxy_refuses_until_it_is_restored_on_the_same_port(proxy: Proxy, through: redis.Redis) -> None:
    through.ping()
    proxy.cut()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.ping()
    proxy.restore()
    assert through.ping()


def test_dropped_connections_can_be_made_anew(proxy: Proxy, through: redis.Redis) -> None:
    first = through.client_id()
    proxy.drop_connections()
    assert through.client_id() != first


def test_a_paused_proxy_is_silent_and_then_delivers(proxy: Proxy, through: redis.Redis) -> None:
    through.ping()
    proxy.pause()
    with pytest.raises(redis.TimeoutError):
        through.ping()
    started = time.monotonic()
    threading.Timer(0.1, proxy.unpause).start()
    assert through.ping()
    assert time.monotonic() - started >= 0.05
