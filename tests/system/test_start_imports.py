"""A broker imports nothing before it is ready that it has no use for yet.

If these fail, a broker takes longer to start than it has to, or more memory.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

TIMEOUT_S = deadline_s(120)
# Codecs, regular expressions and kio wait for the first who needs them; the rest is for tools,
# clusters and tables.
UNWANTED = {
    *("cramjam", "csv", "html", "kazoo", "kio", "lz4", "pathlib", "polars", "pyarrow", "re2"),
    *("decimal", "hashlib", "stringprep", "sysconfig", "zoneinfo"),
    "odradek.handlers.configs.describe_configs",
    "odradek.handlers.transactions.end_txn",
}
NOT_IN_PROCESS = {"argparse", "odradek.cli"}
# Of `odradek start` alone: a broker that is on its own asks no other, and clears no scratch folder.
UNWANTED_BY_START = {"bz2", "ipaddress", "lzma", "odradek.client.aio", "shutil", "tempfile"}
START = """
from odradek.cli.main import build_parser
build_parser(["start"]).parse_args(["start"])
import odradek.cli.before_start, odradek.server.broker
"""
IN_PROCESS = "import odradek, sys; odradek.Broker(data_dir=sys.argv[1]).start().stop()"


def imported(*command: str) -> set[str]:
    """The modules that a command has imported by its end."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@pytest.mark.slow
def test_a_broker_in_process_imports_what_it_needs(tmp_path: Path) -> None:
    """Every test run pays for what only some of them use."""
    modules = imported("-c", IN_PROCESS, str(tmp_path / "data"))
    assert "odradek.server.broker" in modules
    assert modules & (UNWANTED | NOT_IN_PROCESS) == set()


@pytest.mark.slow
def test_the_command_imports_no_client() -> None:
    modules = imported("-c", START)
    assert "odradek.server.broker" in modules
    assert modules & (UNWANTED | UNWANTED_BY_START) == set()
