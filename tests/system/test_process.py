"""`odradek start` as a process: the ready line, signals, what is refused."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.system.processes import STOP_TIMEOUT_S, CheckedBroker

from odradek.cli.start import is_compiled
from odradek.testing.processes import (
    BrokerProcess,
    ProcessFailed,
    ServerProcess,
    start_command,
)

pytestmark = pytest.mark.slow

READY_LINE = re.compile(
    r"odradek ready bootstrap=127\.0\.0\.1:\d+ broker=7 cluster=[\w-]{22} started_in_ms=\d+\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_then_a_controlled_shutdown(number: signal.Signals, tmp_path: Path) -> None:
    """Goal: what scripts rely on: one line on standard output, exit status 0 on both signals."""
    process = subprocess.Popen(
        start_command(tmp_path / "data", "--broker-id", "7", "--set", "no.such=1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=STOP_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    assert READY_LINE.fullmatch(line), line
    assert out == ""
    assert process.returncode == 0
    assert err.count("Unknown settings are ignored: no.such") == 1
    assert err.count("Running uncompiled") == (0 if is_compiled() else 1)
    assert "Traceback" not in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_directory_and_a_port_in_use_are_refused(tmp_path: Path) -> None:
    """Goal: one clear line and exit status 1, and the first broker is not disturbed."""
    with CheckedBroker(tmp_path) as first:
        for directory, port in [(tmp_path / "data", 0), (tmp_path / "other", first.port)]:
            second = subprocess.run(
                start_command(directory, port=port),
                capture_output=True,
                text=True,
                timeout=STOP_TIMEOUT_S,
                check=False,
            )
            assert second.returncode == 1
            assert second.stdout == ""
            assert "in use" in second.stderr
            assert len(second.stderr.splitlines()) == 1
        assert first.stop() == 0


def test_assertions_stay_on() -> None:
    """Goal: `python -O` would take the broker's own checks away, so it is refused."""
    refused = subprocess.run(
        [sys.executable, "-O", "-m", "odradek", "start"],
        capture_output=True,
        text=True,
        timeout=STOP_TIMEOUT_S,
        check=False,
    )
    assert refused.returncode == 1
    assert "python -O" in refused.stderr


def test_a_broker_that_does_not_start_leaves_its_last_words(tmp_path: Path) -> None:
    """Goal: whoever launches a broker sees why there is none, and no process is left."""
    broker = BrokerProcess(tmp_path / "data", "--set", "num.partitions=none")
    with pytest.raises(ProcessFailed, match=r"did not start:\n.*num\.partitions"):
        broker.start()


class Talker(ServerProcess):
    """A server that says a word, and then does as it is told."""

    says_when_ready = True

    def __init__(self, log: Path | None, status: int) -> None:
        program = (
            "import signal, sys\n"
            f"signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))\n"
            "print('out of thread', file=sys.stderr, flush=True)\n"
            "print('ready', flush=True)\n"
            "signal.pause()\n"
        )
        super().__init__([sys.executable, "-c", program], log)

    def await_ready(self, process: "subprocess.Popen[str]") -> None:
        """It says so."""
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"


def test_what_a_server_says_stays_in_its_log(tmp_path: Path) -> None:
    """Goal: a second start does not take away what the first has said."""
    log = tmp_path / "server.log"
    for _ in range(2):
        with Talker(log, 0) as server:
            assert server.last_words() == "\n".join(log.read_text().splitlines())
    assert log.read_text() == "out of thread\n" * 2


def test_a_server_that_does_not_end_in_order_is_told_of() -> None:
    """Goal: a broker that fails at its end does not pass for one that has ended well."""
    with (
        pytest.raises(ProcessFailed, match=r"status 3:\nout of thread"),
        Talker(None, 3) as server,
    ):
        assert server.pid
    with Talker(None, 3) as server:
        server.kill()


def test_a_broker_that_is_started_again_is_where_it_was(tmp_path: Path) -> None:
    """Clients of a broker that was killed would look for it in vain."""
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        address = broker.bootstrap_servers
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == address
