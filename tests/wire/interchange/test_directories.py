"""Directories go between Apache Kafka and the broker, and both dump tools say the same of them."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tools import peers
from tools.kafka_node import kafka_node

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(120)
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STILL_LOADING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
TOPICS = {
    "plain": {"segment.bytes": "1048576", "index.interval.bytes": "1024"},
    "codecs": {"cleanup.policy": "compact", "index.interval.bytes": "64"},
    "decided": {},
}


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 2, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)


def fill(bootstrap: str) -> None:
    """Records of every codec, with and without keys, headers and values, and a group's offset."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    plain = Producer({**quiet, "enable.idempotence": True, "linger.ms": 5})
    for index in range(2000):
        headers = [("source", b"test"), ("nothing", None)] if index % 3 == 0 else []
        plain.produce("plain", b"v" * 700, f"k{index % 7}", index % 2, headers=headers)
    plain.flush(TIMEOUT_S)
    for codec in CODECS:
        producer = Producer({**quiet, "compression.type": codec, "linger.ms": 5})
        for index in range(30):
            value = None if index == 4 else f"wörd {index} " * 5
            producer.produce("codecs", value, f"{codec}{index}", 0)
        producer.flush(TIMEOUT_S)
    consumer = Consumer({**quiet, "group.id": "readers", "enable.auto.commit": False})
    commit(consumer, TopicPartition("plain", 0, 417))
    consumer.close()


def commit(consumer: Consumer, place: TopicPartition) -> None:
    """Commits, again while a fresh Kafka is still loading its coordinator."""
    for attempts_left in range(240, -1, -1):
        try:
            consumer.commit(offsets=[place], asynchronous=False)
            return
        except KafkaException as error:
            if not attempts_left or error.args[0].code() not in STILL_LOADING:
                raise
            consumer.poll(0.5)


def decide(bootstrap: str) -> None:
    """Two transactions that were committed, two that were aborted."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "teller", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    for index in range(4):
        producer.begin_transaction()
        producer.produce("decided", f"round {index}", partition=0)
        producer.flush(TIMEOUT_S)
        if index % 2 == 0:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything that a consumer gets: partition, offset, time, key, value, headers."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "all",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    found: list[str] = []
    ends = 0
    while ends < 2:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "the broker has fallen silent"
        if message.error():
            ends += 1
            continue
        place = message.partition(), message.offset(), message.timestamp()
        found.append(f"{place} {message.key()} {message.value()} {message.headers()}")
    consumer.close()
    return sorted(found)


@pytest.fixture(scope="module")
def kafka_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a Kafka that has been stopped, beside it what its consumers got."""
    data = tmp_path_factory.mktemp("kafka") / "data"
    try:
        with kafka_node(heap="512m", data_dir=data) as node:
            create_topics(node.bootstrap_servers)
            fill(node.bootstrap_servers)
            decide(node.bootstrap_servers)
            for topic in TOPICS:
                lines = read_all(node.bootstrap_servers, topic)
                (data.parent / topic).write_text("\n".join(lines), encoding="utf-8")
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    return data


@pytest.fixture(scope="module")
def our_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker of ours that has been stopped."""
    data = tmp_path_factory.mktemp("ours") / "data"
    with odradek.Broker(data_dir=str(data)) as broker:
        create_topics(broker.bootstrap_servers)
        fill(broker.bootstrap_servers)
        for topic in TOPICS:
            lines = read_all(broker.bootstrap_servers, topic)
            (data.parent / topic).write_text("\n".join(lines), encoding="utf-8")
    return data


def segment_files(directory: Path) -> str:
    names = [name for name in sorted(os.listdir(directory)) if name.endswith(SUFFIXES)]
    assert names, f"{directory} holds no segment"
    return ",".join(str(directory / name) for name in names)


def kafkas_dump(*options: str) -> tuple[str, str]:
    """The output of Kafka's tool, on both streams; a quirk of it left out.

    It calls the distance from -1 to a segment's first offset non-consecutive.
    """
    class_path = os.pathsep.join(map(str, peers.kafka_jars()))
    java = [peers.java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    done = subprocess.run(
        [*java, DUMP, *options], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("log4j", "SLF4J"))]
    kept = [line for line in lines if "  -1 is followed by" not in line]
    if kept and all(line.startswith("Non-consecutive offsets in") for line in kept):
        kept = []
    return done.stdout, "\n".join(kept)


def our_dump(*options: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "dump-log", *options],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout, done.stderr.rstrip()


CASES = [
    ("plain-0", "--deep-iteration"),
    ("plain-1", ""),
    ("codecs-0", "--print-data-log"),
    ("codecs-0", "--print-data-log --skip-record-metadata"),
    ("codecs-0", "--verify-index-only"),
    ("plain-0", "--index-sanity-check"),
    ("decided-0", "--print-data-log"),
    ("decided-0", "--print-data-log --skip-record-metadata --max-bytes 300"),
]


@pytest.mark.parametrize(("partition", "options"), CASES)
def test_both_tools_print_the_same_of_kafkas_files(
    kafka_dir: Path, partition: str, options: str
) -> None:
    """Goal: scripts that parse the lines of Kafka's tool do not notice the difference."""
    words = ["--files", segment_files(kafka_dir / partition), *options.split()]
    assert our_dump(*words) == kafkas_dump(*words)


