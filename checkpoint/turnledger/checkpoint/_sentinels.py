"""A client that asks Redis' sentinels for the master, anew for every connection."""

import re
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.connection import parse_url
from redis.sentinel import Sentinel

SENTINEL_URL = re.compile(r"rediss?\+sentinel://")
_DEFAULT_PORT = 26_379
_OF_SENTINELS = "sentinel_"  # begins the options that are for the sentinels: sentinel_username, sentinel_password
_CONNECTING = ("socket_", "ssl_", "retry")  # options of a connection to Redis that hold for one to a sentinel as well


def from_sentinels(url: str, **options: Any) -> Redis:
    """A client of the master that `redis+sentinel://user:password@host:port,host:port/service/number` names.

    User and password are Redis'; those of the sentinels are `?sentinel_username=...&sentinel_password=...`. With
    `rediss+sentinel` both speak TLS. Nothing connects yet.

    Raises:
        ValueError: the URL cannot be read.
    """
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    service, _, number = parts.path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("the URL names no service")
    scheme = parts.scheme.removesuffix("+sentinel")
    plain = f"{scheme}://{user}{at}localhost/{number}?{parts.query}"
    given: dict[str, Any] = {**options, **parse_url(plain)}  # type: ignore[no-untyped-call]  # redis-py's
    for name in ("host", "port", "connection_class"):
        given.pop(name, None)
    own = {name: given.pop(name) for name in list(given) if name.startswith(_OF_SENTINELS)}
    given["ssl"] = scheme == "rediss"
    asking = {name: value for name, value in given.items() if name == "ssl" or name.startswith(_CONNECTING)}
    asking["socket_timeout"] = given.get("socket_connect_timeout")  # they are asked one after the other
    asking |= {name.removeprefix(_OF_SENTINELS): value for name, value in own.items()}
    addresses = [_place(place) for place in places.split(",")]
    sentinels = Sentinel(addresses, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]  # redis-py's
    master: Redis = sentinels.master_for(service, **given)  # type: ignore[no-untyped-call]  # redis-py's
    return master


def _place(text: str) -> tuple[str, int]:
    found = urlsplit(f"//{text}")
    if not found.hostname:
        raise ValueError("a sentinel has no host")
    return found.hostname, found.port or _DEFAULT_PORT
