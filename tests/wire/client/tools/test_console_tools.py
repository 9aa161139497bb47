"""The console tools. If these fail, what was typed is stored, or shown, as something else."""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.deadlines import deadline_s

from odradek.cli.main import main

pytestmark = pytest.mark.slow
Tool = Callable[..., tuple[int, bytes, bytes]]
TIME_LIMIT_S = deadline_s(120)


@pytest.fixture
def console(bootstrap: str, topic: str) -> Tool:
    """Runs a console tool on the test's topic: status, output, errors."""

    def call(tool: str, *words: str, text: bytes = b"") -> tuple[int, bytes, bytes]:
        command = [sys.executable, "-m", "odradek", f"console-{tool}"]
        done = subprocess.run(
            [*command, "--bootstrap-server", bootstrap, "--topic", topic, *words],
            input=text,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
            env=os.environ,
        )
        return done.returncode, done.stdout, done.stderr

    return call


def test_lines_go_in_and_come_out(console: Tool) -> None:
    parse = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    lines = b"a:1,b:2\tk1\tv1\nx:\tk2\tNULL\nno:3\t\xff\tlast"
    sent = console("producer", *parse, "--reader-property", "null.marker=NULL", text=lines)
    assert sent == (0, b"", b"")
    shows = [f"print.{part}=true" for part in ("key", "headers", "partition", "offset")]
    flags = [word for show in shows for word in ("--formatter-property", show)]
    status, shown, said = console("consumer", "--from-beginning", "--max-messages", "3", *flags)
    assert (status, said) == (0, b"Processed a total of 3 messages\n")
    assert shown.splitlines() == [
        b"Partition:0\tOffset:0\ta:1,b:2\tk1\tv1",
        b"Partition:0\tOffset:1\tx:\tk2\tnull",
        b"Partition:0\tOffset:2\tno:3\t\xff\tlast",
    ]


def test_a_line_without_its_separator_is_named(console: Tool) -> None:
    status, shown, said = console(
        "producer", "--reader-property", "parse.key=true", text=b"nothing\n"
    )
    assert (status, shown) == (1, b"")
    assert said == b"No key separator found on line number 1: 'nothing'\n"


def test_a_consumer_begins_where_it_is_told_and_ends_in_time(console: Tool) -> None:
    console("producer", text=b"0\n1\n2\n")
    where = ["--partition", "0", "--offset", "1", "--timeout-ms", "2000"]
    assert console("consumer", *where)[:2] == (0, b"1\n2\n")
    assert console("consumer", "--offset", "1")[0] == 2
    wrong = console("consumer", "--partition", "0", "--offset", "soon")
    assert wrong[0] == 2
    assert b"'soon' is incorrect" in wrong[2]


def test_performance_is_told_in_kafkas_lines(
    bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", bootstrap, "--topic", topic]
    send = ["--num-records", "300", "--record-size", "10", "--throughput", "-1"]
    assert main(["producer-perf-test", *where, *send, "--command-property", "linger.ms=0"]) == 0
    sent = capsys.readouterr().out
    number = r"\d+\.\d+"
    assert re.fullmatch(
        rf"300 records sent, {number} records/sec \({number} MB/sec\), {number} ms avg latency, "
        rf"{number} ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        sent,
    )
    assert main(["consumer-perf-test", *where, "--num-records", "300"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert len(header.split(", ")) == len(row.split(", ")) == 10
    assert row.split(", ")[4] == "300"
