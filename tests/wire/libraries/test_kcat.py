"""kcat, the tool people have in their shells, against the broker."""

import json
import subprocess

import pytest
from tests.deadlines import deadline_s
from tests.wire.replicas import await_known, only_of_one

TIMEOUT_S = deadline_s(120)


@pytest.fixture
def run(kcat: str, bootstrap: str):
    """Runs kcat with arguments and standard input; returns what it printed."""

    def call(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [kcat, "-b", bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def write(run, bootstrap: str, topic: str):
    """Makes kcat write what is typed to the topic; returns when every broker knows that."""

    def call(*arguments: str, text: str) -> None:
        run("-P", "-t", topic, *arguments, text=text)
        await_known(bootstrap, topic)

    return call


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_goes_in_comes_out(run, write, topic, codec):
    """kcat cannot create a topic by producing to it, or reads something else back."""
    lines = [f"key-{n}:value {n}" for n in range(50)]
    write("-K", ":", "-z", codec, "-H", "a=b", text="\n".join(lines) + "\n")
    out = run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s|%h|%o\n")
    assert out.splitlines() == [f"{line}|a=b|{n}" for n, line in enumerate(lines)]


def test_offsets_by_time_and_from_the_end(run, write, topic):
    """`-o s@time`, `-Q` or a negative offset starts at the wrong record."""
    write(text="one\ntwo\nthree\n")
    stamps = run("-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%T\n")
    first = int(stamps.splitlines()[0])
    assert run("-Q", "-t", f"{topic}:0:{first}").strip() == f"{topic} [0] offset 0"
    out = run("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q")
    assert out.splitlines() == ["three"]
    out = run("-C", "-t", topic, "-p", "0", "-o", f"s@{first}", "-e", "-q")
    assert out.splitlines() == ["one", "two", "three"]


@only_of_one
def test_metadata_is_listed(run, write, topic, bootstrap):
    """Metadata names no leader, or not the address that the client came by."""
    write(text="one\n")
    listed = json.loads(run("-L", "-J", "-t", topic))
    [described] = [entry for entry in listed["topics"] if entry["topic"] == topic]
    broker = listed["brokers"][0]
    assert broker["name"] == bootstrap
    assert [p["leader"] for p in described["partitions"]] == [broker["id"]]
