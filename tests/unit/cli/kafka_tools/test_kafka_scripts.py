"""The scripts of `odradek kafka-bin`. If these fail, a script that calls Kafka's tools ends in
`not found`, or in something else than the tool that it calls."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

import odradek
from odradek import system_calls
from odradek.cli import container, start
from odradek.cli import main as cli_main
from odradek.cli.main import AS_KAFKA, OF_SCRIPTS, main
from odradek.cli.tools import kafka_bin
from odradek.cli.tools.kafka_bin import REFUSED, TOOLS
from odradek.cli.tools.scripts import run_class, server_start, server_stop
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.sync import Admin
from odradek.model import TopicPartition
from odradek.server.broker import BrokerServer

TIME_LIMIT_S = deadline_s(120)
# The folder `bin` of Apache Kafka 4.3, and what scripts for its earlier versions call.
IN_KAFKA = """
connect-distributed connect-mirror-maker connect-plugin-path connect-standalone kafka-acls
kafka-broker-api-versions kafka-client-metrics kafka-cluster kafka-configs kafka-console-consumer
kafka-console-producer kafka-console-share-consumer kafka-consumer-groups kafka-consumer-perf-test
kafka-delegation-tokens kafka-delete-records kafka-dump-log kafka-e2e-latency kafka-features
kafka-get-offsets kafka-groups kafka-jmx kafka-leader-election kafka-log-dirs kafka-metadata-quorum
kafka-metadata-shell kafka-producer-perf-test kafka-reassign-partitions kafka-replica-verification
kafka-run-class kafka-server-start kafka-server-stop kafka-share-consumer-perf-test
kafka-share-groups kafka-storage kafka-streams-application-reset kafka-streams-groups kafka-topics
kafka-transactions kafka-verifiable-consumer kafka-verifiable-producer
kafka-verifiable-share-consumer trogdor
kafka-mirror-maker kafka-preferred-replica-election zookeeper-security-migration
zookeeper-server-start zookeeper-server-stop zookeeper-shell
"""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The scripts, written a second time over the first."""
    for _ in range(2):
        assert main(["kafka-bin", str(tmp_path)]) == 0
    capsys.readouterr()
    return tmp_path


def test_every_tool_is_there_under_both_names(folder: Path) -> None:
    names = IN_KAFKA.split()
    assert {path.name for path in folder.iterdir()} == {*names, *(f"{name}.sh" for name in names)}
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())


