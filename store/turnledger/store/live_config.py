"""The part of the configuration that may change while processes run: one section of a file that is looked at again.

Whoever needs a value asks for the section anew, at each start and each commit: that costs one `stat`.
"""

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Literal, NamedTuple

from turnledger.store.config_section import ConversationSession, read_section
from turnledger.store.errors import InvalidInput
from turnledger.store.logs import get_logger

log = get_logger(__name__)

VARIABLE = "TURNLEDGER_CONFIG"
SETTLED_NS = 2_000_000_000  # on a coarse clock two writes within so much time may leave the same times behind


class _Stamp(NamedTuple):
    """What tells one version of a file from another without reading it. `changed_ns` cannot be set by a program."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class _Version(NamedTuple):
    """A version of the file: its digest, or why it cannot be read. `settled`: the next one has another stamp."""

    stamp: _Stamp | None
    settled: bool
    digest: str
    content: bytes | None


class LiveConfig:
    """The section `turn_engine.conversation_session` as its file has it now. Thread-safe, also after a fork.

    The last good version stays in force while the file is broken, empty or gone, and the reason is logged once. An
    empty file is taken to be in the middle of being written; a process that starts with it takes the defaults.
    """

    def __init__(self, path: Path | None) -> None:
        """`path` None: the defaults, always.

        Raises:
            InvalidInput: the file cannot be read, or holds what it may not; names the key by its full path.
        """
        self._path = None if path is None else path.absolute()  # a process may change its folder
        self._lock = threading.Lock()
        self._process_id = os.getpid()
        self._session = ConversationSession()
        if self._path is None:
            return
        self._seen = _read(self._path)
        self._session = _session_of(self._seen, self._path, empty="taken")

    def current(self) -> ConversationSession:
        """The section in force now."""
        if self._path is None:
            return self._session
        seen = self._seen
        if not seen.settled or _stamp_of(self._path) != seen.stamp:
            self._look_again(self._path)
        return self._session

    def _look_again(self, path: Path) -> None:
        with self._own_lock():
            found = _read(path)
            if found.digest != self._seen.digest:
                self._apply(found, path)
            self._seen = found  # last: whoever finds it takes the session to be its own

    def _apply(self, found: _Version, path: Path) -> None:
        try:
            self._session = _session_of(found, path, empty="refused")
        except InvalidInput as error:
            log.error("config_refused", reason=str(error), in_force=self._session.model_dump())
        else:
            log.info("config_applied", file=str(path), in_force=self._session.model_dump())

    def _own_lock(self) -> threading.Lock:
        """A lock that another thread held when this process was forked off would never be released here."""
        if self._process_id != os.getpid():
            self._lock, self._process_id = threading.Lock(), os.getpid()
        return self._lock


def _session_of(version: _Version, path: Path, *, empty: Literal["taken", "refused"]) -> ConversationSession:
    if version.content == b"" and empty == "refused":
        raise InvalidInput(f"{path} is empty; to go back to the defaults, write `turn_engine:` into it")
    if version.content is None:
        raise InvalidInput(f"{VARIABLE} names {path}, which cannot be read: {version.digest}; mend that, or unset it")
    try:
        return read_section(version.content)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}", where=error.where) from None


def _read(path: Path) -> _Version:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        return _Version(None, settled=True, digest=str(error.strerror), content=None)
    settled = time.time_ns() - found.st_ctime_ns > SETTLED_NS
    return _Version(_stamp(found), settled, digest=hashlib.sha256(content).hexdigest(), content=content)


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def _stamp(found: os.stat_result) -> _Stamp:
    return _Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
