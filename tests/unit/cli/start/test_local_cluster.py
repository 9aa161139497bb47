"""`odradek cluster start`: what is worked out and refused before anything runs."""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from odradek.cli import start
from odradek.cli.local_cluster import java, zookeeper
from odradek.cli.local_cluster.control import ClusterEnded, answering, ask
from odradek.cli.local_cluster.kept_process import KeptProcess
from odradek.cli.local_cluster.start import broker_flags, broker_settings, planned_state
from odradek.cli.local_cluster.state import ClusterState, held, load
from odradek.cli.main import build_parser, main
from odradek.server.errors import StartError

CORES = len(os.sched_getaffinity(0))


@pytest.fixture
def no_zookeeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with neither ZooKeeper nor Maven; the folder that the path names."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(zookeeper, "_SCRIPTS", ())
    return programs


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def flags(*words: str) -> argparse.Namespace:
    line = ["cluster", "start", "--data-dir", "DIR", *words]
    return build_parser(line).parse_args(line)


@pytest.mark.parametrize(
    ("words", "known", "ports"),
    [
        (["-n", "3"], None, [9092, 9093, 9094]),
        ([], None, list(range(9092, 9092 + CORES))),
        (["-n", "2", "--port", "7000"], None, [7000, 7001]),
        ([], [5, 9], [5, 9]),
        (["-n", "4"], [5, 9], [5, 9, 10, 11]),
        (["--port", "7000"], [5, 9], [7000, 7001]),
    ],
)
def test_ports_are_those_of_the_directory_and_follow_each_other(
    words: list[str], known: list[int] | None, ports: list[int]
) -> None:
    """A cluster would come back elsewhere, or with fewer brokers than have its partitions."""
    state = planned_state(flags(*words), ClusterState(known) if known else None)
    assert state == ClusterState(ports)


def test_an_ensemble_may_have_moved() -> None:
    """After a mistyped address the cluster could not be started with the right one."""
    state = planned_state(flags("--zookeeper", "b:1"), ClusterState([1, 2], "a:1"))
    assert state == ClusterState([1, 2], "b:1")
    assert planned_state(flags(), ClusterState([1, 2], "a:1")) == ClusterState([1, 2], "a:1")


def test_free_ports_are_different_ones() -> None:
    """Port 0 means any, for each of them."""
    ports = planned_state(flags("-n", "3", "--port", "0"), None).ports
    assert len(set(ports)) == 3
    assert 0 not in ports


@pytest.mark.parametrize(
    ("words", "known", "says"),
    [
        (["-n", "2"], ClusterState([1, 2, 3]), "a cluster of 3 brokers"),
        (["-n", "3", "--port", "65534"], None, "no 3 ports from 65534"),
    ],
)
def test_what_does_not_go_together(words: list[str], known: ClusterState | None, says: str) -> None:
    """Brokers would be left behind with their records, or meet another cluster."""
    with pytest.raises(StartError, match=says):
        planned_state(flags(*words), known)


def test_the_settings_of_all_brokers(tmp_path: Path) -> None:
    """Records that all have acknowledged have to survive a broker, unless somebody wants it
    otherwise."""
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nmin.insync.replicas=3\n", encoding="utf-8")
    settings = broker_settings(str(file), [("num.partitions", "5")], 3)
    assert settings["num.partitions"] == "5"
    assert settings["min.insync.replicas"] == "3"
    assert settings["default.replication.factor"] == "3"
    assert settings["transaction.state.log.min.isr"] == "2"
    alone = broker_settings(None, [], 1)
    assert {*alone.values()} == {"1"}


def test_references_are_left_to_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret would be a word of each broker's command, which everybody on the machine can read,
    and one that looks like a reference would be looked through once more."""
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    given = [
        ("config.providers", "env"),
        ("config.providers.env.class", provider),
        ("num.partitions", "${env:PARTITIONS}"),
    ]
    monkeypatch.setenv("PARTITIONS", "5")
    assert broker_settings(None, given, 1).items() >= dict(given).items()
    monkeypatch.setenv("PARTITIONS", "many")
    with pytest.raises(StartError, match=r"num\.partitions"):
        broker_settings(None, given, 1)


def test_a_file_of_settings_is_left_to_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in it would be a word of each broker's command, which everybody can read."""
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nssl.key.password=secret\nmin.insync.replicas=3\n")
    monkeypatch.chdir(tmp_path)
    flags = broker_flags(file.name, [("num.partitions", "5")], 3)
    assert not any("secret" in flag for flag in flags)
    monkeypatch.chdir("/")
    parser = argparse.ArgumentParser()
    start.add_arguments(parser)
    settings = start.collect_settings(parser.parse_args(flags))
    assert settings.items() >= broker_settings(str(file), [("num.partitions", "5")], 3).items()


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("broker.id", "1", "numbered from 1"),
        ("listeners", "PLAINTEXT://:1", "--port"),
        ("log.dirs", "x", "--data-dir"),
        ("zookeeper.connect", "x", "--zookeeper"),
        ("num.partitions", "none", "num.partitions"),
        ("metrics.listener", "http://127.0.0.1:9404", "gives port 9404 to each of 3 brokers, "),
    ],
)
def test_settings_that_cannot_be_those_of_all(name: str, value: str, says: str) -> None:
    """Three brokers with one id would start, and two of them end with an error of ZooKeeper's."""
    with pytest.raises(StartError, match=says):
        broker_settings(None, [(name, value)], 3)


