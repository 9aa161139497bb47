"""If these fail, the picture of replication is not of a run, or the page tells of another one."""

import re
from pathlib import Path

import pytest
from examples.replication.__main__ import main
from examples.replication.picture import draw
from examples.replication.story import Seen, Story, tell

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "replication.md"


@pytest.fixture(scope="module")
def story() -> Story:
    return tell()


def at(story: Story, seconds: int) -> Seen:
    (seen,) = [one for one in story.seen if one.ms == seconds * 1_000]
    return seen


def test_the_page_tells_what_happened(story: Story) -> None:
    """Log ends, high watermarks and moments in the page's table are those of the run."""
    assert at(story, 2).log_ends == {1: 4, 2: 4, 3: 4}
    assert at(story, 2).high_watermark == 4
    waiting = at(story, 8)
    assert (waiting.log_ends, waiting.high_watermark) == ({1: 7, 2: 7, 3: 4}, 4)
    shrunk = next(seen for seen in story.seen if seen.in_sync == {1, 2})
    assert (shrunk.ms, shrunk.high_watermark) == (20_000, 7)
    (long,) = [wait for wait in story.waits if wait.ended_ms > wait.began_ms]
    assert (long.began_ms, long.ended_ms, long.error) == (8_000, 20_000, None)
    assert at(story, 23).in_sync == {1, 2, 3}
    killed = at(story, 26)
    assert (killed.leader, killed.in_sync, killed.high_watermark) == (2, {2, 3}, 7)
    assert killed.epoch == at(story, 25).epoch + 1
    assert at(story, 29).log_ends == {2: 9, 3: 9}
    assert at(story, 34).in_sync == {1, 2, 3}

    rows = re.findall(r"^\| (\d+) s \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    moments = {ms // 1_000 for ms, _ in story.events} | {shrunk.ms // 1_000}
    assert sorted(map(int, rows)) == sorted(moments)


def test_the_high_watermark_never_goes_back(story: Story) -> None:
    """A record that a consumer has seen is gone."""
    marks = [seen.high_watermark for seen in story.seen if seen.high_watermark is not None]
    assert marks == sorted(marks)


def test_the_picture_is_the_pages(story: Story) -> None:
    """The page shows a run that does not happen any more."""
    kept = (PAGE.parent / "replication.svg").read_text(encoding="utf-8")
    assert draw(story) == kept


def test_bad_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback tells nobody what to type."""
    assert main([]) == 2
    assert "FILE.svg" in capsys.readouterr().err
    assert main([str(tmp_path / "none" / "x.svg")]) == 1
    assert "cannot write" in capsys.readouterr().err
