"""A disk of a few megabytes in memory, to be filled up; it takes root to mount one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_BALLAST = "ballast"


class SmallDisk:
    """The folder on it, what fills it up, and what makes room again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _ballast(self) -> Path:
        return self.folder / _BALLAST

    def fill(self) -> None:
        """Leave not one byte, and so nothing for a file that would grow."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def make_room(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink()


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[SmallDisk]:
    """A disk mounted at this new folder; without the right to mount one the test is skipped, and fails in CI."""
    folder.mkdir()
    folder.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        told = f"a small disk cannot be mounted here: {mounted.stderr.strip()}"
        pytest.fail(told) if os.environ.get("CI") else pytest.skip(told)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a server may have been killed this moment
