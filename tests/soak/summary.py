"""Summaries that can be checked: each says which words it stands for, by number and digest."""

import hashlib
import json
from collections.abc import Sequence

from turnledger.store import Step


def summary_of(contents: Sequence[str]) -> Step:
    """A step that stands for these contents, in this order."""
    return Step.of(role="user", content={"role": "user", "content": "a summary", **_mark(contents)})


def is_summary_of(content: str, contents: Sequence[str]) -> bool:
    found = json.loads(content)
    return {name: found[name] for name in ("count", "digest")} == _mark(contents)


def _mark(contents: Sequence[str]) -> dict[str, object]:
    digest = hashlib.sha256("\n".join(contents).encode()).hexdigest()
    return {"count": len(contents), "digest": digest}
