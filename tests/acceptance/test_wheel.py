"""The built wheel, not only the source tree."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOTS = ("store", "checkpoint", "workers")
_CACHES = ("__pycache__", ".pyc")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("turnledger-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
    python = folder / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    return python


def test_the_wheel_holds_every_file_of_the_three_packages(wheel: Path) -> None:
    """LY-3: SQL, Lua, migrations, sample data and py.typed with the rest."""
    expected = {
        str(path.relative_to(ROOT / root))
        for root in ROOTS
        for path in (ROOT / root).rglob("*")
        if path.is_file() and not str(path).endswith(_CACHES)
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {f"turnledger/{root}/py.typed" for root in ROOTS} <= held
    assert {".sql", ".lua"} <= {Path(name).suffix for name in held}
    assert any(name.startswith("turnledger/store/migrations/versions/") for name in held)


def test_the_wheel_does_not_hide_its_siblings_in_the_namespace(wheel: Path) -> None:
    """LY-2"""
    with zipfile.ZipFile(wheel) as archive:
        assert "turnledger/__init__.py" not in archive.namelist()


def test_the_three_packages_import_from_the_installed_wheel(installed: Path) -> None:
    """LY-2, LY-3: with their data files, and nothing from the source tree."""
    source = """
import turnledger.store, turnledger.checkpoint, turnledger.workers
from importlib.resources import files
for package in (turnledger.store, turnledger.checkpoint, turnledger.workers):
    assert files(package).joinpath("py.typed").is_file()
    print(package.__file__)
"""
    printed = _run(str(installed), "-c", source, PYTHONPATH=_dependencies(installed)).splitlines()
    assert len(printed) == len(ROOTS)
    assert all(Path(line).is_relative_to(installed.parents[1]) for line in printed)


def test_the_command_is_installed_with_the_wheel(installed: Path) -> None:
    """LY-3"""
    command = installed.with_name("turnledger")
    assert "Usage" in _run(str(command), "--help", PYTHONPATH=_dependencies(installed))


def _dependencies(installed: Path) -> str:
    """Our site-packages through a path, so that its .pth files, and with them our source tree, stay out."""
    ours = sysconfig.get_path("purelib")
    return os.pathsep.join([str(next(installed.parents[1].glob("lib/python*/site-packages"))), ours])


def _run(*command: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, cwd="/", env=kept | environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command} failed:\n{result.stdout}\n{result.stderr}"
    return result.stdout
