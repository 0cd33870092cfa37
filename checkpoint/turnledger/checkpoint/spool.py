"""Completed turns on this node's disk, for the time in which neither Redis nor Postgres takes them."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from turnledger.store import CorruptData, LedgerName
from turnledger.store.commit import CompletedTurn
from turnledger.store.deployment import Home
from turnledger.store.errors import without_content
from turnledger.store.events import EventRow
from turnledger.store.json_text import decode_json, encode_json

_SUFFIX = ".turn.json"
_OWNER_ONLY = 0o600  # a file holds a whole conversation's turn, whatever folder it was told to use
_REFUSED = ".refused"
_NAME = re.compile(
    r"[A-Za-z0-9_-]{1,64}\.[0-9]+"
    r"\.(?P<home>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|at-[0-9a-f]{16})"
    r"\.turn\.json(?:\.refused)?"
)


class SpooledTurn(NamedTuple):
    """A turn on disk, and the turns that it had seen completed and not yet committed."""

    path: Path
    turn: CompletedTurn
    built_on: tuple[str, ...]


class Whose(NamedTuple):
    """Spool files in the order they were given: this deployment's, those of others, and those that do not say it."""

    own: tuple[Path, ...]
    others: tuple[Path, ...]
    unsaid: tuple[Path, ...]


class Spool:
    """A folder with one file a turn, epoch and deployment. A file is whole or not there, also after a power failure.

    The epoch keeps a holder that was superseded from writing over the completion of the one that came after it. The
    deployment is in the name, not in the content: a turn of the same id at another deployment is another file, and
    nobody has to read a file to leave it alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, turn: CompletedTurn, *, built_on: Sequence[str], home: Home) -> Path:
        """Put a turn on disk; when this returns it is there (fsync). A holder that writes again replaces its own file.

        Raises:
            OSError: the disk did not take it.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(turn, home.name)
        temporary = path.with_suffix(f".{os.getpid()}")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY), "w") as file:
                file.write(encode_json({**asdict(turn), "built_on": list(built_on)}))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk needs the room
            raise
        if home.deployment_id is not None:  # before that was known the same holder may have written this one
            self._path(turn, home.address).unlink(missing_ok=True)
        _sync_folder(self._folder)
        return path

    def _path(self, turn: CompletedTurn, name: str) -> Path:
        return self._folder / f"{turn.turn_id}.{turn.epoch}.{name}{_SUFFIX}"

    def whose(self, home: Home) -> Whose:
        """The files that wait, told apart by deployment, oldest first."""
        return told_apart(self.files(), home=home)

    def refused(self) -> list[Path]:
        """The files that were set aside, of any deployment, by name."""
        return sorted(self._folder.glob(f"*{_SUFFIX}{_REFUSED}")) if self._folder.is_dir() else []

    def files(self) -> list[Path]:
        """The files that wait, of any deployment, oldest first."""
        if not self._folder.is_dir():
            return []
        found = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def fault(self) -> str:
        """Why this process can neither read nor write it; empty where it can, or where it is still to be made."""
        try:
            is_folder = stat.S_ISDIR(self._folder.stat().st_mode)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"the spool folder {self._folder} cannot be used: {error.strerror}"
        if not is_folder:
            return f"the spool folder {self._folder} is no folder"
        allowed = os.access(self._folder, os.R_OK | os.W_OK | os.X_OK)
        return "" if allowed else f"this user may not read and write the spool folder {self._folder}"

    def turns(self, paths: Iterable[Path]) -> Iterator[SpooledTurn]:
        """The turns in these files, less those that another process of this host has replayed meanwhile.

        Raises:
            CorruptData: a file cannot be read; names it.
        """
        for path in paths:
            try:
                spooled = _decode(path)
            except FileNotFoundError:
                continue
            yield spooled

    def remove(self, path: Path) -> None:
        """The turn of this file is decided."""
        path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> Path:
        """The turn of this file was refused for good: it stays, under a name that no replay reads."""
        kept = path.with_name(path.name + _REFUSED)
        with suppress(FileNotFoundError):  # another process of this host was refused as well
            path.rename(kept)
        return kept


def told_apart(paths: Iterable[Path], *, home: Home) -> Whose:
    """These files, waiting or refused, by whose they are."""
    found: dict[str, list[Path]] = {"own": [], "others": [], "unsaid": []}
    for path in paths:
        named = _NAME.fullmatch(path.name)
        kind = "unsaid" if named is None else "own" if named["home"] in home.names else "others"
        found[kind].append(path)
    return Whose(**{kind: tuple(each) for kind, each in found.items()})


def _decode(path: Path) -> SpooledTurn:
    try:
        members: dict[str, Any] = decode_json(path.read_text(encoding="utf-8"))
        rows = {name: tuple(EventRow(*row) for row in members[name]) for name in ("before", "events")}
        ledger = LedgerName(**members["ledger"])
        built_on = tuple(members.pop("built_on"))
        turn = CompletedTurn(**{**members, **rows, "ledger": ledger, "steps": tuple(members["steps"])})
        return SpooledTurn(path, turn, built_on)
    except (ValueError, TypeError, KeyError) as error:
        reason = without_content(error)
        raise CorruptData(f"the spool file {path} cannot be read: {reason}", where=str(path)) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
