"""The steps of `./test`: what decides, what gets a second try, and what the closing lines say."""

import itertools
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools import peers
from tools.requirements import requirements
from tools.suite import leftovers
from tools.suite.__main__ import main, parts
from tools.suite.limits import LAST_RESORT_S, LIMITS_S, limit_s
from tools.suite.parts import CORE, PARTS, UNSTEADY, core_tests, part_of
from tools.suite.steps import Commands, PytestRun, Result, closing_lines, run_all

from odradek.cli.local_cluster import zookeeper

ROOT = Path(__file__).resolve().parents[3]

ONCE = """
from dataclasses import replace
from pathlib import Path

def test_that_fails_once():
    first = Path(__file__).with_name("first")
    is_first = not first.exists()
    first.touch()
    assert not is_first

def test_that_passes():
    pass
"""


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tools.suite.steps.TIMES", tmp_path / "times")
    monkeypatch.setattr("tools.suite.steps.ROOT", tmp_path)
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tools.suite.plugin"]\n')


def suite_of(tmp_path: Path, text: str) -> PytestRun:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    return PytestRun("it", [str(path)], {"PYTHONPATH": str(ROOT)}, processes=1)


def test_what_fails_once_is_tried_again_and_named(tmp_path: Path) -> None:
    """A test that is late beside others fails a right change, or nobody hears of it."""
    result = suite_of(tmp_path, ONCE).run()
    assert (result.is_passed, result.passed, result.failed) == (True, 2, [])
    assert ["test_that_fails_once" in each for each in result.second_try] == [True]
    assert "passed on the second try: " in closing_lines([result])


@pytest.mark.slow
def test_of_two_that_fail_the_one_that_passes_then_is_named(tmp_path: Path) -> None:
    """A test that is late beside others hides behind a fault, or is taken for one."""
    result = suite_of(tmp_path, f"{ONCE}\ndef test_that_fails():\n    assert False\n").run()
    assert (result.is_passed, result.passed) == (False, 2)
    assert ["test_that_fails_once" in each for each in result.second_try] == [True]
    assert [each.endswith("::test_that_fails") for each in result.failed] == [True]


@pytest.mark.slow
def test_an_unsteady_test_is_reported_and_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that nobody can mend today refuses what is right, or is forgotten."""
    monkeypatch.setitem(UNSTEADY, "test_it.py::test_that_fails", "a port is taken")
    result = suite_of(tmp_path, "def test_that_fails(): assert 0\ndef test_other(): ...\n").run()
    assert (result.is_passed, result.passed, result.failed) == (True, 1, [])
    told = "failed, unsteady: test_it.py::test_that_fails (a port is taken)"
    assert told in closing_lines([result]).splitlines()
    both = suite_of(tmp_path, "def test_that_fails(): assert 0\ndef test_other(): assert 0\n").run()
    assert (both.is_passed, both.failed) == (False, ["test_it.py::test_other"])


def test_no_test_is_unsteady() -> None:
    """The list is for a day: a cause that is known is mended."""
    assert UNSTEADY == {}


@pytest.mark.slow
def test_a_second_try_has_the_plugins_of_the_first(tmp_path: Path) -> None:
    """A test that fails on a laptop passes on the second try, where nothing is taken away."""
    (tmp_path / "takes_away.py").write_text("import os\nos.environ['TAKEN_AWAY'] = 'yes'\n")
    text = "import os\ndef test_it():\n    assert 'TAKEN_AWAY' not in os.environ\n"
    first = suite_of(tmp_path, text)
    path = f"{ROOT}:{tmp_path}"
    step = PytestRun("it", first.selects, {"PYTHONPATH": path}, 1, plugins=["takes_away"])
    assert not step.run().is_passed


def test_files_of_the_first_try_alone_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that memory fails, full as it is, fails twice."""
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    monkeypatch.setattr(leftovers, "ROOM", 0)
    text = (
        "import tempfile\nfrom pathlib import Path\n"
        "def test_it(): assert Path(tempfile.gettempdir()).parent != Path(__file__).parent\n"
    )
    result = replace(suite_of(tmp_path, text), in_memory=True).run()
    assert result.second_try == ["test_it.py::test_it"]


