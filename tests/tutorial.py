"""Plays the tutorial: one `turnledger up`, a Python prompt, and commands beside it, all in one folder.

`python -m tests.tutorial` plays it and writes into its pages what was printed otherwise than they say.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple, Self
from urllib.request import urlopen

import psutil

from tests.ledger_checks import wait_until
from tests.pages import TUTORIAL, Block, blocks
from tests.processes import PATIENCE_S, Process, Processes

PAGES = [TUTORIAL / f"{name}.md" for name in ("first-turns", "when-processes-die", "when-it-grows-long")]
PROMPT, UNTIL_IT_FITS, SHELL, PRINTED = "python", "python again", "console", "text output"
_PREPARATIONS = ("make install", ". .venv/bin/activate")  # the tests have done that
_READERS_FOLDER = "/home/you/turnledger"
_READERS_WORKER, _READERS_PROMPT = "12345", "23456"  # the numbers of processes in the pages
_URLS = ("TURNLEDGER_DATABASE_URL", "TURNLEDGER_REDIS_URL")
_DONE = "(that was all)"
_HERE = "import os, sys; os.chdir(sys.argv.pop(1)); from turnledger.workers.cli import main; main()"
_DIFFERS = {
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?": "(a time)",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}": "(an id)",
    r"127\.0\.0\.1:\d+": "(an address)",
    r"^\d{2,}$": "(a number)",
    r"[ \t]+$": "",
}


class Shown(NamedTuple):
    """What the page says a block prints, and what it printed."""

    page: Path
    block: Block
    printed: str

    @property
    def fits(self) -> bool:
        return _fits(self.block.text, self.printed)


class Prompt:
    """A real interactive Python, typed into. The one started last is the one that the pages go on with."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-i", "-q", "-u"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.type("import sys; sys.ps1 = sys.ps2 = ''\n")

    def type(self, text: str) -> str:
        """All that is printed until the prompt is back, or until Python has died of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{text}\nprint({_DONE!r})\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line.endswith(f"{_DONE}\n"):
                break
            lines.append(line)
        return "".join(lines)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Reader:
    """Does what the pages say, block after block."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._folder = Path(mkdtemp(prefix="turnledger-tutorial-"))
        self._folder.chmod(0o711)  # or Postgres of root could not enter it
        self._environment = {"TURNLEDGER_SPOOL_FOLDER": str(self._folder / "spool"), "COLUMNS": "90"}
        self._up: Process | None = None
        self._prompts: list[Prompt] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for prompt in self._prompts:
            prompt.close()
        if self._up is not None and self._up.running:
            self._up.signal(signal.SIGTERM)
            self._up.wait()

    def read(self, page: Path) -> Iterator[Shown]:
        """Each block that shows what was printed, beside what the block before it has printed."""
        printed, again = "", ""
        for block in blocks(page, PROMPT, UNTIL_IT_FITS, SHELL, PRINTED):
            if block.kind == PRINTED:
                yield Shown(page, block, self._until_it_fits(again, block) if again else printed)
            again = block.text if block.kind == UNTIL_IT_FITS else ""
            if block.kind == SHELL:
                printed = self._shell(block.text)
            elif block.kind == PROMPT:
                printed = self._prompts[-1].type(block.text)

    def _until_it_fits(self, text: str, block: Block) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while not _fits(block.text, printed := self._prompts[-1].type(text)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return printed

    def _shell(self, text: str) -> str:
        return "".join(self._command(line.removeprefix("$ ")) for line in text.splitlines())

    def _command(self, line: str) -> str:
        words = shlex.split(line)
        if line in _PREPARATIONS:
            return ""
        if words[0] == "export":
            self._environment |= dict(self._exported(word) for word in words[1:])
            return ""
        if words == ["python"]:
            return self._start_prompt()
        if words[:2] == ["turnledger", "up"]:
            return self._start_up(*words[1:])
        if words[:2] == ["kill", "-9"]:
            return self._kill({_READERS_WORKER: self._worker, _READERS_PROMPT: self._first_prompt}[words[2]])
        assert words[0] == "turnledger", f"no reader of these pages knows how to type {line!r}"
        return self._here(*words[1:])

    def _exported(self, word: str) -> tuple[str, str]:
        """The reader exports what `up` printed, not what the page printed."""
        name, _, value = word.partition("=")
        return name, self._told(name) if name in _URLS else value

    def _told(self, name: str) -> str:
        assert self._up is not None, "nothing is up"
        return self._up.wait_for_line(f"export {name}=").partition("=")[2]

    def _start_prompt(self) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNLEDGER_")}
        self._prompts.append(Prompt(self._folder, environment | self._environment))
        return ""

    def _start_up(self, *arguments: str) -> str:
        self._up = self._processes.snippet(_HERE, str(self._folder), *arguments)
        self._up.wait_for_line("Ctrl-C stops it")
        return self._as_readers(self._up.output.partition("the next `turnledger up`.\n")[0]) + (
            "the next `turnledger up`.\n"
        )

    def _here(self, *arguments: str) -> str:
        environment = {"COLUMNS": self._environment["COLUMNS"]}
        process = self._processes.snippet(_HERE, str(self._folder), *arguments, environment=environment)
        process.wait()
        return self._as_readers(
            re.sub(r"(?<!\n)(block: \d+ bytes)", r"\n\1", process.output_then_errors)
        )  # a terminal gets a line end

    def _kill(self, find: Callable[[], psutil.Process]) -> str:
        """Until it is gone: a reader types more slowly than a process dies."""
        process = find()
        process.kill()
        process.wait(PATIENCE_S)
        return ""

    def _first_prompt(self) -> psutil.Process:
        return psutil.Process(self._prompts[0].process_id)

    def _worker(self) -> psutil.Process:
        """As a reader finds it: on the dashboard, the process whose queue is `commits`."""
        assert self._up is not None, "nothing is up"
        address = self._up.wait_for_line("The dashboard is at").split()[-1]
        found: list[str] = []

        def look() -> None:
            with urlopen(address) as answer:
                text = re.sub(r"<[^>]*>|\s+", " ", answer.read().decode())
            found.extend(re.findall(r":(\d+)\s+commits", text))
            assert found, f"no worker on the dashboard: {text}"

        wait_until(look)  # a reader comes to it when the worker has long been there
        return psutil.Process(int(found[0]))

    def _as_readers(self, text: str) -> str:
        return text.replace(str(self._folder.resolve()), _READERS_FOLDER)


def _fits(shown: str, printed: str) -> bool:
    """Line by line, but for times, ids and addresses; a line `...` stands for any number of lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", _alike(shown), flags=re.MULTILINE)]
    return re.fullmatch("(?:.*\n)*?".join(parts), _alike(printed)) is not None


def _alike(text: str) -> str:
    for pattern, word in _DIFFERS.items():
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def main() -> None:
    """Write what was printed into the pages, where it does not fit."""
    with Processes() as processes, Reader(processes) as reader:
        for page in PAGES:
            for shown in list(reader.read(page)):
                if not shown.fits:
                    text = page.read_text(encoding="utf-8")
                    page.write_text(text.replace(f"output\n{shown.block.text}```", f"output\n{shown.printed}```", 1))


if __name__ == "__main__":
    main()
