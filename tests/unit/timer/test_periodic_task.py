"""Work that comes round again, whatever becomes of one round."""

from odradek.timer import MockTimer, PeriodicTask, TimerTask


def test_a_failure_is_told_and_does_not_end_the_rounds():
    """Retention would end for ever at its first mistake, and the disk fill up."""
    told: list[Exception] = []

    def on_error(_task: TimerTask, error: Exception) -> None:
        told.append(error)

    timer = MockTimer(on_error=on_error)
    rounds: list[int] = []

    def work() -> None:
        rounds.append(timer.now_ms)
        if len(rounds) == 2:
            raise ValueError("the second round fails")

    PeriodicTask(timer, lambda: 100, work)
    timer.advance_clock(450)
    assert rounds == [100, 200, 300, 400]
    assert [str(error) for error in told] == ["the second round fails"]


def test_the_interval_is_asked_for_each_time():
    """A setting that an operator changes would hold from the next start on only."""
    timer = MockTimer()
    settings = {"interval": 100}
    rounds: list[int] = []
    PeriodicTask(timer, lambda: settings["interval"], lambda: rounds.append(timer.now_ms))
    timer.advance_clock(100)
    settings["interval"] = 1000
    timer.advance_clock(1200)
    assert rounds == [100, 200, 1200]
    settings["interval"] = 2**62
    timer.advance_clock(1000)
    assert rounds[-1] == 2200


def test_an_interval_that_cannot_be_told_once_does_not_end_the_rounds() -> None:
    """A setting that is read while it changes would end retention for good."""
    told: list[BaseException] = []
    timer = MockTimer(on_error=lambda task, error: told.append(error))
    rounds: list[int] = []

    def interval_ms() -> int:
        if len(rounds) in (2, 3):
            raise KeyError("log.retention.check.interval.ms")
        return 100 if len(rounds) < 5 else 1000

    PeriodicTask(timer, interval_ms, lambda: rounds.append(timer.now_ms))
    timer.advance_clock(1500)
    assert rounds == [100, 200, 300, 400, 500, 1500]
    assert [type(error) for error in told] == [KeyError] * 2


def test_work_may_end_its_own_rounds():
    """A broker that stops would be called after its end."""
    timer = MockTimer()
    rounds: list[int] = []

    def work() -> None:
        rounds.append(timer.now_ms)
        task.cancel()

    task = PeriodicTask(timer, lambda: 0, work)
    timer.advance_clock(10)
    assert rounds == [1]
    assert timer.size == 0


def test_the_interval_may_end_the_rounds() -> None:
    """It is asked for after the work; what it has cancelled would come round all the same."""
    timer = MockTimer()
    rounds: list[int] = []

    def interval_ms() -> int:
        if rounds:
            task.cancel()
        return 100

    task = PeriodicTask(timer, interval_ms, lambda: rounds.append(timer.now_ms))
    timer.advance_clock(1000)
    assert rounds == [100]
    assert timer.size == 0
