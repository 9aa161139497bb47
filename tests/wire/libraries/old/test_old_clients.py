"""Clients of the years before magic 2: Java's 0.8.2, 0.9 and 0.10, and kafka-python as one of them.

Each uses every codec of its time with topics that ask for magic 0, for 1 and for 2, so that sets
are kept as they came, and converted up and down.
"""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.wire.libraries.old.record_lines import Pairs, decode, encode
from tests.wire.replicas import REPLICAS

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.model import TopicPartition as Partition
from odradek.records.batch import split_batches
from odradek.records.reader import iter_records
from odradek.storage import LogManager, OsFileSystem
from odradek.timer import MockTimer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

HERE = Path(__file__).parent
TIMEOUT_S = deadline_s(240)
CODECS = ["none", "gzip", "snappy", "lz4"]
# What topics ask for, by the magic that it means.
FORMATS = ["0.9.0", "0.10.2", "3.0"]
JAVA_PRODUCERS = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.2.2": 1}
"""The magic that each writes."""
RECORDS: Pairs = [
    (None if number % 7 == 3 else b"key-%d" % number, b"value-%d " % number * (number % 9))
    for number in range(40)
]
# The first time in the sets that `old_message_sets.py` makes; each record is 1 ms later.
FIRST_TIME_MS = 1_700_000_000_000
TOMBSTONE = (b"key-0", None)
SENT = [*RECORDS, TOMBSTONE]

Program = Callable[..., list[list[str]]]


