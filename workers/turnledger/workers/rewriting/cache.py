"""What one process has had rewritten, so that the same text is not paid for again."""

import hashlib
from collections import OrderedDict
from threading import Lock

MOST_ENTRIES = 2_048
MOST_BYTES = 16 * 1024 * 1024
_ENTRY_BYTES = 256  # what a key and the bookkeeping take, roughly


class RewriteCache:
    """Accounts by what was asked; what was not used for the longest time goes first. Thread-safe.

    It holds a digest of each text, not the text.
    """

    def __init__(self, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._bytes = 0
        self._found: OrderedDict[bytes, str] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: bytes) -> str | None:
        """The account, None when there is none."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: bytes, account: str) -> None:
        """Keep an account, for as long as there is room."""
        with self._lock:
            self._forget(key)
            self._found[key] = account
            self._bytes += _size(account)
            while len(self._found) > self._most_entries or self._bytes > self._most_bytes:
                self._forget(next(iter(self._found)))

    def _forget(self, key: bytes) -> None:
        account = self._found.pop(key, None)
        if account is not None:
            self._bytes -= _size(account)


def cache_key(text: str, *, kind: str, model: str, question: str, budget_bytes: int) -> bytes:
    """What tells two requests apart."""
    digest = hashlib.sha256()
    for part in (kind, model, question, str(budget_bytes), text):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d\n" % len(data))
        digest.update(data)
    return digest.digest()


def _size(account: str) -> int:
    return _ENTRY_BYTES + len(account.encode())
