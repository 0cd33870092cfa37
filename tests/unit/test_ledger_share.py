"""How two workers divide the ledgers at the head of the queue."""

from turnledger.checkpoint.ledger_share import LedgerShare


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_that_is_alone_takes_all() -> None:
    share = LedgerShare(Clock())
    share.note(asked=200, got=200)
    assert share.of(200) == 200


def test_a_worker_that_finds_another_one_at_work_takes_half_and_never_nothing() -> None:
    """(QU-13)"""
    share = LedgerShare(Clock())
    share.note(asked=200, got=0)
    assert [share.of(ledgers) for ledgers in (200, 3, 1)] == [100, 2, 1]


def test_a_few_ledgers_that_starts_hold_make_no_group_smaller() -> None:
    """(QU-13)"""
    share = LedgerShare(Clock())
    share.note(asked=200, got=190)
    assert share.of(200) == 200


def test_a_worker_takes_all_again_when_the_other_one_is_gone() -> None:
    clock = Clock()
    share = LedgerShare(clock)
    share.note(asked=200, got=100)
    clock.now += 1.1
    assert share.of(200) == 200
