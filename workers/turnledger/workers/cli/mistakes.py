"""What ends a command early, told in one line on standard error and by its exit code."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from turnledger.checkpoint.connection import translated
from turnledger.store import TurnledgerError
from turnledger.workers.cli import exits
from turnledger.workers.cli.output import complain
from turnledger.workers.cli.streams import let_go

_WRONG_PLACE = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Whatever a user or a server did wrong ends the block as typer.Exit; standard output is written out by then.

    A reader of the output that has gone away, as `head` does, is no mistake: nothing is said.
    """
    try:
        with translated():
            try:
                yield
            finally:
                sys.stdout.flush()
    except TurnledgerError as error:
        complain(str(error))
        raise typer.Exit(exits.exit_code_of(error)) from None
    except BrokenPipeError:
        raise typer.Exit(exits.READER_GONE) from None
    except OSError as error:
        complain(_words(error))
        raise typer.Exit(exits.INVALID if error.errno in _WRONG_PLACE else exits.NEEDS_A_PERSON) from None
    except KeyboardInterrupt:
        raise typer.Exit(exits.INTERRUPTED) from None
    finally:
        let_go()


def _words(error: OSError) -> str:
    said = error.strerror or str(error) or type(error).__name__
    if error.filename is None:
        return f"cannot go on: {said}"
    if error.errno in _WRONG_PLACE:
        return f"{error.filename} cannot be used: {said}; name another place, or grant this user what it needs"
    return f"{error.filename} cannot be used: {said}"
