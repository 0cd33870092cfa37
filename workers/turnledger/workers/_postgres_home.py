"""Where an embedded Postgres may live, and as whom it runs.

Postgres refuses to run as root. For root it therefore runs as the account ``nobody``, which every system
has, so that no account is made. That account must be able to enter each folder above data and programs;
no permission of an existing folder is ever widened for it, they are put elsewhere instead.
"""

import os
import pwd
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnledger.workers._server_process import EmbeddedServerFailed

_ACCOUNT = "nobody"
_KEPT = Path("/var/lib/turnledger")
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - candidates for a new, private folder


@dataclass(frozen=True)
class PostgresHome:
    """The account (None: our own), the folder that is or will be the cluster's, and that of the programs."""

    account: pwd.struct_passwd | None
    data: Path
    programs: Path


def postgres_home(folder: Path, *, programs: Path) -> PostgresHome:
    """Put the cluster in ``folder``, or where ``folder/elsewhere`` leads if root's Postgres cannot go there.

    Raises:
        EmbeddedServerFailed: there is no account to run as, or no folder that it can enter.
    """
    if os.geteuid() != 0:
        return PostgresHome(account=None, data=folder.resolve() / "data", programs=programs)
    folder.chmod(0o711)  # this one is ours, whatever the umask was
    place = folder.resolve() if _open_to_all(folder) else _elsewhere(folder / "elsewhere")
    reachable = programs if _open_to_all(programs) else _copied(programs, to=place / "programs")
    return PostgresHome(account=_account(), data=place / "data", programs=reachable)


@contextmanager
def new_data_folder(home: PostgresHome) -> Iterator[Path]:
    """An empty folder that becomes ``home.data`` when the block ends normally: all of a cluster or none."""
    partial = home.data.with_name("data-partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    if home.account:
        shutil.chown(partial, user=home.account.pw_uid)
    yield partial
    partial.rename(home.data)


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A new folder that the account of Postgres can enter and only we can list, for the length of a ``with`` block.

    Its name is known before it is there: whenever an interrupt comes, it is removed.
    """
    home = _new_place()
    try:
        home.mkdir(mode=0o700)
        home.chmod(0o711)
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _new_place() -> Path:
    for parent in (tempfile.gettempdir(), *_TEMPORARY):
        if os.geteuid() != 0 or _open_to_all(Path(parent)):
            return Path(parent) / f"turnledger-{uuid.uuid4().hex}"
    raise EmbeddedServerFailed(f"{_ACCOUNT} can enter none of {', '.join(_TEMPORARY)}; set TMPDIR to a folder it can")


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_ACCOUNT)
    except KeyError:
        raise EmbeddedServerFailed(
            f"Postgres cannot run as root and there is no account {_ACCOUNT}; run this as another user"
        ) from None


def _open_to_all(path: Path) -> bool:
    resolved = path.resolve()
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (resolved, *resolved.parents))


def _elsewhere(link: Path) -> Path:
    """A folder of this link's own under /var/lib: a link removed with its folder never leads to old data."""
    if not link.is_dir():
        _KEPT.mkdir(mode=0o711, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="postgres-", dir=_KEPT))
        place.chmod(0o711)
        link.unlink(missing_ok=True)
        link.symlink_to(place)
    return link.resolve()


def _copied(programs: Path, *, to: Path) -> Path:
    """Copy the package that ``programs`` belongs to, once, with the libraries it finds beside itself."""
    package = programs.parents[1]
    if not to.exists():
        partial = to.with_name(f"{to.name}-partial")
        shutil.rmtree(partial, ignore_errors=True)
        ignored = shutil.ignore_patterns("include", "doc", "*.a", "__pycache__")
        for folder in package.parent.glob(f"{package.name}*"):
            if folder == package or folder.suffix == ".libs":
                shutil.copytree(folder, partial / folder.name, ignore=ignored)
        partial.rename(to)
    return to / programs.relative_to(package.parent)
