"""Times as text: RFC 3339 in UTC with milliseconds, such as ``2026-11-30T16:20:16.123Z``.

The form has one fixed width, so that sorting the texts sorts the times.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from turnledger.store.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def time_text(moment: datetime | int) -> str:
    """The text of an aware datetime, or of milliseconds since 1970 (UTC). Microseconds are cut off.

    Raises InvalidInput for a datetime without time zone, which would mean another time elsewhere, and for milliseconds
    outside of the years 1 to 9999.
    """
    if isinstance(moment, int):
        moment = _moment(moment)
    if moment.utcoffset() is None:
        raise InvalidInput("the time has no time zone; give an aware datetime", where="time")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _moment(since_1970_ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=since_1970_ms)
    except OverflowError:
        raise InvalidInput("the time is outside of the years 1 to 9999", where="time") from None


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970 (UTC) of an aware datetime."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def utc_now() -> datetime:
    """The time of this machine, for what no server has seen yet."""
    return datetime.now(tz=UTC)


def time_of(text: str) -> datetime:
    """The aware datetime that a text of this form stands for. Raises InvalidInput for any other text."""
    checked = check_time(text)
    try:
        return datetime.fromisoformat(checked[:-1] + "+00:00")
    except ValueError as error:
        raise InvalidInput(f"{text} is not a time: {error}", where="time") from None


def check_time(text: object, *, where: str = "time") -> str:
    """The text itself. Raises InvalidInput unless it has the form ``2026-11-30T16:20:16.123Z``."""
    if isinstance(text, str) and _TIME.fullmatch(text):
        return text
    raise InvalidInput(f"{where} must be RFC 3339 in UTC with milliseconds, like 2026-11-30T16:20:16.123Z", where=where)