def run(command: list[str], environment: dict[str, str] | None = None) -> list[list[str]]:
    """The output of a program that was given the records, in words."""
    done = subprocess.run(
        command,
        input="".join(f"{encode(key)} {encode(value)}\n" for key, value in SENT),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def java_program(
    java: str,
    javac: str,
    old_client_class_path: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Program:
    """Runs a program of `java/`, compiled against the clients of a version."""
    classes = tmp_path_factory.mktemp("classes")

    def call(version: str, name: str, *arguments: str) -> list[list[str]]:
        folder = classes / version
        libraries = old_client_class_path(version)
        path = os.pathsep.join([str(folder), libraries])
        source = str(HERE.parent / "java" / f"{name}.java")
        run([javac, "-cp", libraries, "-d", str(folder), source])
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path]
        return run([java, *options, name, *arguments])

    return call


@pytest.fixture(scope="session")
def python_program(old_kafka_python: Callable[[str], Path]) -> Program:
    """Runs a program of this folder where it finds the `kafka` of a version."""

    def call(version: str, name: str, *arguments: str) -> list[list[str]]:
        environment = {"PYTHONPATH": str(old_kafka_python(version))}
        return run([sys.executable, str(HERE / name), *arguments], environment)

    return call


@pytest.fixture
def codecs_and_topics(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """A topic of each format for each codec."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = []
    for version in FORMATS:
        for codec in CODECS:
            name = f"{topic}-{codec}-{version}"
            config = {"message.format.version": version}
            admin.create_topics([NewTopic(name, 1, REPLICAS, config=config)])[name].result(
                TIMEOUT_S
            )
            made.append((codec, name))
    return made


def flat(pairs: list[tuple[str, str]]) -> list[str]:
    return [word for pair in pairs for word in pair]


def assert_acknowledged(printed: list[list[str]], pairs: list[tuple[str, str]]) -> None:
    wanted = [[name, str(offset)] for _, name in pairs for offset in range(len(SENT))]
    assert printed == wanted


def assert_consumed(printed: list[list[str]], topics: list[str]) -> None:
    for name in topics:
        found = [(int(o), decode(k), decode(v)) for t, o, k, v in printed if t == name]
        assert found == [(offset, *record) for offset, record in enumerate(SENT)]
    assert len(printed) == len(SENT) * len(topics)


def assert_kept(bootstrap: str, topics: list[str], has_timestamps: Callable[[str], bool]) -> None:
    """A client of today reads of every topic what was sent."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING) for name in topics])
    messages = consumer.consume(len(SENT) * len(topics), TIMEOUT_S)
    for name in topics:
        found = [message for message in messages if message.topic() == name]
        assert [(m.offset(), m.key(), m.value()) for m in found] == [
            (offset, *record) for offset, record in enumerate(SENT)
        ]
        assert {m.timestamp()[1] > 0 for m in found} == {has_timestamps(name)}
    consumer.close()


@pytest.mark.parametrize("version", JAVA_PRODUCERS)
def test_java_producers(bootstrap, java_program, codecs_and_topics, version):
    """Services that nobody dared to rebuild since 2015 cannot write, or write something else."""
    printed = java_program(version, "OldProducer", bootstrap, *flat(codecs_and_topics))
    assert_acknowledged(printed, codecs_and_topics)
    sends_them = JAVA_PRODUCERS[version] > 0
    topics = [name for _, name in codecs_and_topics]
    assert_kept(bootstrap, topics, lambda name: sends_them and not name.endswith(FORMATS[0]))


@pytest.fixture
def filled(bootstrap: str, codecs_and_topics: list[tuple[str, str]]) -> list[str]:
    """Topics of every format and codec with what a client of today sent."""
    for codec, name in codecs_and_topics:
        settings = {"compression.type": codec, "linger.ms": 50}
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for key, value in SENT:
            producer.produce(name, value, key, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    return [name for _, name in codecs_and_topics]


@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.2.2"])
def test_java_consumers(bootstrap, java_program, filled, names, version):
    """They cannot join a group, cannot find the beginning, or read what nobody sent."""
    group = names("old")
    count = str(len(SENT) * len(filled))
    printed = java_program(version, "OldConsumer", bootstrap, group, count, *filled)
    assert_consumed(printed, filled)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed = consumer.committed([TopicPartition(name, 0) for name in filled], TIMEOUT_S)
    assert [partition.offset for partition in committed] == [len(SENT)] * len(filled)
    consumer.close()


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0"])
def test_kafka_python(bootstrap, python_program, codecs_and_topics, version):
    """A Python service of those years cannot write, or reads back other than what it wrote."""
    program = functools.partial(python_program, "1.4.7", "old_kafka_python.py")
    printed = program("produce", bootstrap, version, *flat(codecs_and_topics))
    assert_acknowledged(printed, codecs_and_topics)
    topics = [name for _, name in codecs_and_topics]
    count = str(len(SENT) * len(topics))
    assert_consumed(program("consume", bootstrap, version, count, *topics), topics)


@pytest.mark.parametrize("format_version", FORMATS)
def test_our_log_keeps_its_message_sets(python_program, tmp_path, format_version):
    """A set as a library of that time encodes it is refused, or comes back as something else."""
    for number, (magic, codec, text) in enumerate(python_program("1.3.5", "old_message_sets.py")):
        partition = Partition("sets", 0)
        data = keep(tmp_path / str(number), partition, format_version, bytes.fromhex(text))
        kept_magic = FORMATS.index(format_version)
        kept_as = {(header.magic, header.codec) for header in split_batches(data)}
        assert kept_as == {(kept_magic, int(codec))}
        has_times = int(magic) > 0 and kept_magic > 0
        assert [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(data)] == [
            (offset, FIRST_TIME_MS + offset % len(SENT) if has_times else -1, *record)
            for offset, record in enumerate(SENT * 2)
        ]


def keep(folder: Path, partition: Partition, format_version: str, records: bytes) -> bytes:
    """The content of a log, after a crash, to which records were appended twice."""
    config = LogConfig(parse_topic_settings({"message.format.version": format_version}))
    folder.mkdir()
    manager = start(folder)
    log = manager.get_or_create(partition, UUID(int=1), config)
    log.appender.append_as_leader([memoryview(bytearray(records)) for _ in range(2)], 0)
    crash(manager)
    manager = start(folder)
    log = manager.get_or_create(partition, UUID(int=1), config)
    read = b"".join(log.read(0, 1 << 20, log.log_end_offset, True).records)
    crash(manager)
    return read


def start(folder: Path) -> LogManager:
    """A broker's storage without a broker."""
    manager = LogManager(
        [str(folder)],
        BrokerConfig({}),
        ManualClock(wall_ms=1_700_000_000_000),
        MockTimer(),
        InlineBackground(),
        new_uuid=uuid4,
        on_log_dir_failure=pytest.fail,
        file_system=OsFileSystem(64, durable=False),
    )
    manager.start(None, cluster_id="cluster", node_id=1)
    return manager


def crash(manager: LogManager) -> None:
    """The process is gone: nothing is closed, the kernel gives up the locks."""
    for directory in manager.directories:
        directory.release_lock()
