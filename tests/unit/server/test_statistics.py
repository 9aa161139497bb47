"""If these fail, what a broker counted is not there after it stopped, or keeps it from stopping."""

import json
from pathlib import Path

from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.server.statistics import STATISTICS_FILE, write_statistics
from odradek.timer import MockTimer


class Waiting(DelayedOperation):
    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None: ...

    def on_expiration(self) -> None: ...


def test_the_file_tells_who_waited_and_why_they_woke(tmp_path: Path) -> None:
    timer = MockTimer()
    purgatory = DelayedOperationPurgatory("Fetch", timer)
    purgatory.try_complete_else_watch(Waiting(10), ["key"])
    timer.advance_clock(10)
    write_statistics(str(tmp_path), [purgatory])
    counts = json.loads((tmp_path / STATISTICS_FILE).read_text())["purgatories"]["Fetch"]
    assert counts == {
        "watched": 1,
        "completed_at_once": 0,
        "completed_by_check": {},
        "completed": 1,
        "expired": 1,
    }


def test_a_directory_that_is_gone_is_only_logged(tmp_path: Path, caplog) -> None:
    write_statistics(str(tmp_path / "gone"), [])
    assert "No statistics" in caplog.text
