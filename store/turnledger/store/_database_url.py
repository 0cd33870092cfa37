"""The URL of the database; several hosts in it are written as libpq has them."""

import re

from sqlalchemy import URL, make_url

_SEVERAL = re.compile(
    r"(?P<front>[a-z+0-9]+://(?:[^@/?]*@)?)(?P<hosts>[^@/?]*,[^@/?]*)(?P<rest>(?:[/?].*)?)", re.DOTALL
)
_HOST = re.compile(r"\[(?P<address>[^\]]*)\](?::(?P<its_port>\d*))?|(?P<name>[^:]*)(?::(?P<port>\d*))?")
_DEFAULT_PORT = "5432"


def read_url(text: str) -> tuple[URL, dict[str, object]]:
    """The URL without hosts, and these for the driver, where there are several (`host:port,host:port`).

    They are tried in turn; `?target_session_attrs=read-write` passes over those that take no writes.

    Raises:
        ArgumentError, ValueError: it cannot be read.
    """
    several = _SEVERAL.fullmatch(text)
    if several is None:
        return make_url(text), {}
    places = [_place(part) for part in several["hosts"].split(",")]
    hosts, ports = (",".join(column) for column in zip(*places, strict=True))
    return make_url(several["front"] + several["rest"]), {"host": hosts, "port": ports}


def _place(text: str) -> tuple[str, str]:
    found = _HOST.fullmatch(text)
    if found is None or not (found["address"] or found["name"]):
        raise ValueError("a host has no name, or its port is no number")
    return found["address"] or found["name"], found["its_port"] or found["port"] or _DEFAULT_PORT
