"""The three packages and what they may import."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("store", "checkpoint", "workers")


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    """LY-1, imports inside functions included."""
    above = [f"turnledger.{name}" for name in LAYERS[LAYERS.index(layer) + 1 :]]
    files = list((ROOT / layer / "turnledger" / layer).rglob("*.py"))
    offences = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in sorted(_imported(path))
        if any(name == package or name.startswith(f"{package}.") for package in above)
    ]
    assert files
    assert offences == []


@pytest.mark.parametrize("layer", LAYERS)
def test_each_folder_is_importable_and_none_hides_the_others(layer: str) -> None:
    """LY-2"""
    package = import_module(f"turnledger.{layer}")
    assert package.__file__ is not None
    assert Path(package.__file__).is_relative_to(ROOT / layer)
    assert not (ROOT / layer / "turnledger" / "__init__.py").exists()
