"""How many turns a group holds while one that cannot be stored stands in the queue."""

_LEAST = 4


class GroupSize:
    """Small after a refusal, then twice as large after each success: the good turns get past a bad one in groups.

    Without it every job in front of a bad turn would carry it, fail, and commit its own ledger alone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.turns = most

    def refused(self) -> None:
        """The group held a turn that cannot be stored."""
        self.turns = max(min(_LEAST, self._most), self.turns // 4)

    def stored(self) -> None:
        """The group was committed."""
        self.turns = min(self._most, self.turns * 2)
