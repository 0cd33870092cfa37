"""What Redis answers becomes one of our errors: later, or never until a person has acted."""

import pytest
from redis import exceptions

from turnledger.checkpoint import CheckpointMisconfigured, CheckpointUnavailable
from turnledger.checkpoint.connection import connect, translated
from turnledger.checkpoint.settings import CheckpointSettings
from turnledger.store import InvalidInput

IN_A_SCRIPT = "Error running script (call to f_d074): @user_script:68: @user_script: 68: -"

PASSES = [
    exceptions.ConnectionError("Connection refused"),
    exceptions.TimeoutError("Timeout reading from socket"),
    exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    exceptions.ResponseError("BUSY Redis is busy running a script."),
    exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots, but cannot persist on disk."),
    exceptions.ResponseError(
        "OOM command not allowed when used memory > 'maxmemory'. script: 6f2c, on @user_script:2."
    ),
    exceptions.ResponseError(IN_A_SCRIPT + "OOM command not allowed when used memory > 'maxmemory'."),
    exceptions.ResponseError(IN_A_SCRIPT + "READONLY You can't write against a read only replica."),
    exceptions.ResponseError(IN_A_SCRIPT + "MISCONF Redis is configured to save RDB snapshots."),
    exceptions.ResponseError("Command # 1 (EVALSHA ab 2 k) of pipeline caused error: " + IN_A_SCRIPT + "OOM command"),
]
STAYS = [
    exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
    exceptions.NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    exceptions.ResponseError(IN_A_SCRIPT + "NOPERM this user has no permissions to access one of the keys"),
    exceptions.ResponseError(IN_A_SCRIPT + "WRONGTYPE Operation against a key holding the wrong kind of value"),
    exceptions.ResponseError("unknown command 'LPOS', with args beginning with: 'OOM '"),
    exceptions.DataError("Invalid input of type: 'NoneType'."),
]


@pytest.mark.parametrize("error", PASSES, ids=str)
def test_what_passes_by_itself_may_be_tried_again(error: Exception) -> None:
    """A full, read-only, loading or silent Redis, whichever release words it (FL-3, QU-7)."""
    with pytest.raises(CheckpointUnavailable) as raised, translated():
        raise error
    assert raised.value.retry
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", STAYS, ids=str)
def test_what_a_person_has_to_repair_is_never_tried_again(error: Exception) -> None:
    """A missing grant, a foreign key, a command that Redis does not have (QU-7)."""
    with pytest.raises(CheckpointMisconfigured) as raised, translated():
        raise error
    assert not raised.value.retry


def test_errors_that_are_not_of_redis_pass_unchanged() -> None:
    """Only Redis errors are translated (QU-7)."""
    with pytest.raises(KeyError), translated():
        raise KeyError("x")


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://localhost:port/0", ""])
def test_a_url_that_cannot_be_read_is_refused_with_its_name(url: str) -> None:
    """The message names the variable and the form (RT-1)."""
    with pytest.raises(InvalidInput, match=r"TURNLEDGER_REDIS_URL.*redis://user:password@host:port/number"):
        connect(CheckpointSettings(redis_url=url))
