"""The stopwatch of a turn."""

from turnledger.checkpoint.running_time import RunningTime


class _Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_it_goes_on_from_where_others_had_come_until_it_is_stopped() -> None:
    """CK-10"""
    clock = _Clock()
    running = RunningTime(250, clock=clock)
    assert running.milliseconds == 250
    clock.now += 1.5
    assert running.milliseconds == 1_750
    running.stop()
    clock.now += 60.0
    running.stop()
    assert running.milliseconds == 1_750
