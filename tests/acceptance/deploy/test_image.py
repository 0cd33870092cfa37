"""The Dockerfile, as far as it can be checked without a container engine (OP-5)."""

import re
import tomllib

from tests.deploying import DOCKERFILE, ROOT, image_environment, known_settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _instructions() -> list[tuple[str, str]]:
    joined = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line.partition(" ") for line in joined.splitlines() if line and not line.startswith("#")]
    return [(name, " ".join(rest.split())) for name, _, rest in lines]


def _all(name: str) -> list[str]:
    return [rest for instruction, rest in _instructions() if instruction == name]


def test_both_stages_name_the_same_version_of_their_base() -> None:
    """Of a Python that this project supports (OP-5)."""
    bases = {rest.split()[0] for rest in _all("FROM")}
    assert len(bases) == 1
    found = re.fullmatch(r"python:(3\.\d+)-slim-\w+", bases.pop())
    assert found is not None
    assert f"Programming Language :: Python :: {found[1]}" in PROJECT["classifiers"]


def test_what_is_copied_is_there_and_is_all_that_a_wheel_needs() -> None:
    """And nothing else is sent to the builder, a secret least of all (OP-5)."""
    copied = [word for rest in _all("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    assert all((ROOT / name).exists() for name in copied)
    roots = {name.partition("/")[0] for name in _wheel_packages()}
    assert roots | {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"]} == set(copied)


def _wheel_packages() -> list[str]:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages: list[str] = tool["hatch"]["build"]["targets"]["wheel"]["packages"]
    return packages


def test_it_runs_one_command_as_nobody_special() -> None:
    """For every role; its user owns nothing of the program (OP-5)."""
    assert _all("USER") == ["10001:10001"]
    assert _all("ENTRYPOINT") == ['["turnledger"]']
    assert "turnledger" in PROJECT["scripts"]
    assert len(_all("HEALTHCHECK")) == 1
    assert _all("HEALTHCHECK")[0].endswith('CMD ["turnledger", "alive"]')
    order = [name for name, _ in _instructions()]
    assert order.index("USER") > max(index for index, name in enumerate(order) if name in ("RUN", "COPY"))


def test_its_extras_and_its_settings_are_ours() -> None:
    """None is misspelt; the servers of the sandbox are not in it (OP-5)."""
    (extras,) = _all("ARG")
    named = set(extras.partition("=")[2].split(","))
    assert named == set(PROJECT["optional-dependencies"]) - {"embedded"}
    assert set(image_environment()) <= known_settings()
