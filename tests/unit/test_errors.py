"""The errors: what they say, whether to try again, and how they travel between processes."""

import pickle

import pytest

from turnledger.store import errors
from turnledger.store.errors import (
    InvalidInput,
    SchemaMismatch,
    StoreBusy,
    StoreMisconfigured,
    StoreRefused,
    StoreUnavailable,
    TurnledgerError,
)

KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, TurnledgerError)]


@pytest.mark.parametrize("kind", KINDS)
def test_docstring_is_the_default_message(kind: type[TurnledgerError]) -> None:
    """An error raised without a message says the first line of its docstring."""
    assert str(kind()) == (kind.__doc__ or "").splitlines()[0]
    assert str(kind("what happened")) == "what happened"


@pytest.mark.parametrize("kind", KINDS)
def test_errors_survive_pickling(kind: type[TurnledgerError]) -> None:
    """Message and details reach the process that reads a worker's failure."""
    error = kind("broken", turn_id="t1", where="steps[2]")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "broken"
    assert vars(copy) == {"turn_id": "t1", "where": "steps[2]"}


def test_only_passing_trouble_is_retried() -> None:
    """A busy or unreachable Postgres is worth another try, everything else is not (QU-7)."""
    assert {kind for kind in KINDS if kind.retry} == {StoreUnavailable, StoreBusy}


def test_refused_input_is_a_value_error() -> None:
    """Callers and pydantic may treat refused input as the ValueError that it is."""
    assert issubclass(InvalidInput, ValueError)


def test_details_have_defaults() -> None:
    """A detail that was not given reads as None."""
    error = StoreRefused("no", sqlstate="23505")
    assert (error.sqlstate, error.constraint) == ("23505", None)


def test_wrong_schema_is_a_misconfiguration() -> None:
    """A schema of another revision stops a worker like any other wrong set-up (QU-7)."""
    assert issubclass(SchemaMismatch, StoreMisconfigured)
