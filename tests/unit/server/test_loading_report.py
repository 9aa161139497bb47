"""What the broker's log says of a start that takes long."""

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