def test_a_link_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    """Where links lead to the scripts of an Apache Kafka, that would have none any more."""
    kafkas = tmp_path / "kafka"
    kafkas.write_text("echo Kafka's\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "kafka-topics.sh"
    link.symlink_to(kafkas)
    assert main(["kafka-bin", str(tmp_path / "bin")]) == 0
    assert kafkas.read_text(encoding="utf-8") == "echo Kafka's\n"
    assert not link.is_symlink()
    assert AS_KAFKA in link.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "bin"
    folder.parent.write_text("", encoding="utf-8")
    command = [sys.executable, "-m", "odradek", "kafka-bin", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"odradek: {folder}: Not a directory\n")


def test_windows_has_batch_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows runs no file without an ending, nor one for a shell."""
    monkeypatch.setattr(kafka_bin, "_ON_WINDOWS", True)
    monkeypatch.setattr(kafka_bin.sys, "executable", r"C:\100% my\python.exe")
    monkeypatch.setitem(REFUSED, "trogdor", "a & b > c")
    assert main(["kafka-bin", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.bat" for n in IN_KAFKA.split()}
    call, refusal = ((tmp_path / f"{n}.bat").read_bytes() for n in ("kafka-topics", "trogdor"))
    assert call == rb'@"C:\100%% my\python.exe" -P -m odradek --as-kafka topics %*' + b"\r\n"
    assert refusal == b"@echo trogdor: a ^& b ^> c 1>&2\r\n@exit /b 1\r\n"


@pytest.mark.parametrize("name", REFUSED)
def test_a_tool_that_is_not_here_says_so(folder: Path, name: str) -> None:
    done = subprocess.run(
        [folder / f"{name}.sh", "--some", "words"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{name}: {REFUSED[name]}\n"


def test_a_script_works_wherever_it_is_called_and_by_a_link(folder: Path) -> None:
    """Python takes modules from the folder where it is called: one of that name would be run in
    place of its own, and the script end in a stack trace."""
    (folder / "argparse.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    link = folder / "a link"
    link.symlink_to(folder / "kafka-topics.sh")
    done = subprocess.run(
        [link, "--version"],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
        cwd=folder,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("odradek ")


@pytest.mark.parametrize("tool", ["server-start", "dump-log", "console-producer"])
def test_a_tool_tells_its_version(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([AS_KAFKA, tool, "--version"])
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("odradek ")


def test_every_other_one_is_a_command() -> None:
    known = {command.name for command in OF_SCRIPTS}
    assert set(TOOLS) <= known
    assert set(run_class.TOOLS.values()) <= known


@pytest.mark.parametrize(
    "class_name",
    ["kafka.tools.GetOffsetShell", "org.apache.kafka.tools.GetOffsetShell"],
)
def test_a_class_is_the_tool_that_it_is_or_was(
    class_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with odradek.Broker() as broker:
        broker.create_topic("t")
        where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
        assert main([AS_KAFKA, "run-class", "-name", "x", class_name, *where]) == 0
    assert capsys.readouterr().out == "t:0:0\n"


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("-loggc org.apache.kafka.tools.consumer.ConsoleConsumer", "console-consumer"),
        ("-name x --loggc kafka.admin.ConsumerGroupCommand", "consumer-groups"),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "consumer-groups"),
        ("-loggc -name x kafka.Kafka", "server-start"),
    ],
)
def test_a_class_is_found_in_every_package_and_behind_flags(
    words: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script for an earlier or a later Kafka would end in `Could not find or load main class`."""
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(cli_main, "run_command", lambda words, _: ran.append(words) or 0)
    own = ["--topic", "-name"]
    assert run_class.run(argparse.Namespace(words=[*words.split(), *own])) == 0
    assert ran == [[tool, *own]]


@pytest.mark.parametrize("words", [[], ["kafka.tools.MirrorMaker"], ["com.example.GetOffsetShell"]])
def test_a_class_that_is_not_here_is_named(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([AS_KAFKA, "run-class", *words]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert (words or ["USAGE"])[0] in said


def test_a_script_without_an_action_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """`kafka-topics` would print the table that `odradek topics` has for people, with status 0."""
    assert main([AS_KAFKA, "topics", "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "Command must include exactly one action: --list" in capsys.readouterr().err


def test_brokers_tell_their_apis(capsys: pytest.CaptureFixture[str]) -> None:
    """The usual look whether a broker is up."""
    with odradek.Broker() as broker:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        assert main(["broker-api-versions", *where]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{where[1]} (id: 1 rack: null isFenced: false) -> ("
    assert lines[0] == "\tProduce(0): 0 to 13 [usable: 13],"
    assert "\tAddRaftVoter(80): UNSUPPORTED," in lines
    assert lines[-2:] == ["\tDeleteShareGroupOffsets(92): 0 [usable: 0]", ")"]


def test_the_features_of_a_cluster_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with odradek.Broker() as broker:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        assert main([AS_KAFKA, "features", *where, "describe"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    told = {words[1]: (words[3], words[5], words[7]) for words in lines}
    assert told["metadata.version"] == ("3.3-IV3", "4.3-IV0", "4.3-IV0")
    assert told["group.version"] == ("0", "1", "1")


@pytest.mark.parametrize(
    "action", ["upgrade", "downgrade", "disable", "version-mapping", "feature-dependencies"]
)
def test_what_changes_features_is_refused_in_a_sentence(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-server", "127.0.0.1:1"]
    assert main([AS_KAFKA, "features", *where, action, "--feature", "group.version=1"]) == 1
    assert capsys.readouterr() == ("", f"{action}: only `describe` is here\n")


def test_the_controller_is_told_as_a_quorum(capsys: pytest.CaptureFixture[str]) -> None:
    with odradek.Broker() as broker:
        where = ["--bootstrap-server", broker.bootstrap_servers]
        quorum = [AS_KAFKA, "metadata-quorum", *where, "describe"]
        assert main([*quorum, "--status"]) == 0
        status = capsys.readouterr().out
        assert f"ClusterId:              {broker.cluster_id}\nLeaderId:               1\n" in status
        assert f'[{{"id": 1, "endpoints": ["PLAINTEXT://{where[1]}"]}}]' in status
        assert main([*quorum, "--replication", "--human-readable"]) == 0
        header, row = capsys.readouterr().out.splitlines()
        assert header.split("\t")[0] == "NodeId"
        assert [cell.strip() for cell in row.split("\t")][-2:] == ["Leader", ""]
        assert main(quorum) == 1
        assert main([*quorum[:-1], "remove-controller"]) == 1


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """The settings of a broker with two log directories that are not there yet."""
    path = tmp_path / "server.properties"
    logs = f"{tmp_path}/one,{tmp_path}/two"
    path.write_text(f"node.id=3\nlisteners=PLAINTEXT://:0\nlog.dirs={logs}\n", encoding="utf-8")
    return path


CLUSTER = "HNIpJSlpSDOIOA_3gyRmcA"
LATEST = "4.3-IV0"


def test_formatting_with_an_empty_id_leaves_it_to_the_broker(tmp_path: Path) -> None:
    """A script whose variable for the id is unset works with Kafka; the broker would not start."""
    directory = tmp_path / "data"
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={directory}\n")
    words = [AS_KAFKA, "storage", "format", "-t", "", "-c", str(file)]
    assert main(words) == 0
    assert main([*words, "-g"]) == 0
    with odradek.Broker(directory) as broker:
        assert f"cluster.id={broker.cluster_id}\n" in (directory / "meta.properties").read_text()


def test_a_formatted_broker_belongs_to_the_cluster(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After formatting with an id, a later question is answered with another one."""
    storage = [AS_KAFKA, "storage"]
    config = ["--config", str(properties)]
    assert main([*storage, "info", *config]) == 1
    assert main([*storage, "format", "-t", CLUSTER, *config, "--standalone"]) == 0
    assert main([*storage, "info", *config]) == 0
    assert f"cluster.id={CLUSTER}" in capsys.readouterr().out
    assert main([*storage, "format", "-t", CLUSTER, *config]) == 1
    assert main([*storage, "format", "-t", CLUSTER, *config, "-g"]) == 0
    assert main([*storage, "format", "-t", "another", *config, "-g"]) == 1
    assert "Expected another, but read" in capsys.readouterr().err
    with odradek.Broker(data_dir=properties.parent / "one", broker_id=3) as broker:
        assert broker.cluster_id == CLUSTER


def test_formatting_is_told_in_kafkas_words(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that looks for a sentence of Kafka's tool would not find it."""
    one, two = (str(properties.parent / name) for name in ("one", "two"))
    (properties.parent / "file").touch()
    alone = properties.parent / "alone.properties"
    alone.write_text(f"log.dirs={one}\n", encoding="utf-8")
    on_file = properties.parent / "file.properties"
    on_file.write_text(f"log.dirs={one},{alone.parent}/file\n", encoding="utf-8")

    def told(action: str, file: Path, *words: str) -> tuple[int, str]:
        status = main([AS_KAFKA, "storage", action, "--config", str(file), *words])
        return status, capsys.readouterr().out

    assert told("info", alone) == (1, f"Found problem:\n  {one} does not exist\n\n")
    new = f"Formatting {{}} directory {{}} with metadata.version {LATEST}.\n"
    alone_with_id = (alone, "--cluster-id", CLUSTER, "--standalone")
    assert told("format", *alone_with_id) == (0, new.format("dynamic metadata voter", one))
    assert told("format", properties, "-t", CLUSTER, "-g") == (0, new.format("data", two))
    status, output = told("info", properties)
    assert (status, output.splitlines()[:3]) == (
        0,
        ["Found log directories:", f"  {one}", f"  {two}"],
    )
    status, output = told("info", on_file)
    assert (status, output.splitlines()[0]) == (1, "Found log directory:")
    assert output.endswith(f"\nFound problem:\n  {alone.parent}/file is not a directory\n\n")


def test_a_log_directory_that_is_a_file_is_named(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (properties.parent / "one").touch()
    words = [AS_KAFKA, "storage", "format", "-t", CLUSTER, "-c", str(properties)]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert told == f"{properties.parent}/one/meta.properties: Not a directory\n"


@pytest.mark.parametrize("held", [False, True])
def test_a_broker_of_the_image_begins_the_cluster_that_it_is_told(
    properties: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """A search for the cluster by the id in a compose file would look for another one; a broker
    that has data would not start."""
    storage = [AS_KAFKA, "storage", "format", "--config", str(properties)]
    assert not held or main([*storage, "-t", "earlier"]) == 0
    told: list[str] = []

    async def serve(server: BrokerServer, _: int) -> None:
        await server.start()
        told.append(server.cluster_id)
        await server.stop()

    monkeypatch.setattr(start, "serve", serve)
    monkeypatch.setenv("CLUSTER_ID", f"{CLUSTER}\r")  # from a file that Windows wrote
    words = ["--config", str(properties)]
    assert container.main([str(properties.parent), str(properties.parent / "none"), *words]) == 0
    assert told == ["earlier" if held else CLUSTER]


@pytest.mark.parametrize(
    "words",
    [
        ["--initial-controllers", "1@localhost:9093:x"],
        ["--release-version", "4.0"],
        ["--feature", "kraft.version=0"],
        ["--add-scram", "SCRAM-SHA-256=[name=a,password=b]"],
    ],
)
def test_what_formatting_cannot_do_is_refused(
    properties: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    config = ["--config", str(properties), "--cluster-id", CLUSTER]
    assert main([AS_KAFKA, "storage", "format", *config, *words]) == 1
    assert capsys.readouterr().err.startswith(f"{words[0]}: ")
    assert not (properties.parent / "one").exists()


@pytest.mark.parametrize("action", ["version-mapping", "feature-dependencies"])
def test_a_look_up_of_features_is_refused_in_a_sentence(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--release-version", "4.0"] if action == "version-mapping" else ["--feature", "a=1"]
    assert main([AS_KAFKA, "storage", action, *words]) == 1
    told = capsys.readouterr().err
    assert (told.count("\n"), told.partition(":")[0]) == (1, action)


def test_a_directory_is_not_formatted_for_two_kinds_of_quorum(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [AS_KAFKA, "storage", "format", "-t", CLUSTER, "-c", str(properties)]
    assert main([*words, "--standalone", "--no-initial-controllers"]) == 1
    assert "not allowed with argument" in capsys.readouterr().err
    assert not (properties.parent / "one").exists()


def test_an_id_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([AS_KAFKA, "storage", "random-uuid"]) == 0
    assert len(capsys.readouterr().out.strip()) == 22


def test_a_broker_needs_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([AS_KAFKA, "server-start"]) == 1
    assert capsys.readouterr().err.startswith("USAGE: kafka-server-start.sh ")


def test_what_is_said_beside_the_file_reaches_the_broker(
    properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would run with the file's settings, or wrong usage be told of flags that Kafka's
    script takes."""
    ran: list[list[str]] = []
    monkeypatch.setattr(server_start, "run_command", lambda words: ran.append(words) or 0)
    monkeypatch.setattr(server_start.subprocess, "Popen", lambda words, **_: ran.append(words))
    monkeypatch.setenv("LOG_DIR", str(properties.parent / "out"))
    override = ["--override", "num.partitions=7", "--override", "log.cleaner.threads=2"]
    words = ["-name", "kafkaServer", "-loggc", str(properties), *override]
    assert main([AS_KAFKA, "server-start", *words]) == 0
    assert main([AS_KAFKA, "server-start", "-daemon", *words]) == 0
    here, apart = ran
    settings = [word.replace("--override", "--set") for word in override]
    assert here == ["start", "--config", str(properties), *settings]
    assert apart[-6:] == ["server-start", str(properties), *override]


@pytest.fixture
def in_background(monkeypatch: pytest.MonkeyPatch) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The brokers that are begun in the background, which end with the test."""
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: object, **options: object) -> "subprocess.Popen[bytes]":
        begun.append(popen(*arguments, **options))
        return begun[-1]

    monkeypatch.setattr(server_start.subprocess, "Popen", start)
    yield begun
    for each in begun:
        each.kill()
        each.wait()


@pytest.mark.slow
def test_a_broker_is_begun_and_stopped_as_by_kafkas_scripts(
    properties: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_background: list["subprocess.Popen[bytes]"],
) -> None:
    """A script that starts a broker, works on it and stops it ends at its first step."""
    pipe = properties.parent / "out" / server_start.OUTPUT
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    output = os.open(pipe, os.O_RDWR)  # so that opening it waits for nobody
    monkeypatch.setenv("LOG_DIR", str(pipe.parent))
    monkeypatch.chdir(properties.parent)
    (properties.parent / "argparse.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    override = ["--override", "num.partitions=7"]
    assert main([AS_KAFKA, "server-start", "-daemon", str(properties), *override]) == 0
    with open(output, encoding="utf-8") as lines:
        assert any(line.startswith("odradek ready ") for line in lines)
        (broker,) = in_background
        ours = [each for each in server_stop.running_brokers() if each[0] == broker.pid]
        assert len(ours) == 1
        # Others of this machine stay.
        monkeypatch.setattr(server_stop, "running_brokers", lambda: ours)
        assert main([AS_KAFKA, "server-stop"]) == 0
        assert broker.wait(TIME_LIMIT_S) == 0
    monkeypatch.setattr(server_stop, "running_brokers", list)
    assert main([AS_KAFKA, "server-stop"]) == 1


@pytest.mark.parametrize(
    ("words", "signal_name", "stopped"),
    [
        ([], "", {1: signal.SIGTERM, 2: signal.SIGTERM}),
        ([], "KILL", {1: signal.SIGKILL, 2: signal.SIGKILL}),
        (["--process-role", "broker"], "TERM", {1: signal.SIGTERM, 2: signal.SIGTERM}),
        (["--process-role=controller"], "", {}),
        (["--node-id", "7"], "SIGINT", {1: signal.SIGINT}),
        (["--node-id=8", "--process-role=controller"], "", {2: signal.SIGTERM}),
        (["--node-id=9", "--process-role=broker"], "", {}),
    ],
)
def test_brokers_are_stopped_by_their_number_and_role(
    properties: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    signal_name: str,
    stopped: dict[int, int],
) -> None:
    """A script that stops one of two brokers would stop both, or neither; and one that looks for
    Kafka's sentence on standard output would not find it."""
    running = [(1, [str(properties), "--override", "node.id=7"]), (2, [properties.name])]
    properties.write_text("broker.id=8\n", encoding="utf-8")
    monkeypatch.setattr(server_stop, "running_brokers", lambda: iter(running))
    monkeypatch.setattr(server_stop, "working_directory", lambda _: str(properties.parent))
    done: dict[int, int] = {}
    monkeypatch.setattr(server_stop.os, "kill", done.__setitem__)
    monkeypatch.setenv("SIGNAL", signal_name)
    assert main([AS_KAFKA, "server-stop", *words]) == int(not stopped)
    assert done == stopped
    assert capsys.readouterr().out == ("" if stopped else "No kafka server to stop\n")


@pytest.mark.parametrize("name", ["TERM", "SIGTERM", "15"])
def test_a_signal_goes_by_its_name_or_number(name: str) -> None:
    """A script that sets SIGNAL=9, as `kill` takes it, would stop nothing."""
    assert server_stop.signal_of(name) is signal.SIGTERM


def test_a_broker_that_has_its_number_from_zookeeper_is_not_the_first(properties: Path) -> None:
    """`--node-id 1` would stop it."""
    properties.write_text("zookeeper.connect=zk:2181\n", encoding="utf-8")
    assert server_stop.node_id_of(1, [str(properties)]) is None
    properties.write_text("", encoding="utf-8")
    assert server_stop.node_id_of(1, [str(properties)]) == "1"


def test_a_signal_that_is_none_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be a traceback."""
    monkeypatch.setenv("SIGNAL", "_DFL")
    assert main([AS_KAFKA, "server-stop"]) == 1
    assert capsys.readouterr().err == "odradek: SIGNAL=_DFL is no signal\n"


def test_the_file_of_a_broker_is_read_where_it_runs(tmp_path: Path) -> None:
    """A broker that was begun with a path of its own folder would have no number elsewhere."""
    (tmp_path / "own.properties").write_text("node.id=5\n", encoding="utf-8")
    with like_a_broker("own.properties", folder=tmp_path) as process:
        found = dict(server_stop.running_brokers())
        assert server_stop.node_id_of(process, found[process]) == "5"
    assert server_stop.node_id_of(process, ["own.properties"]) is None


def test_a_broker_is_known_by_what_it_was_begun_with() -> None:
    """Something else would be stopped: an editor of a file of this name, a search for it."""
    begun = f"{sys.executable} -X dev -m odradek {AS_KAFKA} server-start my.properties"
    assert server_stop.words_of_start(begun.split()) == ["my.properties"]
    for other in (
        f"grep odradek {AS_KAFKA} server-start",
        "python -m odradek start",
        "vi server-start",
    ):
        assert server_stop.words_of_start(other.split()) is None


def test_the_broker_of_a_container_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker exec kafka /opt/kafka/bin/kafka-server-stop.sh` would find no broker."""
    entry = f"python -m {container.__name__} /var/lib/odradek /mnt/shared/config".split()
    stopped: list[tuple[int, int]] = []
    monkeypatch.setattr(server_stop, "processes", lambda: iter([(1, entry), (2, ["bash"])]))
    monkeypatch.setattr(server_stop.os, "kill", lambda *told: stopped.append(told))
    assert main([AS_KAFKA, "server-stop"]) == 0
    assert stopped == [(1, signal.SIGTERM)]
    assert main([AS_KAFKA, "server-stop", "--node-id", "7"]) == 1  # its file is no word of it


@contextmanager
def like_a_broker(*more: str | bytes, folder: Path | None = None) -> Iterator[int]:
    """The number of a process that has the words of a broker, and these."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", program, "-m", "odradek", AS_KAFKA, "server-start", *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, cwd=folder) as process:
        try:
            assert process.stdout is not None, "it was asked for"
            process.stdout.readline()  # before, it may have no words yet
            yield process.pid
        finally:
            process.communicate()


@pytest.mark.parametrize("place", [system_calls._PROCESSES, "/nowhere"])
def test_brokers_are_found_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """`ps` cuts its lines where a shell exports COLUMNS: nothing would be there to stop."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(system_calls, "_PROCESSES", place)
    with like_a_broker() as process:
        assert process in dict(server_stop.running_brokers())


@pytest.mark.parametrize("place", [system_calls._PROCESSES, "/nowhere"])
def test_words_need_not_be_text(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """One process whose file has a name of another time would keep all brokers from being found."""
    monkeypatch.setattr(system_calls, "_PROCESSES", place)
    with like_a_broker(b"/srv/\xe4") as process:
        assert process in dict(server_stop.running_brokers())


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_brokers_are_found_without_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slim images of Debian have no `ps`: nothing could be stopped in a container."""
    monkeypatch.setenv("PATH", "/nowhere")
    with like_a_broker() as process:
        assert process in dict(server_stop.running_brokers())


def test_groups_of_every_kind_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """`kafka-groups` would print what `odradek groups` has for people."""
    with odradek.Broker() as broker:
        broker.produce("t", b"v")
        where = ["--bootstrap-server", broker.bootstrap_servers]
        read = ["--topic", "t", "--from-beginning", "--max-messages", "1", "--group", "readers"]
        assert main(["console-consumer", *where, *read]) == 0
        with Admin(broker.bootstrap_servers) as admin:
            admin.alter_group_offsets("simple", {TopicPartition("t", 0): CommittedOffset(1)})
        share = "a-share-group-with-a-long-name"
        read = ["--topic", "t", "--timeout-ms", "100", "--group", share]
        assert main(["console-share-consumer", *where, *read]) == 0
        listed = []
        for words in ([], ["--consumer"], ["--share"], ["--streams"], ["--group-type", "Classic"]):
            capsys.readouterr()
            assert main([AS_KAFKA, "groups", *where, "--list", *words]) == 0
            header, *rows = capsys.readouterr().out.splitlines()
            assert header.split() == ["GROUP", "TYPE", "PROTOCOL"]
            listed.append(sorted(rows))
    readers, simple = ["readers", "Classic", "consumer"], ["simple", "Classic"]
    shared = f"{share} Share share".split()
    assert listed[0][0] == " ".join(cell.ljust(len(share)) for cell in shared) + " "
    found = [[row.split() for row in rows] for rows in listed]
    assert found == [
        [shared, readers, simple],
        [readers, simple],
        [shared],
        [],
        [readers, simple],
    ]
