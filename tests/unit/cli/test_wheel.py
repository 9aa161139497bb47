"""`odradek wheel`: what it shows is what the wheel does."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.deadlines import deadline_s
from tests.terminals import TERMINAL, read_until

from odradek.cli.main import main
from odradek.cli.wheel.drawing import draw_svg, draw_text, duration
from odradek.cli.wheel.screen import Screen
from odradek.cli.wheel.show import CommandError, WheelShow

# For a process to start and answer on a machine that has much else to do.
PATIENCE_S = deadline_s(300)


def test_the_demotions_of_the_worked_example_are_noted() -> None:
    """The show would hide the very thing it is there for."""
    show = WheelShow()
    show.add("b450", 450)
    show.step(500)
    assert show.snapshot().events == (
        "0 ms: b450 is added with 450 ms",
        "400 ms: b450 moves down from level 3 to 2, slot 2: 50 ms left",
        "440 ms: b450 moves down from level 2 to 1, slot 10: 10 ms left",
        "450 ms: b450 fires",
    )


def test_a_snapshot_says_where_everything_is() -> None:
    """Drawings take everything from it."""
    show = WheelShow()
    for command in ("add a 2", "add b 350", "step 1"):
        show.do(command)
    snapshot = show.snapshot()
    assert (snapshot.now_ms, snapshot.next_due_ms) == (1, 2)
    assert [(one.name, one.level, one.slot) for one in snapshot.tasks] == [
        ("a", 1, 2),
        ("b", 2, 17),
    ]
    assert [(level.tick_ms, level.hand_slot, sum(level.counts)) for level in snapshot.levels] == [
        (1, 1, 1),
        (20, 0, 1),
    ]


def test_next_goes_from_bucket_to_bucket_and_stops_at_none() -> None:
    """The key `b` must not run into nothing."""
    show = WheelShow()
    show.add("a", 30)
    show.do("next")
    assert show.now_ms == 20
    show.do("next")
    show.do("next")
    assert (show.now_ms, show.names) == (30, [])


@pytest.mark.parametrize(
    "command",
    ["", "add a", "add a -5", "add a x", "step", "cancel nobody", "jump 5", f"step {10**15}"],
)
def test_commands_that_make_no_sense_are_refused(command: str) -> None:
    """A slip of the pen in a script should be told, not skipped."""
    with pytest.raises(CommandError):
        WheelShow().do(command)


def test_text_marks_hand_and_counts() -> None:
    """The picture must be readable without colours as well."""
    show = WheelShow(wheel_size=4)
    for name in ("a", "b"):
        show.add(name, 2)
    show.step(1)
    lines = draw_text(show.snapshot()).splitlines()
    assert lines[0] == "time 1 ms   pending 2   next due 2 ms"
    assert lines[2] == "level 1   bucket 1 ms   turn 4 ms"
    assert lines[4].split() == [".", "[.", "]", "2", "."]
    assert "\x1b" not in "".join(lines)
    assert "\x1b" in draw_text(show.snapshot(), colour=True)


def test_a_picture_is_well_formed_whatever_the_names() -> None:
    """One sharp bracket in a name would break the page."""
    show = WheelShow()
    show.add("<a&b>", 5)
    root = ElementTree.fromstring(draw_svg(show.snapshot(), "a < b"))
    assert root.tag.endswith("svg")
    assert any(element.text == "<a&b>" for element in root.iter())


def test_durations_read_well() -> None:
    """People do not read 160000 ms."""
    assert [duration(ms) for ms in (20, 8000, 160_000, 3_200_000 * 20)] == [
        "20 ms",
        "8 s",
        "2.67 min",
        "17.8 h",
    ]


def shown(screen: Screen, columns: int = 100, rows: int = 40) -> str:
    """A frame without colours."""
    return "\n".join(screen.frame(columns, rows, colour=False))


def test_keys_move_the_wheel() -> None:
    """Every key of the help line does what the line says."""
    screen = Screen(1, 20)
    assert screen.obey("alntb?")
    assert "pending 1" in shown(screen)
    assert screen.obey("cc")
    assert "pending 0" in shown(screen)
    assert "(paused)" in shown(screen)
    screen.obey(" ")
    assert "running" in shown(screen)
    screen.obey("r")
    assert shown(screen).startswith("time 0 ms")
    assert not screen.obey("aq")
    assert "pending 1" in shown(screen)


@pytest.mark.parametrize("wheel_size", [2, 20, 40])
@pytest.mark.parametrize(("columns", "rows"), [(200, 60), (80, 24), (60, 20), (40, 12), (24, 8)])
def test_a_frame_fits_its_terminal(wheel_size: int, columns: int, rows: int) -> None:
    """Lines that wrap, or are scrolled off, are a picture that nobody can read."""
    screen = Screen(1, wheel_size)
    screen.obey("lalalalalabn")
    lines = screen.frame(columns, rows, colour=False)
    assert len(lines) < rows
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("time ")
    assert any("q quit" in line for line in lines)
    assert any("level 1" in line or "columns are needed" in line for line in lines)


def test_what_happens_now_stands_out() -> None:
    """Among a page of events the eye must find the one that a key has caused."""
    screen = Screen(1, 20)
    screen.obey("ab")
    fired = next(line for line in screen.frame(80, 24) if "fires" in line)
    added = next(line for line in screen.frame(80, 24) if "is added" in line)
    assert "\x1b[" in fired
    assert "\x1b[" not in added


@pytest.mark.slow
def test_a_person_can_play_with_it_in_a_terminal() -> None:
    """The whole command over a real terminal: keys, a new size, and the way out."""
    terminal, inside = os.openpty()
    command = [sys.executable, "-m", "odradek", "wheel"]
    process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=TERMINAL)
    os.close(inside)
    try:
        read_until(terminal, "q quit", PATIENCE_S)
        os.write(terminal, b"l\x1b[Cb")
        read_until(terminal, "moves down from level 3 to 2", PATIENCE_S)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 30, 0, 0))
        # It is not this terminal's session, which the kernel would tell of the new size.
        process.send_signal(signal.SIGWINCH)
        read_until(terminal, "40 columns are needed for 20", PATIENCE_S)
        os.write(terminal, b"q")
        read_until(terminal, "\x1b[?1049l", PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_the_command_plays_the_worked_example_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a pipe there is nobody to press keys."""
    assert main(["wheel"]) == 0
    shown = capsys.readouterr().out
    assert "400 ms: b450 moves down from level 3 to 2" in shown
    assert "450 ms: b450 fires" in shown


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read one object a command."""
    assert main(["wheel", "--do", "add a 5; next", "--format", "json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["tasks"][0]["name"] == "a"
    assert second["tasks"] == []
    assert second["events"][-1] == "5 ms: a fires"


def test_the_command_writes_pictures(tmp_path: Path) -> None:
    """The documents' pictures are made by this."""
    assert main(["wheel", "--do", "add a 5; step 1", "--svg", str(tmp_path / "new")]) == 0
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["1.svg", "2.svg"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--wheel-size", "1"],
        ["--wheel-size", "99"],
        ["--tick-ms", "0"],
        ["--tick-ms", str(10**30)],
        ["--do", "hop"],
    ],
)
def test_wrong_usage_exits_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One clear line, no traceback."""
    assert main(["wheel", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_pictures_that_cannot_be_written_exit_with_1(tmp_path: Path) -> None:
    """A file where the directory should be."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    command = [sys.executable, "-m", "odradek", "wheel", "--do", "step 1", "--svg", str(blocked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (1, f"odradek: {blocked}: File exists\n")


DOCS = Path(__file__).parents[3] / "docs" / "concepts"


def test_the_documents_pictures_are_what_the_code_draws(tmp_path: Path) -> None:
    """The page would tell of a wheel that no longer exists."""
    text = (DOCS / "timing-wheels.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r'^odradek wheel --svg (\S+) +--do "([^"]+)"', text, re.MULTILINE)
    assert len(commands) == 2
    for directory, steps in commands:
        assert main(["wheel", "--svg", str(tmp_path / directory), "--do", steps]) == 0
        for picture in sorted((DOCS.parents[1] / directory).iterdir()):
            drawn = (tmp_path / directory / picture.name).read_text(encoding="utf-8")
            assert drawn == picture.read_text(encoding="utf-8"), picture.name