def test_metrics_of_one_broker_or_at_free_ports() -> None:
    """A cluster with metrics would be refused; `--port` says where clients are served."""
    broker_settings(None, [("metrics.listener", "http://127.0.0.1:9092")], 1)
    broker_settings(None, [("metrics.listener", "http://127.0.0.1:0")], 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is damaged"), ('{"ports": []}', "is damaged"), ('{"port": 1}', "is damaged")],
)
def test_a_damaged_file_of_the_cluster(text: str, says: str, tmp_path: Path) -> None:
    """A file that somebody has edited ends in a traceback."""
    (tmp_path / "cluster.json").write_text(text, encoding="utf-8")
    with pytest.raises(StartError, match=says):
        load(tmp_path)


def test_what_the_directory_knows(tmp_path: Path) -> None:
    """The state is not what was saved."""
    assert load(tmp_path / "new") is None
    state = ClusterState([1, 2], "a:1", {"1": 7})
    state.save(tmp_path)
    assert load(tmp_path) == state


def test_a_directory_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody's home becomes a cluster's."""
    (tmp_path / "letters").touch()
    assert main(["cluster", "start", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"odradek: {tmp_path} holds what is not a cluster's")
    assert os.listdir(tmp_path) == ["letters"]


def test_two_starts_in_one_directory(tmp_path: Path) -> None:
    """Two processes keep the same brokers, and restart what the other has stopped."""
    with held(tmp_path), pytest.raises(StartError, match="running already"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ZooKeeper and two brokers come up before the third says so."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--data-dir", str(tmp_path / "c"), "--port", str(port), "-n", "1"]
        assert main(["cluster", "start", *words]) == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    assert load(tmp_path / "c") is None


@pytest.mark.parametrize("command", ["restart", "status", "stop"])
def test_nobody_to_ask(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a cluster, and where one was killed, there is a sentence and no traceback."""
    for directory in (tmp_path / "none", tmp_path):
        assert main(["cluster", command, "--data-dir", str(directory)]) == 1
        assert "No cluster runs in" in capsys.readouterr().err


def test_what_a_killed_one_leaves_behind(tmp_path: Path) -> None:
    """After a `kill -9` a cluster could neither be asked nor started again."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / ".cluster.sock"))

    async def on_request(request, say):
        say(request)

    async def scenario():
        said = []
        with pytest.raises(StartError, match="No cluster runs"):
            await ask(tmp_path, "do", said.append)
        async with answering(tmp_path, on_request):
            await ask(tmp_path, "do", said.append)
        assert said == ["do"]

    asyncio.run(scenario())


def test_requests_between_commands(tmp_path: Path) -> None:
    """An event, a refusal and an end reach the asking command, however long the path is."""
    directory = tmp_path / ("long" * 30)
    directory.mkdir()

    async def on_request(request, say):
        say(f"{request} heard")
        if request == "refuse":
            raise StartError("not now")

    async def scenario():
        said = []
        async with answering(directory, on_request):
            await ask(directory, "do", said.append)
            with pytest.raises(StartError, match="not now"):
                await ask(directory, "refuse", said.append)
        assert said == ["do heard", "refuse heard"]

    asyncio.run(scenario())
    assert os.listdir(directory) == []


def test_a_cluster_that_ends_before_it_answers(tmp_path: Path) -> None:
    """`cluster stop` waits for this very end; for everything else it is a failure."""

    async def scenario():
        async def hang_up(reader, writer):
            writer.close()

        server = await asyncio.start_unix_server(hang_up, str(tmp_path / ".cluster.sock"))
        with pytest.raises(ClusterEnded):
            await ask(tmp_path, "stop", print)
        server.close()

    asyncio.run(scenario())


def test_who_waits_for_the_end_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`cluster stop` has the cluster end with a traceback."""

    async def hang(request, say):
        say("heard")
        await asyncio.Event().wait()

    async def scenario():
        heard = asyncio.Event()
        async with answering(tmp_path, hang):
            asking = asyncio.create_task(ask(tmp_path, "stop", lambda _: heard.set()))
            await heard.wait()
        return asking

    asyncio.run(scenario())
    assert caplog.records == []


