"""Who may log in, with what right."""

import hashlib
import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from werkzeug.security import check_password_hash, generate_password_hash

from turnledger.store import InvalidInput
from turnledger.workers.dashboard.settings import DashboardSettings

Role = Literal["operator", "viewer"]
_KINDS: dict[str, Role] = {"dashboard_operators": "operator", "dashboard_viewers": "viewer"}
_WINDOW_S = 60.0
_SHORTEST_SECRET = 32


@dataclass(frozen=True, slots=True)
class Account:
    """One account; `password_hash` is in the form of werkzeug, '' for the one that needs no login."""

    name: str
    role: Role
    password_hash: str = ""

    @property
    def mark(self) -> str:
        """Tells whether a session was opened with this password and role: it ends when either changes."""
        return hashlib.sha256(f"{self.role}:{self.password_hash}".encode()).hexdigest()


WHOEVER_IS_HERE = Account("local", "operator")


def read_accounts(settings: DashboardSettings) -> Mapping[str, Account]:
    """The accounts by name; none: no login is needed, and the page is served on loopback alone.

    Raises:
        InvalidInput: an account cannot be read or is named twice, or there is none and the address is no loopback.
    """
    found: dict[str, Account] = {}
    for setting, role in _KINDS.items():
        for word in getattr(settings, setting).split():
            account = _account(word, setting=setting, role=role)
            if account.name in found:
                raise InvalidInput(f"the dashboard's account {account.name!r} is given twice; give it once")
            found[account.name] = account
    if not found and not is_loopback(settings.dashboard_host):
        raise InvalidInput(
            f"the dashboard would be open to everybody who reaches {settings.dashboard_host}: give accounts in "
            "TURNLEDGER_DASHBOARD_OPERATORS or TURNLEDGER_DASHBOARD_VIEWERS (`turnledger dashboard --hash-password` "
            "makes a hash), or leave TURNLEDGER_DASHBOARD_HOST at 127.0.0.1"
        )
    if settings.dashboard_secret and len(settings.dashboard_secret) < _SHORTEST_SECRET:
        raise InvalidInput(f"TURNLEDGER_DASHBOARD_SECRET is shorter than {_SHORTEST_SECRET} characters")
    return found


def hash_password(password: str) -> str:
    """What a setting holds in place of the password: scrypt, salted. Raises InvalidInput for an empty one."""
    if not password:
        raise InvalidInput("the password is empty")
    return generate_password_hash(password)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Door:
    """Checks passwords, and slows down whoever guesses. Thread-safe."""

    def __init__(
        self, accounts: Mapping[str, Account], *, most_failures: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._accounts = accounts
        self._most_failures = most_failures
        self._clock = clock
        self._failures: deque[float] = deque()
        self._lock = threading.Lock()

    def is_shut(self) -> bool:
        """Whether too many logins have failed within the last minute; nobody's password is looked at then."""
        with self._lock:
            while self._failures and self._failures[0] < self._clock() - _WINDOW_S:
                self._failures.popleft()
            return len(self._failures) >= self._most_failures

    def let_in(self, name: str, *, password: str) -> Account | None:
        """The account, or None. An unknown name takes as long as a wrong password."""
        account = self._accounts.get(name)
        right = check_password_hash(account.password_hash if account else _nobody(), password)
        if account is not None and right:
            return account
        with self._lock:
            self._failures.append(self._clock())
        return None


def _account(word: str, *, setting: str, role: Role) -> Account:
    name, _, password_hash = word.partition("=")
    if not name or not password_hash.startswith(("scrypt:", "pbkdf2:")) or password_hash.count("$") != 2:
        raise InvalidInput(
            f"an account in TURNLEDGER_{setting.upper()} is not name=hash; `turnledger dashboard --hash-password` "
            "makes a hash (quote it in a shell: it holds dollar signs)"
        )
    return Account(name, role, password_hash)


@cache
def _nobody() -> str:
    return generate_password_hash("nobody")