@pytest.mark.parametrize(("partition", "options"), CASES[:6])
def test_both_tools_print_the_same_of_our_files(
    our_dir: Path, partition: str, options: str
) -> None:
    """Goal: Kafka's tool reads our logs and indexes, and has nothing to complain of."""
    words = ["--files", segment_files(our_dir / partition), *options.split()]
    printed, complaints = kafkas_dump(*words)
    assert complaints == ""
    assert our_dump(*words) == (printed, "")


@pytest.mark.parametrize(
    ("topic", "option"),
    [
        ("__consumer_offsets", "--offsets-decoder"),
        ("__transaction_state", "--transaction-log-decoder"),
    ],
)
def test_internal_records_are_shown_as_kafka_shows_them(
    kafka_dir: Path, topic: str, option: str
) -> None:
    """Goal: groups and transactions can be read from a directory."""
    logs = [path for path in sorted(kafka_dir.glob(f"{topic}-*/*.log")) if path.stat().st_size]
    assert logs, f"nothing was written to {topic}"
    words = ["--files", ",".join(map(str, logs)), option]
    assert our_dump(*words) == kafkas_dump(*words)


def test_quorum_records_are_shown_as_kafka_shows_them(kafka_dir: Path) -> None:
    """Goal: the control records of a metadata log."""
    words = ["--files", segment_files(kafka_dir / "__cluster_metadata-0"), "--deep-iteration"]
    assert our_dump(*words) == kafkas_dump(*words)


def odradek_command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "odradek", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def tree(directory: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_an_imported_directory_is_served_whole(kafka_dir: Path, tmp_path: Path) -> None:
    """Goal: every record, aborted ones hidden, groups' offsets and settings come along; the
    source stays as it was."""
    before = tree(kafka_dir)
    target = tmp_path / "data"
    done = odradek_command("import", str(kafka_dir), "--data-dir", str(target))
    assert done.returncode == 0, done.stderr
    assert tree(kafka_dir) == before
    checked = odradek_command("fsck", "--deep", str(target))
    assert (checked.returncode, checked.stdout) == (0, "")
    with odradek.Broker(data_dir=str(target)) as broker:
        for topic in TOPICS:
            expected = (kafka_dir.parent / topic).read_text(encoding="utf-8").split("\n")
            assert read_all(broker.bootstrap_servers, topic) == expected
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
        consumer = Consumer(settings)
        committed = consumer.committed([TopicPartition("plain", 0)], timeout=TIMEOUT_S)
        consumer.close()
        assert committed[0].offset == 417
    again = odradek_command("import", str(kafka_dir), "--data-dir", str(target))
    assert again.returncode == 1
    assert "already" in again.stderr
    assert odradek_command("fsck", str(target)).stdout == ""


def test_a_killed_kafka_is_imported(tmp_path: Path) -> None:
    """Goal: what Kafka had acknowledged and how its topics were set, when it could not close."""
    data, target = tmp_path / "kafka", tmp_path / "ours"
    try:
        with kafka_node(heap="512m", data_dir=data) as node:
            create_topics(node.bootstrap_servers)
            fill(node.bootstrap_servers)
            expected = {topic: read_all(node.bootstrap_servers, topic) for topic in TOPICS}
            os.kill(node.pid, signal.SIGKILL)
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    assert not (data / ".kafka_cleanshutdown").exists()
    done = odradek_command("import", str(data), "--data-dir", str(target))
    assert done.returncode == 0, done.stderr
    with odradek.Broker(data_dir=str(target)) as broker:
        for topic, lines in expected.items():
            assert read_all(broker.bootstrap_servers, topic) == lines
    assert odradek_command("fsck", "--deep", str(target)).stdout == ""


def test_a_running_kafka_is_not_imported(tmp_path: Path) -> None:
    """Goal: a source that is being written to is refused."""
    data = tmp_path / "kafka"
    try:
        with kafka_node(heap="512m", data_dir=data):
            done = odradek_command("import", str(data), "--data-dir", str(tmp_path / "ours"))
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"odradek: {data}: a broker is running on it; stop it first"
    ]


def test_kafka_serves_our_directory(our_dir: Path, tmp_path: Path) -> None:
    """Goal: the way back, as docs/operating/import.md tells it: the topic is made in Kafka,
    Kafka is stopped, the files of its partitions are replaced but for `partition.metadata`."""
    data = tmp_path / "kafka"
    try:
        with kafka_node(heap="512m", data_dir=data) as node:
            create_topics(node.bootstrap_servers)
        for topic in ("plain", "codecs"):
            for index in range(2):
                replace_log(our_dir / f"{topic}-{index}", data / f"{topic}-{index}")
        with kafka_node(heap="512m", data_dir=data) as node:
            for topic in ("plain", "codecs"):
                expected = (our_dir.parent / topic).read_text(encoding="utf-8").split("\n")
                assert read_all(node.bootstrap_servers, topic) == expected
            producer = Producer({"bootstrap.servers": node.bootstrap_servers, "log_level": 0})
            producer.produce("plain", b"one more", partition=0)
            assert producer.flush(TIMEOUT_S) == 0
            assert len(read_all(node.bootstrap_servers, "plain")) == 2001
    except peers.PeerUnavailable as error:
        pytest.skip(str(error))


def replace_log(source: Path, target: Path) -> None:
    for path in list(target.iterdir()):
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copyfile(path, target / path.name)
