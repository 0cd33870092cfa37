"""What the engine nodes were told, each in a file of its own that outlives it: the only thing the count trusts."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Acknowledged:
    """A completion that a node was told has succeeded. `steps` are contents; `epoch` is that of its holder."""

    turn_id: str
    agent: str
    conversation: str
    work_key: str
    steps: tuple[str, ...]
    epoch: int
    duplicate: bool


class ToldFile:
    """Lines that are on the disk when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        if self._file.tell():
            self._file.write("\n")  # behind a line that a killed node did not finish

    def __enter__(self) -> "ToldFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def holds(self, turn_id: str) -> None:
        """This node has a turn in hand now."""
        self._write({"holds": turn_id})

    def acknowledged(self, turn: Acknowledged) -> None:
        self._write({"told": asdict(turn)})

    def counts(self, what: str) -> None:
        """Something that the report counts, such as a resume."""
        self._write({"counts": what})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, less those that a killed node did not finish."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").split("\n"):
        with suppress(json.JSONDecodeError):
            yield json.loads(line)


def read_acknowledged(paths: Sequence[Path]) -> list[Acknowledged]:
    return [
        Acknowledged(**{**line["told"], "steps": tuple(line["told"]["steps"])})
        for path in paths
        for line in read_lines(path)
        if "told" in line
    ]


def last_held(path: Path) -> str | None:
    """The turn that the node took in hand last."""
    held = [str(line["holds"]) for line in read_lines(path) if "holds" in line]
    return held[-1] if held else None
