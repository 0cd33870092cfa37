"""Times as text."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from turnledger.store.errors import InvalidInput
from turnledger.store.times import check_time, time_of, time_text


def test_time_text_is_utc_with_milliseconds() -> None:
    """A time is written in UTC with exactly three digits of a second, so that texts sort as times (BL-1)."""
    moment = datetime(2026, 11, 30, 18, 20, 16, 123_999, tzinfo=timezone(timedelta(hours=2)))
    assert time_text(moment) == "2026-11-30T16:20:16.123Z"
    assert time_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000Z"


def test_time_text_takes_milliseconds() -> None:
    """The clock of Redis counts milliseconds since 1970; they become the same text."""
    assert time_text(1_796_055_616_123) == "2026-11-30T16:20:16.123Z"


def test_time_of_gives_the_moment_back() -> None:
    """Text and moment stand for each other."""
    assert time_text(time_of("2026-11-30T16:20:16.123Z")) == "2026-11-30T16:20:16.123Z"
    assert time_of("2026-11-30T16:20:16.123Z").utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text", ["", "2026-11-30", "2026-11-30T16:20:16Z", "2026-11-30T16:20:16.123+00:00", "2026-11-30T16:20:16.123Z\n"]
)
def test_another_form_is_refused(text: str) -> None:
    """Only the one fixed form is a time."""
    with pytest.raises(InvalidInput, match="completed_at must be RFC 3339"):
        check_time(text, where="completed_at")


def test_an_impossible_time_is_refused() -> None:
    """A text of the right form that names no day is refused when it is read."""
    with pytest.raises(InvalidInput, match="is not a time"):
        time_of("2026-13-30T16:20:16.123Z")


def test_a_time_without_zone_is_refused() -> None:
    """A naive datetime means another moment on another node."""
    with pytest.raises(InvalidInput, match="no time zone"):
        time_text(datetime(2026, 1, 1))  # noqa: DTZ001 - the fault that is tested
