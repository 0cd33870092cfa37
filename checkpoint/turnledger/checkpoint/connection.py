"""The Redis client, and the one place where its errors become ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from turnledger.checkpoint._sentinels import SENTINEL_URL, from_sentinels
from turnledger.checkpoint.errors import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.store import InvalidInput

_TEXT_BYTES = "utf-8"  # everything we keep is UTF-8 text: lone surrogates are spelled out before they get here
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_TRANSIENT = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    OutOfMemoryError,
    TryAgainError,
)
# The code of an error reply stands first, or, from inside a script of Redis 6, behind the script's own words.
_TRANSIENT_SIGNS = re.compile(
    r"(?:^|: -?)(?:BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN) "
)
# Where the client was refused, and by what words.
_PLACE = re.compile(r"^Error -?\d+ connecting to (?:unix socket: )?(?P<where>.+?)\. (?P<words>.+)$", re.DOTALL)
_NO_GREETING = "Timeout connecting"
_SILENCE = "Timeout reading"
_NUMBERED = ("redis", "rediss")  # the path of any other URL is no number of a database
_USUAL_PORT = 6379
_NO_SUCH_NUMBER = "DB index is out of range"
_TLS_WORDS = ("SSL", "certificate")
_NOT_THERE = "start it, or correct TURNLEDGER_REDIS_URL"
_REPLICA = re.compile(r"(?:^|: -?)READONLY ")


def connect(settings: CheckpointSettings) -> Redis:
    """A client that decodes text and repeats a call whose connection broke; nothing connects yet.

    Bytes that are no text come as lone surrogates, and go back as those bytes: one broken record must not keep a
    client from reading the others.

    Raises:
        InvalidInput: the URL cannot be read.
    """
    return make_client(
        settings,
        decode_responses=True,
        encoding=_TEXT_BYTES,
        encoding_errors="surrogateescape",
        **connection_options(settings),
    )


def make_client(settings: CheckpointSettings, **options: Any) -> Redis:
    """A client of the Redis of the settings; nothing connects yet.

    What the parser says of a URL that it cannot read may quote a password, so it is not repeated.

    Raises:
        InvalidInput: the URL cannot be read, or has an option that is none.
    """
    try:
        _check_number(settings.redis_url)
        make = from_sentinels if SENTINEL_URL.match(settings.redis_url) else Redis.from_url
        client = make(settings.redis_url, **options)
        pool = client.connection_pool
        pool.connection_class = _leaving_replicas(pool.connection_class)
        pool.connection_class(**pool.connection_kwargs)  # made without connecting: a wrong option shows here
    except (ValueError, TypeError):
        raise InvalidInput(
            "TURNLEDGER_REDIS_URL cannot be read; write redis://user:password@host:port/number, or "
            "redis+sentinel://user:password@host:port,host:port/service/number, with what is neither letter nor digit "
            "in the password percent-encoded"
        ) from None
    return client


def _check_number(url: str) -> None:
    """Raises ValueError when the path of the URL is no number: the client would take the database 0 instead."""
    parts = urlsplit(url)
    number = parts.path.strip("/")
    if parts.scheme in _NUMBERED and number and not number.isdecimal():
        raise ValueError


def place_of(url: str) -> str:
    """Which Redis the URL of a client names, without user and password: localhost:6379/0."""
    parts = urlsplit(url)
    if parts.scheme not in _NUMBERED:
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{parts.hostname or 'localhost'}:{parts.port or _USUAL_PORT}/{parts.path.strip('/') or 0}"


def connection_options(settings: CheckpointSettings) -> dict[str, object]:
    """How patient a connection is, for our client and for RQ's.

    A connection that broke is made again at once. Silence is waited for once: redis-py repeats a call around the
    repeats of its connecting, which came to sixteen times as long.
    """
    backoff = ExponentialWithJitterBackoff(base=0.02, cap=0.5)
    return {
        "socket_connect_timeout": settings.redis_connect_timeout_s,
        "socket_timeout": settings.redis_reply_timeout_s,
        "socket_keepalive": True,
        "health_check_interval": 30,
        "retry": Retry(backoff, settings.redis_retries, supported_errors=(RedisConnectionError,)),
    }


@cache
def _leaving_replicas(kind: type[Any]) -> type[Any]:
    """The kind of connection, closed when its server turns out to be a replica: the next one may find the master."""

    class LeavingReplicas(kind):  # type: ignore[misc]  # its base is known at run time alone
        def read_response(self, *given: Any, **named: Any) -> Any:
            # Redis-py's kind for sentinels would leave a reply that comes late to the next call.
            named.setdefault("disconnect_on_error", True)
            try:
                return super().read_response(*given, **named)
            except ResponseError as error:
                if isinstance(error, ReadOnlyError) or _REPLICA.search(str(error)):
                    self.disconnect()
                raise

    return LeavingReplicas


def is_transient(error: RedisError) -> bool:
    """Whether the same call may succeed later, without a person's doing."""
    return isinstance(error, _TRANSIENT) or bool(_TRANSIENT_SIGNS.search(str(error)))


@contextmanager
def translated() -> Iterator[None]:
    """Turn a Redis error into one of ours.

    Raises:
        CheckpointUnavailable: the same call may succeed later.
        CheckpointMisconfigured: a person has to repair something first.
    """
    try:
        yield
    except _REFUSALS as error:
        raise CheckpointMisconfigured(
            f"Redis refuses this user: {_words(error)}; check TURNLEDGER_REDIS_URL"
        ) from error
    except RedisError as error:
        if is_transient(error):
            raise CheckpointUnavailable(_told(error)) from error
        advice = "; correct the number in TURNLEDGER_REDIS_URL" if _NO_SUCH_NUMBER in str(error) else ""
        raise CheckpointMisconfigured(f"Redis refused a command: {_words(error)}{advice}") from error


def _told(error: RedisError) -> str:
    """Where no Redis answered, and by what words; or what one said that cannot take this now."""
    words = _words(error)
    found = _PLACE.match(words)
    if found and any(word in found["words"] for word in _TLS_WORDS):
        return f"Redis at {found['where']} has not the TLS that TURNLEDGER_REDIS_URL asks for: {found['words']}"
    if found:
        return f"Redis does not answer at {found['where']}: {found['words']}; {_NOT_THERE}"
    if words.startswith(_NO_GREETING):
        return f"Redis does not answer: {words}; {_NOT_THERE} (rediss:// is for a Redis that talks TLS)"
    if words.startswith(_SILENCE):
        return f"Redis does not answer: {words}"
    return f"Redis does not take this now: {words}"


def _words(error: RedisError) -> str:
    return " ".join(str(error).split()).rstrip(".")
