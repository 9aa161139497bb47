"""The broker's log about a start that takes long."""

from odradek.clock import ManualClock
from odradek.server.loading_report import LoadingReport
from odradek.storage.manager.logs_loader import LoadingProgress


def test_a_long_start_says_how_far_it_is(caplog) -> None:
    """An operator could not tell a long recovery from a broker that hangs."""
    caplog.set_level("INFO")
    clock = ManualClock(wall_ms=1_700_000_000_000)
    report = LoadingReport(clock)
    progress = LoadingProgress(40)
    for _ in range(110):
        clock.advance(100)
        progress.checked_bytes += 50_000_000
        report(progress)
    progress.loaded_logs = 40
    report(progress)
    assert [record.getMessage() for record in caplog.records] == [
        "opening logs: 0 of 40, 2500 MB checked, 500 MB/s",
        "opening logs: 0 of 40, 5000 MB checked, 500 MB/s",
    ]


def test_a_short_start_says_nothing(caplog) -> None:
    """Every start would fill the log with lines that nobody needs."""
    caplog.set_level("INFO")
    clock = ManualClock(wall_ms=1_700_000_000_000)
    report = LoadingReport(clock)
    for _ in range(1000):
        clock.advance(4)
        report(LoadingProgress(1000))
    assert caplog.records == []


def test_a_recovery_says_what_it_took_and_checked(caplog) -> None:
    """An operator could not tell whether, and how much, a crash had left to recover."""
    caplog.set_level("INFO")
    clock = ManualClock()
    report = LoadingReport(clock)
    progress = LoadingProgress(3)
    clock.advance(1_500)
    progress.checked_bytes, progress.loaded_logs = 2_300_000, 3
    report(progress)
    report.finish()
    assert [record.getMessage() for record in caplog.records] == [
        "recovered after an unclean end: 3 of 3 logs opened in 1.5 s, 2.3 MB checked"
    ]


def test_a_start_without_recovery_says_nothing_at_its_end(caplog) -> None:
    """Every orderly start would speak of a crash that was not."""
    caplog.set_level("INFO")
    report = LoadingReport(ManualClock())
    report.finish()
    report(LoadingProgress(3))
    report.finish()
    assert caplog.records == []
