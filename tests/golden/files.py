"""Blocks as they must be, byte for byte: a change of one of these files is a change of what models are shown.

`python -m tests.golden` writes them anew; look at the difference before you commit it.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from tests.golden.cases import CASES
from tests.golden.conversations import AIRLINE, airline_digests, sample_block

FOLDER = Path(__file__).parent
MOST_BYTES = 64 * 1024  # of a file; of what is larger it holds both ends, the size and the digest
_END = 1_000

GOLDEN: Mapping[str, Callable[[], str]] = {**CASES, "sample": sample_block, "airline": airline_digests}
NEEDS = {"airline": AIRLINE}


def file_of(name: str) -> Path:
    """Where the text of this name is kept."""
    return FOLDER / f"{name}.txt"


def kept(text: str) -> bytes:
    """What the file holds for this text: all of it, or enough to tell it from any other."""
    data = text.encode()
    if len(data) <= MOST_BYTES:
        return data
    middle = f"\n[{len(data)} bytes in all, SHA-256 {sha256(data).hexdigest()}]\n"
    return f"{text[:_END]}{middle}{text[-_END:]}".encode()


def write_all() -> list[Path]:
    """Write every file whose data is here; those that changed."""
    changed = []
    for name, make in GOLDEN.items():
        if name in NEEDS and not NEEDS[name].exists():
            continue
        data, path = kept(make()), file_of(name)
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
            changed.append(path)
    return changed
