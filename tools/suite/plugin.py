"""Rules for every test of the project, as a pytest plugin that `tests/conftest.py` loads.

- A test that hangs fails by itself (`timeout` in pyproject.toml, and `limits`), and shows what its
  processes said.
- A worker that died takes one test with it: the next worker reports that test as failed.
- What a test leaves to the garbage collector is collected before the next test starts, so that a
  warning about an open socket is held against the test that opened it.
- Past `ODRADEK_SLOW_UNTIL` (seconds since 1970) no slow test starts. It counts as left out.
- With `ODRADEK_PEERS=required` a missing peer fails its test.
- `ODRADEK_SUMMARY` names a file that gets the outcome of the run, and the seconds of each test.
"""

import contextlib
import gc
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
from _pytest.unraisableexception import collect_unraisable

from tools.suite import leftovers
from tools.suite.limits import grown, limit_s
from tools.suite.order import mixed

# The most characters of a parameter that the name of its test shows.
LONG_NAME: Final = 200
LEFT_OUT: Final = "left out for time"
PEER_MISSING: Final = "PEER MISSING"
HAS_FAILED: Final = pytest.StashKey[bool]()
LAST_WORDS: Final = pytest.StashKey[list[tuple[str, str]]]()


class Outcomes:
    """The outcome of each test, as the process that prints the report sees it."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.errors: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Takes the report of one phase of one test."""
        name = ungrouped(report.nodeid)
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration
        if report.failed:
            (self.errors if report.when in ("setup", "teardown") else self.failed).add(name)
        elif report.skipped:
            self.skipped[name] = str(report.longrepr)
        elif report.when == "call":
            self.passed.add(name)

    def as_json(self) -> str:
        """The summary, for `tools.suite.steps`."""
        left_out = sorted(name for name, why in self.skipped.items() if LEFT_OUT in why)
        failed = self.failed - self.errors
        return json.dumps(
            {
                "passed": len(self.passed - self.failed - self.errors),
                "failed": sorted(failed),
                "errors": sorted(self.errors),
                "skipped": len(self.skipped) - len(left_out),
                "left_out": left_out,
                "seconds": {name: round(value, 2) for name, value in self.seconds.items()},
            }
        )


def ungrouped(name: str) -> str:
    """A test's name without the group that xdist puts behind it."""
    return name.rpartition("@")[0] if name.rfind("@") > name.rfind("]") else name


def pytest_configure() -> None:
    """Marks this process, and ends what workers before it left."""
    leftovers.mark_this_process()
    leftovers.end_leftovers()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a long text by its length: pytest would put all of it into the name of its test, and
    the name into the report."""
    if isinstance(val, str | bytes) and len(val) > LONG_NAME:
        return f"{argname} of {len(val)}"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives slow tests the time of their folder, and all of them more on a slow machine, or for
    more rounds.

    Workers of xdist, side by side, take the files in another order.
    """
    usual = float(config.getini("timeout") or 0)
    for item in items if usual else ():
        limit = None
        if item.get_closest_marker("slow"):
            limit = limit_s(item.path.relative_to(config.rootpath).as_posix())
        item.add_marker(pytest.mark.timeout(grown(limit or usual)))
    if hasattr(config, "workerinput"):
        files = [item.path.relative_to(config.rootpath) for item in items]
        items[:] = [items[index] for index in mixed(files)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Starts no slow test when the time is up, and none that killed a worker."""
    until = float(os.environ.get("ODRADEK_SLOW_UNTIL", "inf"))
    if item.get_closest_marker("slow") and time.time() > until:  # noqa: TID251 - CI's own limit
        pytest.skip(LEFT_OUT)
    started = _started(item)
    if started is not None:
        if started.exists():
            started.unlink()
            pytest.fail("the worker that ran this test died", pytrace=False)
        started.touch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Collects what the test left, and fails it for what it should have closed."""
    try:
        yield
    finally:
        started = _started(item)
        if started is not None:
            started.unlink(missing_ok=True)
    _collect(item)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    """Keeps the last words of the test's processes when its time is up: its end ends them."""
    result = yield
    fail = signal.getsignal(signal.SIGALRM) if hasattr(signal, "SIGALRM") else None
    if callable(fail):

        def hear_then_fail(number: int, frame: FrameType | None) -> None:
            item.stash[LAST_WORDS] = list(leftovers.last_words())
            fail(number, frame)

        signal.signal(signal.SIGALRM, hear_then_fail)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that ran out of time shows the last words of the processes that it started."""
    report = yield
    item.stash[HAS_FAILED] = report.failed and call.when != "teardown"
    report.sections += item.stash.get(LAST_WORDS, [])
    item.stash[LAST_WORDS] = []
    missing = report.skipped and PEER_MISSING in str(report.longrepr)
    if missing and os.environ.get("ODRADEK_PEERS") == "required":
        report.outcome = "failed"
        report.longrepr = str(report.longrepr)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Counts; workers of xdist do too, and nobody reads theirs."""
    _outcomes.add(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the summary; a worker takes away its folder, the last one to the end."""
    home = _running_tests(session.config)
    if home is not None:
        with contextlib.suppress(OSError):
            home.rmdir()
    path = os.environ.get("ODRADEK_SUMMARY")
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(_outcomes.as_json(), encoding="utf-8")


_outcomes = Outcomes()


def _collect(item: pytest.Item) -> None:
    """Fails a test for what it left open, unless it failed before: then it got to no end."""
    if isinstance(item, pytest.Function):
        item.funcargs.clear()  # its fixtures are torn down
    if not item.stash.get(HAS_FAILED, False):
        _collect_new(item)
        return
    for name in ("last_exc", "last_value", "last_traceback"):
        vars(sys).pop(name, None)  # they hold the test's variables
    with contextlib.suppress(Warning):
        _collect_new(item)


def _collect_new(item: pytest.Item) -> None:
    """Collects; what is left stays, so that the next collection need not look at it again."""
    gc.collect()
    gc.freeze()
    collect_unraisable(item.config)


def _started(item: pytest.Item) -> Path | None:
    """A file that is there while the test runs in a worker of xdist."""
    home = _running_tests(item.config)
    if home is None:
        return None
    home.mkdir(exist_ok=True)
    return home / hashlib.sha256(item.nodeid.encode()).hexdigest()


def _running_tests(config: pytest.Config) -> Path | None:
    """The folder that the workers of a run share; None in a process that is no worker.

    The environment does not tell: a run that a test starts has the one of the test's worker.
    """
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    return worker and Path(tempfile.gettempdir()) / f"odradek-tests-{worker['testrunuid']}"
