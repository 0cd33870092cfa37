"""One file for what the processes of a replay log: shown when something went wrong, forgotten otherwise."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from turnledger.workers.cli.output import visible

SHOWN_LINES = 15


@dataclass(slots=True)
class LogFile:
    """The file, and whether somebody will want to read it."""

    path: Path
    wanted: bool = False


@contextmanager
def log_file(screen: Console) -> Iterator[LogFile]:
    """A new file; when it is wanted, or the block fails, its end is shown and it is kept, otherwise it goes."""
    with tempfile.NamedTemporaryFile(prefix="turnledger-", suffix=".log", delete=False) as file:
        log = LogFile(Path(file.name))
    try:
        yield log
    except Exception:
        log.wanted = True
        raise
    finally:
        if log.wanted and log.path.stat().st_size:
            _show(screen, log.path)
        else:
            log.path.unlink(missing_ok=True)


def _show(screen: Console, path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
    screen.print(f"\nThe end of what its processes logged ({path}):", soft_wrap=True, markup=False)
    for line in lines:
        screen.print(visible(line), style="dim", soft_wrap=True, markup=False)