def test_a_process_that_ends(tmp_path: Path) -> None:
    """A broker dies and nobody is told, or one that was stopped is told of."""

    async def scenario():
        told = asyncio.Queue()
        process = KeptProcess("Broker 2", tmp_path / "log", told.put_nowait)
        words = "echo ready; echo first >&2; echo odradek: last >&2; exit 3"
        await process.launch(["sh", "-c", words], speaks=True)
        assert await process.first_line() == "ready"
        process.watch()
        assert await told.get() == "Broker 2 ended with status 3; its last line: last"
        await process.launch(["sleep", "1000"])
        process.watch()
        assert await process.stop()
        assert process.pid is None
        await process.launch(["sleep", "1000"])
        process.watch()
        os.kill(process.pid, signal.SIGKILL)
        assert (await told.get()).startswith("Broker 2 was ended by SIGKILL")

    asyncio.run(scenario())


def test_a_process_that_does_not_start(tmp_path: Path) -> None:
    """The reason stays in a log that nobody was told of."""

    async def scenario():
        process = KeptProcess("Broker 2", tmp_path / "log", print)
        await process.launch(["sh", "-c", "echo odradek: no disk >&2"], speaks=True)
        with pytest.raises(StartError, match="Broker 2 did not start: no disk"):
            await process.first_line()

    asyncio.run(scenario())


def test_without_zookeeper_one_is_told_what_to_type(no_zookeeper: Path) -> None:
    """The words are a traceback of a missing program."""
    with pytest.raises(StartError, match="add --fetch-zookeeper"):
        zookeeper.find_zookeeper(fetch=False)
    with pytest.raises(StartError, match="needs Maven, and there is no mvn here"):
        zookeeper.find_zookeeper(fetch=True)
    program(no_zookeeper / "mvn", "echo no network >&2; exit 1")
    with pytest.raises(StartError, match="could not fetch ZooKeeper: no network"):
        zookeeper.find_zookeeper(fetch=True)


def test_an_installed_zookeeper_is_found(
    no_zookeeper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper is fetched though it is there, or ZOOKEEPER_HOME is passed over."""
    program(no_zookeeper / "java", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    program(no_zookeeper / "zkServer.sh", "")
    found = zookeeper.find_zookeeper(fetch=False)
    assert found.words == (str(no_zookeeper / "zkServer.sh"), "start-foreground")
    program(tmp_path / "zk" / "bin" / "zkServer.sh", "")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "zk"))
    assert zookeeper.find_zookeeper(fetch=False).words[0] == f"{tmp_path}/zk/bin/zkServer.sh"


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ('openjdk version "17.0.12" 2024-07-16', 17),
        ('openjdk version "21-ea" 2023', 21),
        ('java version "1.8.0_392"', 8),
        ("Error: no such thing", 0),
    ],
)
def test_the_release_of_a_java(said: str, release: int, tmp_path: Path) -> None:
    """A Java that is too old is taken."""
    program(tmp_path / "java", f"echo '{said}' >&2")
    assert java.java_version(str(tmp_path / "java")) == release


def test_the_state_is_for_people_too(tmp_path: Path) -> None:
    """The process id of a broker, to kill it, is looked up in the file."""
    ClusterState([9092], None, {"1": 4711}).save(tmp_path)
    assert json.loads((tmp_path / "cluster.json").read_text())["pids"] == {"1": 4711}


def test_without_zookeeper_nothing_is_left_behind(
    no_zookeeper: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each attempt of a newcomer would leave a folder with a lock."""
    pytest.importorskip("kazoo", reason="PEER MISSING, NOT TESTED: kazoo")
    directory = tmp_path / "cluster"
    words = ["cluster", "start", "-n", "1", "--port", "0", "--data-dir", str(directory)]
    assert main(words) == 1
    assert "A cluster needs ZooKeeper, and there is none here" in capsys.readouterr().err
    assert not directory.exists()


def test_a_missing_extra_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper would be fetched, and three brokers started, before the first word of kazoo."""
    monkeypatch.setitem(sys.modules, "kazoo", None)  # as where it is not installed
    directory = tmp_path / "cluster"
    words = ["cluster", "start", "-n", "3", "--data-dir", str(directory), "--fetch-zookeeper"]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "odradek: Brokers on ZooKeeper need its client library kazoo: "
        "pip install 'odradek[zookeeper]'\n"
    )
    assert not directory.exists()
