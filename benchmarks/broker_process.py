"""A broker of ours as a process, for benchmarks that measure it from outside."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

STOP_TIMEOUT_S = 120
LAST_LINES = 20


@contextlib.contextmanager
def broker_process(folder: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`odradek start` over `folder` that is ready, and its address; ended in order.

    What it logs is shown only when it does not start, or does not end as it should.
    """
    command = [sys.executable, "-m", "odradek", "start", "--data-dir", folder]
    listener = ["--listener", "PLAINTEXT://127.0.0.1:0"]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*command, *listener, *arguments], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None, "it is a pipe"
        try:
            ready = process.stdout.readline()
            found = re.findall(r"bootstrap=(\S+)", ready)
            if not found:
                process.wait(STOP_TIMEOUT_S)
                sys.exit(f"the broker did not start:\n{_last_lines(log)}")
            yield process, found[0]
            process.terminate()
            # A negative status is that of a benchmark that killed it.
            if process.wait(STOP_TIMEOUT_S) > 0:
                sys.exit(f"the broker did not end well:\n{_last_lines(log)}")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, its own code and the kernel for it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """The resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024


def _last_lines(log: IO[str]) -> str:
    log.seek(0)
    return "".join(log.readlines()[-LAST_LINES:])
