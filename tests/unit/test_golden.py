"""Blocks are, byte for byte, what they were: the golden files."""

import pytest

from tests.golden.files import FOLDER, GOLDEN, NEEDS, file_of, kept


@pytest.mark.parametrize("name", GOLDEN)
def test_a_block_is_what_it_was(name: str) -> None:
    """Every difference is one that models see (BL-2, BL-3, BL-8, BL-13)."""
    if name in NEEDS and not NEEDS[name].exists():
        pytest.skip(f"{NEEDS[name].name} is not here")
    expected = file_of(name).read_bytes()
    assert kept(GOLDEN[name]()) == expected, "look at the change, then run: python -m tests.golden"


def test_every_file_has_a_case() -> None:
    """A file that nothing makes would be compared with nothing."""
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(GOLDEN)
