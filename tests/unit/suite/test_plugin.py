"""The rules for every test, tried on suites that break them, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ("-p", "tools.suite.plugin", "-p", "no:asyncio", "-p", "no:cacheprovider", "-W", "error")

CHILD = """
import sys, threading
print("said last", file=sys.stderr, flush=True)
print("ready", flush=True)
threading.Event().wait()
"""

HANGS = """
import subprocess
import sys
import threading

def test_that_hangs(tmp_path):
    command = [sys.executable, "-c", CHILD]
    with open(tmp_path / "log", "wb") as log:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    with child:
        try:
            child.stdout.readline()
            threading.Event().wait()
        finally:
            child.kill()

def test_behind_it():
    pass
"""

DIES = """
import os
import pytest

@pytest.mark.xdist_group("one")
def test_that_kills_its_worker():
    os._exit(3)

@pytest.mark.xdist_group("one")
def test_behind_it():
    pass
"""

TOGETHER = """
import os
from pathlib import Path
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(8))
def test_of_a_group(number):
    with Path(__file__).with_name("workers").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
    assert number != 7
"""

STARTS_A_RUN = """
import os
import subprocess
import sys

def test_that_starts_itself():
    if "INNER" not in os.environ:
        command = [sys.executable, "-m", "pytest", *OPTIONS, __file__]
        done = subprocess.run(command, env=os.environ | {"INNER": "1"})
        assert done.returncode == 0
"""

LEAKS = """
import socket

class Holder:
    pass

def test_that_leaves_a_socket_open():
    holder = Holder()
    holder.itself, holder.socket = holder, socket.socket()

def test_that_is_innocent():
    pass
"""

FAILS = """
import socket

def test_that_fails():
    each = socket.socket()
    assert False

def test_that_is_innocent():
    pass
"""

SLOW = """
import pytest

@pytest.mark.slow
def test_that_is_slow():
    pass

def test_that_is_quick():
    pass
"""

MISSING = """
import pytest

def test_that_needs_a_peer():
    pytest.skip("PEER MISSING, NOT TESTED: no network")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder whose tests run with the rules, and write a summary."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ODRADEK_SUMMARY", str(pytester.path / "summary.json"))
    pytester.makeini("[pytest]\nmarkers =\n  slow: slow\n  xdist_group: together\n")
    return pytester


def summary(suite: pytest.Pytester) -> dict:
    return json.loads((suite.path / "summary.json").read_text())


def test_a_test_that_hangs_fails_by_itself(suite: pytest.Pytester) -> None:
    """The run stands still, or nobody learns what the process that it waited for said last."""
    suite.makepyfile(f"CHILD = {CHILD!r}\n{HANGS}")
    done = suite.runpytest_subprocess(*OPTIONS, "-o", "timeout=2")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*threading.Event().wait()*", "*Timeout*", "said last"])


@pytest.mark.slow
def test_a_worker_that_dies_takes_one_test_with_it(suite: pytest.Pytester) -> None:
    """Its test runs again and kills the next worker, or the tests behind it are lost."""
    suite.makepyfile(DIES)
    done = suite.runpytest_subprocess(*OPTIONS, "-n", "2", "--dist", "loadgroup")
    assert done.ret == 1
    found = summary(suite)
    assert found["passed"] == 1
    assert len(found["failed"] + found["errors"]) == 1
    assert "test_that_kills_its_worker" in (found["failed"] + found["errors"])[0]


def test_a_long_parameter_is_named_by_its_length(suite: pytest.Pytester) -> None:
    """A report of a hundred megabytes is read by nobody, and takes the suite half a minute."""
    text = (
        "import pytest\n@pytest.mark.parametrize('a', ['x' * 201])\ndef test_it(a): assert not a\n"
    )
    path = suite.makepyfile(text)
    suite.runpytest_subprocess(*OPTIONS)
    assert summary(suite)["failed"] == [f"{path.name}::test_it[a of 201]"]


def test_tests_of_a_group_run_in_one_process(suite: pytest.Pytester) -> None:
    """Every process starts a Kafka of its own, or those that fail have names that nobody finds."""
    path = suite.makepyfile(TOGETHER)
    suite.runpytest_subprocess(*OPTIONS, "-n", "2", "--dist", "loadgroup")
    workers = (suite.path / "workers").read_text().split()
    assert (len(workers), len(set(workers))) == (8, 1)
    assert summary(suite)["failed"] == [f"{path.name}::test_of_a_group[7]"]


@pytest.mark.slow
def test_a_run_within_a_test_is_one_of_its_own(suite: pytest.Pytester) -> None:
    """A mutant whose tests another worker runs as well is found, whatever they say of it."""
    suite.makepyfile(f"OPTIONS = {OPTIONS!r}\n{STARTS_A_RUN}")
    done = suite.runpytest_subprocess(*OPTIONS, "-n", "1")
    done.assert_outcomes(passed=1)


def test_who_leaves_a_socket_open_is_blamed(suite: pytest.Pytester) -> None:
    """The next test fails for it, or one that runs when the collector does."""
    suite.makepyfile(LEAKS)
    done = suite.runpytest_subprocess(*OPTIONS)
    done.assert_outcomes(passed=2, errors=1)
    assert "test_that_leaves_a_socket_open" in summary(suite)["errors"][0]


@pytest.mark.slow
def test_what_a_failed_test_left_is_held_against_nobody(suite: pytest.Pytester) -> None:
    """The next test fails as well, and the failed one is not tried again."""
    suite.makepyfile(FAILS)
    suite.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
def test_no_slow_test_starts_when_the_time_is_up(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI ends in the middle of a test, and nothing lands."""
    suite.makepyfile(SLOW)
    monkeypatch.setenv("ODRADEK_SLOW_UNTIL", "1")
    suite.runpytest_subprocess(*OPTIONS).assert_outcomes(passed=1, skipped=1)
    assert "test_that_is_slow" in summary(suite)["left_out"][0]


@pytest.mark.parametrize(("peers", "outcome"), [("required", "failed"), ("", "skipped")])
def test_a_missing_peer_fails_where_it_is_required(
    peers: str, outcome: str, suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CI is green, and nothing was compared with Apache Kafka."""
    suite.makepyfile(MISSING)
    monkeypatch.setenv("ODRADEK_PEERS", peers)
    suite.runpytest_subprocess(*OPTIONS).assert_outcomes(**{outcome: 1})


PARENT = """
import subprocess, sys
from tools.suite import leftovers
leftovers.mark_this_process()
child = subprocess.Popen([sys.executable, "-c",
    "print('up', flush=True); import threading; threading.Event().wait()"])
print(child.pid, flush=True)
import threading
threading.Event().wait()
"""


def test_what_a_killed_run_left_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers of a run that was killed keep their ports, and the next run fails."""
    from tools.suite import leftovers

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        lines = {parent.stdout.readline().strip(), parent.stdout.readline().strip()}
        [child] = [int(line) for line in lines if line != "up"]
        assert not any(str(child) in ended for ended in leftovers.end_leftovers())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert any(ended.startswith(f"{child} ") for ended in leftovers.end_leftovers())
        assert parent.stdout.read() == ""
