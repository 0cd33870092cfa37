"""A long text in parts."""

from itertools import pairwise

MOST_PARTS = 32


def split_text(text: str, *, part_bytes: int) -> list[str]:
    """The text in at most 32 parts of about equal size, between characters; together they are the text.

    A part has at most `part_bytes` bytes of UTF-8, and three more where a character does not end there, as long as 32
    of them suffice.
    """
    data = text.encode("utf-8", "surrogatepass")
    count = max(1, min(MOST_PARTS, -(-len(data) // part_bytes)))
    borders = [_before_character(data, len(data) * number // count) for number in range(count)] + [len(data)]
    parts = [data[first:last].decode("utf-8", "surrogatepass") for first, last in pairwise(borders)]
    return [part for part in parts if part]


def _before_character(data: bytes, place: int) -> int:
    """The nearest place at or before this one where a character begins."""
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place -= 1
    return place