@pytest.mark.parametrize("words", [["--part", "kills", "-k", "it"], ["--all", "tests/unit"]])
def test_a_part_takes_no_arguments_for_pytest(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The part is passed over in silence, and something else runs."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "take no arguments for pytest" in capsys.readouterr().err


@pytest.mark.slow
def test_what_fails_twice_fails_the_run(tmp_path: Path) -> None:
    """A fault lands."""
    result = suite_of(tmp_path, "def test_that_fails():\n    assert False\n").run()
    assert not result.is_passed
    assert closing_lines([result]).splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


@pytest.mark.slow
def test_a_broken_fixture_gets_no_second_try(tmp_path: Path) -> None:
    """A fixture that found a traceback in a broker's log passes when nothing is asked of it."""
    text = "import pytest\n@pytest.fixture\ndef broken():\n    assert 0\ndef test_it(broken): ...\n"
    result = suite_of(tmp_path, text).run()
    assert not result.is_passed
    assert result.second_try == []


def test_a_run_without_a_summary_has_failed(tmp_path: Path) -> None:
    """A pytest that died before its first test is taken for one whose tests all passed."""
    result = suite_of(tmp_path, "import os\nos._exit(0)\n").run()
    assert not result.is_passed
    assert closing_lines([result]).splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_core_that_was_left_out_fails(tmp_path: Path) -> None:
    """A slow machine lands what nobody tried."""
    step = suite_of(
        tmp_path, "import pytest\n@pytest.mark.slow\ndef test_it(): ...\ndef test_other(): ...\n"
    )
    environment = step.environment | {"ODRADEK_SLOW_UNTIL": "1"}
    core = PytestRun(step.name, step.selects, environment, processes=1, is_complete=True)
    result = core.run()
    assert not result.is_passed
    assert "left out for time: 1, run ./test --part units" in closing_lines([result])


def test_it_is_said_which_parts_hold_what_was_left_out() -> None:
    """The message does not say what to run instead."""
    tests = ["tests/wire/spark/test_source.py::test_it", "tests/system/kills/test_kill.py::test_it"]
    lines = closing_lines([Result("core", 1.0, is_passed=False, left_out=tests)]).splitlines()
    assert [f"left out for time: {test}" for test in tests] == lines[-4:-2]
    assert lines[-2] == "left out for time: 2, run ./test --part kills, ./test --part spark"


def test_a_part_that_takes_too_long_is_named() -> None:
    """Parts grow until nobody runs them, and nobody knows which to divide."""
    parts = [Result(name, 1200.0, is_passed=True) for name in ("spark", "laptops")]
    assert "longer" not in closing_lines(parts)
    for part in parts:
        part.seconds += 1
    core = Result("core", 9000.0, is_passed=True)
    assert closing_lines([*parts, core]).splitlines()[-3:] == [
        "longer than the 20 minutes of a part: spark",
        "longer than the 20 minutes of a part: laptops",
        "0 passed, 0 failed, 0 skipped",
    ]


def test_a_step_that_fails_keeps_no_other_from_running(capfd: pytest.CaptureFixture[str]) -> None:
    """The first fault hides all others until the next run."""
    false, true = [sys.executable, "-c", "exit(1)"], [sys.executable, "-c", "print('ran')"]
    assert not run_all([Commands("bad", [false]), Commands("good", [true])], [])
    shown = capfd.readouterr().out
    assert "ran" in shown
    assert shown.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"
    assert run_all([Commands("peers", [false], decides=False)], [Result("setup", 1.0, True)])


def test_the_list_says_what_each_part_holds_and_how_long_it_took(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A part that runs other commands than pytest is for nobody to know."""
    monkeypatch.setattr("tools.suite.__main__.TIMES", tmp_path / "times")
    run_all([Commands("newest", [[sys.executable, "-c", ""]])], [])
    capsys.readouterr()
    assert main(["--list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert all(lines[part][32:].strip() for part in parts())
    assert lines["newest"][:30].split()[1:] == ["0"]


def test_every_test_of_the_core_is_there() -> None:
    """The core names a test that was renamed, and tries less than it says."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "slow", *core_tests()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert sorted(line for line in done.stdout.splitlines() if "::" in line) == sorted(core_tests())
    assert all(CORE.values())


def test_every_test_file_has_one_part_and_every_path_of_a_part_is_there() -> None:
    """A slow test is in no part of --all."""
    assert all((ROOT / path).exists() for paths in PARTS.values() for path in paths)
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert {part_of(path) for path in files} == set(PARTS)
    assert part_of("tests/system/spark/test_lake.py") == "lake"
    assert part_of("tests/system/spark/test_cut.py") == "spark-processes"


def test_the_lock_is_within_the_ranges_of_the_project() -> None:
    """The packages that setup installs are not those that pyproject.toml promises to work with: run
    tools/lock."""
    lines = (ROOT / "tools" / "requirements.lock").read_text().splitlines()
    locked: dict[str, list[Requirement]] = {}
    for line in lines:
        each = Requirement(line)
        if each.marker is None or each.marker.evaluate():
            locked.setdefault(each.name.lower(), []).append(each)
    for text in requirements(ROOT / "pyproject.toml"):
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate():
            continue
        [found] = locked[wanted.name.lower().replace("_", "-")]
        [exact] = found.specifier
        assert exact.operator == "=="
        assert wanted.specifier.contains(exact.version), f"{wanted} is locked at {exact.version}"


def test_whatever_is_installed_is_what_the_lock_says() -> None:
    """A release of somebody else's turns a gate red that was green yesterday."""
    for path in ("tools/setup", ".github/workflows/test.yml", "tests/system/test_install.py"):
        text = (ROOT / path).read_text()
        assert "PIP_BUILD_CONSTRAINT" in text, f"{path} builds with the newest"
        assert "requirements.lock" in text


def test_what_makes_the_environment_is_of_one_version() -> None:
    """A machine whose Python has no venv gets the newest virtualenv, with the newest pip."""
    lines = (ROOT / "tools" / "setup.lock").read_text().splitlines()
    locked = {each.name: str(each.specifier) for each in map(Requirement, lines)}
    assert "virtualenv" in locked
    assert all(re.fullmatch("==[^,*]+", version) for version in locked.values())
    assert "-r tools/setup.lock" in (ROOT / "tools" / "setup").read_text()


def test_every_peer_is_of_one_version() -> None:
    """As above: a set from PyPI brings along the newest of what it needs."""
    lines = (ROOT / "tools" / "peers.lock").read_text().splitlines()
    locked = {each.name: each for each in map(Requirement, lines)}
    assert all(re.fullmatch("==[^,*]+", str(each.specifier)) for each in locked.values())
    for package in map(Requirement, (*peers.LAKE_READERS, *peers.S3_SERVER)):
        assert locked[package.name].specifier == package.specifier
    artifacts = [*peers.KAFKA_ARTIFACTS, *peers.ZOOKEEPER_KAFKA_ARTIFACTS, *zookeeper.ARTIFACTS]
    artifacts += [*peers.SPARK_CONNECTOR_ARTIFACTS, *peers.LAKE_ARTIFACTS, *peers.S3_ARTIFACTS]
    artifacts += itertools.chain(peers.OLD_CLIENT_LOGGING, *peers.OLD_CLIENT_ARTIFACTS.values())
    assert all(re.fullmatch(r"[^:]+:[^:]+:\d[\w.]*", each) for each in artifacts)


def test_python_of_the_project_is_what_the_lock_was_made_for() -> None:
    """The lock holds what the oldest Python cannot install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert f"--python-version {oldest} " in (ROOT / "tools" / "lock").read_text()


def test_every_limit_is_of_a_path_that_is_there() -> None:
    """A folder that moved has two minutes again, and its tests fail on a busy machine."""
    assert all((ROOT / path).exists() for path in LIMITS_S)
    assert limit_s("tests/wire/spark/test_source.py") == LIMITS_S["tests/wire/spark"][0]
    assert limit_s("tests/property/test_frames.py") is None


def test_nothing_ends_a_test_before_its_limit() -> None:
    """A process that is still at work is ended as one that sees no signal."""
    ini = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert ini["faulthandler_timeout"] == LAST_RESORT_S
    assert max(limit for limit, _ in LIMITS_S.values()) < LAST_RESORT_S


@pytest.mark.parametrize(
    ("words", "rounds"), [("--all", "1"), ("--part kills", "1"), ("--part kills --rounds 4", "4")]
)
def test_everything_is_also_what_runs_for_rounds_only(
    words: str, rounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--all` is green, and what waits for `ODRADEK_ROUNDS` never ran."""
    monkeypatch.setenv("ODRADEK_ROUNDS", "")  # so that it is put back
    monkeypatch.delenv("ODRADEK_ROUNDS")
    monkeypatch.setattr("tools.suite.__main__._run", lambda options: 0)
    assert main(words.split()) == 0
    assert os.environ["ODRADEK_ROUNDS"] == rounds


def test_the_weekly_workflow_runs_every_part() -> None:
    """A part is added, and nobody ever runs it."""
    text = (ROOT / ".github" / "workflows" / "everything.yml").read_text()
    listed = re.findall(r"^          - ([a-z-]+)$", text, re.MULTILINE)
    assert listed == list(parts())
