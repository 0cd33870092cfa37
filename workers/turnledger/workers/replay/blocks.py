"""Whether the block that a turn was given tells of exactly the turns before it."""

import re
from collections.abc import Sequence

_HEADING = re.compile(r"^### \S+ \(turn ([A-Za-z0-9_-]{1,64})\)$", re.MULTILINE)
_ABSENT = re.compile(r"^\((\d+) earlier turns? (?:is|are) (no longer stored|left out here for want of room)\.\)$", re.M)
_FIRST_ENTRY = "\n### "


def block_problem(block: str, *, earlier: Sequence[str], most_entries: int) -> str | None:
    """What is wrong with a block, or None.

    `earlier` are the turn_ids of all turns before, oldest first. Of these the newest `most_entries` have to be
    there, each once and in order; where the block is full some may be left out, but never the newest one, and
    what is not shown is counted. Texts inside an entry cannot pass for its headings, so the headings tell.
    """
    if not earlier:
        return "it should be empty" if block else None
    shown = _HEADING.findall(block)
    counted = {what: int(number) for number, what in _ABSENT.findall(block.partition(_FIRST_ENTRY)[0])}
    newest = list(earlier[-most_entries:])
    left_out = counted.get("left out here for want of room", 0)
    if shown[-1:] != newest[-1:]:
        return f"its newest entry is {shown[-1] if shown else 'none'}, the turn before was {newest[-1]}"
    if shown != newest and not (left_out and _in_order(shown, newest)):
        return f"its {len(shown)} entries are not those of the {len(newest)} turns before it, in their order"
    if len(shown) + left_out != len(newest):
        return f"it shows {len(shown)} turns and counts {left_out} as left out, there were {len(newest)}"
    if counted.get("no longer stored", 0) != len(earlier) - len(newest):
        return f"it counts {counted.get('no longer stored', 0)} turns as gone, {len(earlier) - len(newest)} are"
    return None


def _in_order(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether `part` is `whole` with some left out."""
    rest = iter(whole)
    return all(item in rest for item in part)
