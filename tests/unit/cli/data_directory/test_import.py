"""`odradek import` from directories that are made here; real ones are in tests/wire."""

import errno
import fcntl
import shutil
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.cli import segments

import odradek
from odradek.cli.data_directory import import_kafka
from odradek.cli.data_directory.directory_lock import held_still
from odradek.cli.data_directory.fsck import read_metadata
from odradek.cli.main import main
from odradek.kafka_files.kraft_image import KafkaMetadata
from odradek.metadata.image import ConfigResource
from odradek.protocol.primitives import uvarint_bytes
from odradek.records.builder import RecordBatchBuilder
from odradek.storage import checkpoints

TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)


def source_dir(path: Path, *partitions: int, topic_id: UUID | None = TOPIC_ID) -> Path:
    """A stopped Kafka's directory: `orders` with three records in each of `partitions`."""
    path.mkdir(parents=True)
    properties = "#\nversion=1\ncluster.id=theirs\nnode.id=4\n"
    (path / "meta.properties").write_text(properties)
    (path / ".lock").touch()
    for partition in partitions:
        log = path / f"orders-{partition}"
        segments.write_segment(log, [segments.batch(2, [b"a", b"b", b"c"], 5)])
        if topic_id is not None:
            (log / "partition.metadata").write_bytes(
                checkpoints.encode_partition_metadata(topic_id)
            )
    return path


def metadata_value(number: int, fields: bytes) -> bytes:
    return b"\x01" + uvarint_bytes(number) + b"\x00" + fields


def text(value: str) -> bytes:
    return uvarint_bytes(len(value) + 1) + value.encode()


def add_metadata_log(source: Path) -> None:
    """Topic `orders` with two partitions and a setting; `gone`, which was deleted."""
    gone = UUID(int=9)
    replicas = b"\x02" + struct.pack(">i", 4)
    values = [
        metadata_value(2, text("orders") + TOPIC_ID.bytes + b"\x00"),
        metadata_value(2, text("gone") + gone.bytes + b"\x00"),
        *[
            metadata_value(
                3,
                struct.pack(">i", index)
                + TOPIC_ID.bytes
                + replicas * 2
                + b"\x01\x01"
                + struct.pack(">iii", 4, 6, 2)
                + b"\x00",
            )
            for index in range(2)
        ],
        metadata_value(4, b"\x02" + text("orders") + text("retention.ms") + text("99") + b"\x00"),
        metadata_value(4, b"\x02" + text("orders") + text("from.later") + text("x") + b"\x00"),
        metadata_value(9, gone.bytes + b"\x00"),
        metadata_value(77, b"of a type that is not known"),
    ]
    builder = RecordBatchBuilder(0)
    for value in values:
        builder.append(1, None, value, [])
    segments.write_segment(source / "__cluster_metadata-0", [builder.build()])


def test_a_directory_with_zookeeper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: topic ids from the directories, everything is kept, epochs go on; all is sound."""
    source, target = source_dir(tmp_path / "kafka", 0, 1), tmp_path / "ours"
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("imported 1 topics, 2 partitions, 6 records, ")
    assert "keep everything" in printed.err
    stored = read_metadata(str(target))
    assert (stored.cluster_id, stored.topics[0].topic_id) == ("theirs", TOPIC_ID)
    assert [partition.leader_epoch for partition in stored.topics[0].partitions] == [5, 5]
    settings = stored.configs[ConfigResource.topic("orders")]
    assert settings == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert main(["fsck", str(target)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all("missing" in line for line in lines), lines
    with odradek.Broker(data_dir=str(target)):
        pass
    assert (target / "orders-0" / f"{0:020d}.log").read_bytes() == (
        source / "orders-0" / f"{0:020d}.log"
    ).read_bytes()


def test_a_directory_with_a_metadata_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: settings and partitions from the metadata; what is missing or unknown is named."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    add_metadata_log(source)
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    errors = capsys.readouterr().err
    assert "orders: partitions 1 are not in these directories: empty" in errors
    assert "from.later=x is left out" in errors
    stored = read_metadata(str(target))
    assert [topic.name for topic in stored.topics] == ["orders"]
    assert [partition.leader_epoch for partition in stored.topics[0].partitions] == [6, 6]
    settings = stored.configs[ConfigResource.topic("orders")]
    assert settings == {"retention.ms": "99"}


def test_the_newest_snapshot_counts_and_the_log_behind_it(tmp_path: Path) -> None:
    """Goal: a Kafka that has run for long; its metadata log begins in the middle."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    add_metadata_log(source)
    log = source / "__cluster_metadata-0"
    snapshot = (log / f"{0:020d}.log").read_bytes()
    (log / f"{0:020d}-0000000000.checkpoint").write_bytes(b"an older one")
    (log / f"{8:020d}-0000000002.checkpoint").write_bytes(snapshot)
    (log / f"{9:020d}-0000000002.checkpoint.part").write_bytes(b"not yet whole")
    (log / f"{0:020d}.log").unlink()
    value = b"\x02" + text("orders") + text("retention.ms")
    # What lies before the snapshot's end is in it already, and perhaps not the last word.
    behind = RecordBatchBuilder(0, base_offset=7)
    behind.append(1, None, metadata_value(4, value + text("7") + b"\x00"), [])
    latest = RecordBatchBuilder(0, base_offset=8)
    latest.append(1, None, metadata_value(4, value + text("100") + b"\x00"), [])
    latest.append(
        1,
        None,
        metadata_value(
            4, b"\x02" + text("orders") + text("max.message.bytes") + text("9") + b"\x00"
        ),
        [],
    )
    (log / f"{7:020d}.log").write_bytes(behind.build() + latest.build())
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    stored = read_metadata(str(target))
    settings = stored.configs[ConfigResource.topic("orders")]
    assert settings == {"retention.ms": "100", "max.message.bytes": "9"}


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("127.0.0.1:nonsense", "zookeeper.connect '127.0.0.1:nonsense': "),
        ("127.0.0.1:1", "ZooKeeper at 127.0.0.1:1 cannot be reached within 300 ms"),
    ],
)
def test_a_zookeeper_that_cannot_be_asked_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], servers: str, said: str
) -> None:
    """Goal: not a stack trace, and nothing is imported without the settings that were asked for."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    way = tmp_path / "way.properties"
    way.write_text("zookeeper.connection.timeout.ms=300\n")
    words = ["import", str(source), "--data-dir", str(target), "--zookeeper", servers]
    assert main([*words, "--zk-tls-config-file", str(way)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"odradek: {said}")
    assert not target.exists()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("log.dirs=/x", "log.dirs is no setting of the way to ZooKeeper"),
        ("zookeeper.ssl.keystore.location=/x", "it protects nothing without"),
        ("zookeeper.sasl.jaas.config=x", "zookeeper.sasl.jaas.config: a JAAS configuration is"),
        ("zookeeper.connection.timeout.ms=soon", "zookeeper.connection.timeout.ms"),
        (None, "No such file"),
    ],
)
def test_a_wrong_way_to_zookeeper_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str | None, said: str
) -> None:
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    way = tmp_path / "way.properties"
    if lines is not None:
        way.write_text(lines)
    words = ["import", str(source), "--data-dir", str(target), "--zk-tls-config-file", str(way)]
    assert main([*words, "--zookeeper", "127.0.0.1:1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert main(words) == 1
    assert "is for --zookeeper, which is missing" in capsys.readouterr().err
    assert not target.exists()


def test_several_directories_are_one_import(tmp_path: Path) -> None:
    """Goal: Kafka's `log.dirs`; the same partition twice is refused."""
    first = source_dir(tmp_path / "first", 0)
    second = source_dir(tmp_path / "second", 1)
    assert main(["import", str(first), str(second), "--data-dir", str(tmp_path / "ours")]) == 0
    third = source_dir(tmp_path / "third", 1)
    words = ["import", str(second), str(third), "--data-dir", str(tmp_path / "other")]
    assert main(words) == 1
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "case",
    [
        "busy",
        "clash",
        "foreign",
        "inside",
        "later version",
        "no source",
        "swap",
        "no id",
        "bad metadata",
        "two clusters",
        "no space",
    ],
)
def test_a_refusal_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
) -> None:
    """Goal: nothing half imported, nothing of anybody's overwritten."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    words = refuse(case, source, target, monkeypatch)
    sources = [str(source)] if case != "two clusters" else [str(source), f"{source}-2"]
    before = [target.exists(), *sorted(target.rglob("*"))]
    with (source / ".lock").open("rb") as lock:
        if case == "busy":
            fcntl.flock(lock, fcntl.LOCK_EX)
        capsys.readouterr()
        assert main(["import", *sources, "--data-dir", str(target)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert words in lines[-1]
    assert lines[-1].startswith("odradek: ")
    assert [target.exists(), *sorted(target.rglob("*"))] == before
    assert not any("partitions, " in line for line in lines), "nothing was copied before"


def refuse(case: str, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes the case; returns what the refusal has to say."""
    if case == "busy":
        return "a broker is running on it"
    if case == "clash":
        assert main(["import", str(source), "--data-dir", str(target)]) == 0
        return "holds a topic orders already"
    if case == "foreign":
        target.mkdir()
        (target / "thesis.txt").touch()
        return "not empty and not a data directory"
    if case == "inside":
        target.symlink_to(source)
        return "lie within each other"
    if case == "no source":
        (source / "meta.properties").unlink()
        return "not a log directory"
    if case == "later version":
        (source / "meta.properties").write_text("version=7\ncluster.id=theirs\nnode.id=4\n")
        return "version 7 of meta.properties is unknown"
    if case == "swap":
        (source / "orders-0" / f"{0:020d}.log.swap").touch()
        return "a compaction was interrupted"
    if case == "no id":
        (source / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: ?")
        return "partition.metadata"
    if case == "two clusters":
        other = source_dir(Path(f"{source}-2"), 1)
        (other / "meta.properties").write_text("#\nversion=0\nbroker.id=4\n")
        return "do not belong to one cluster"
    if case == "no space":
        usage = shutil.disk_usage(source)._replace(free=7)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        return "has 7 bytes free"
    add_metadata_log(source)
    log = source / "__cluster_metadata-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    return "is corrupt"


def test_a_broker_that_was_faster_keeps_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import into a directory that a broker has just begun in would remove what it has taken."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"

    def begin(directory: str) -> AbstractContextManager[None]:
        if directory == str(target):
            broker.start()
        return held_still(directory)

    broker = odradek.Broker(target)
    monkeypatch.setattr(import_kafka, "held_still", begin)
    try:
        assert main(["import", str(source), "--data-dir", str(target)]) == 1
        assert "a broker is running on it" in capsys.readouterr().err
        assert (target / "meta.properties").exists()
    finally:
        broker.stop()


def test_a_damaged_log_is_copied_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the good records of a bad disk still come along."""
    source, target = source_dir(tmp_path / "kafka", 0, 1), tmp_path / "ours"
    log = source / "orders-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    printed = capsys.readouterr()
    assert " 3 records" in printed.out
    assert str(log) in printed.err


def test_a_clean_source_needs_no_recovery(tmp_path: Path) -> None:
    """Goal: indexes and the marker come along; without the marker neither does."""
    source = source_dir(tmp_path / "kafka", 0)
    assert main(["import", str(source), "--data-dir", str(tmp_path / "killed")]) == 0
    assert not (tmp_path / "killed" / "orders-0" / f"{0:020d}.index").exists()
    assert not (tmp_path / "killed" / ".kafka_cleanshutdown").exists()
    (source / ".kafka_cleanshutdown").touch()
    assert main(["import", str(source), "--data-dir", str(tmp_path / "clean")]) == 0
    assert (tmp_path / "clean" / "orders-0" / f"{0:020d}.index").exists()
    assert (tmp_path / "clean" / ".kafka_cleanshutdown").exists()


def test_empty_checkpoints_are_those_of_a_kafka_that_was_killed_early(tmp_path: Path) -> None:
    """Goal: Kafka makes them at its start and fills them a minute later; no reason to refuse."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    for name in ("recovery-point", "log-start", "replication"):
        (source / f"{name}-offset-checkpoint").touch()
    assert main(["import", str(source), "--data-dir", str(target)]) == 0


def test_a_directory_of_before_kafka_2_4_has_a_new_cluster_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be copied whole and then be refused, as one of several clusters."""
    source, target = source_dir(tmp_path / "kafka", 0, topic_id=None), tmp_path / "ours"
    (source / "meta.properties").write_text("#\nversion=0\nbroker.id=0\n")
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    cluster_id = read_metadata(str(target)).cluster_id
    assert f"do not name their cluster, as before Kafka 2.4: it is {cluster_id}" in (
        capsys.readouterr().err
    )
    with odradek.Broker(data_dir=str(target)) as broker:
        assert broker.cluster_id == cluster_id
        assert [record.value for record in broker.records("orders")] == [b"a", b"b", b"c"]


def test_a_directory_that_names_no_cluster_is_none_of_another_than_zookeepers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be refused as one of the cluster without a name, and its settings be lost."""
    source, target = source_dir(tmp_path / "kafka", 0, topic_id=None), tmp_path / "ours"
    (source / "meta.properties").write_text("#\nversion=0\nbroker.id=0\n")
    asked: list[str | None] = []

    def read(_settings: object, cluster_id: str | None) -> KafkaMetadata:
        asked.append(cluster_id)
        return KafkaMetadata()

    monkeypatch.setattr(import_kafka, "read_zookeeper", read)
    words = ["import", str(source), "--data-dir", str(target), "--zookeeper", "zk:2181"]
    assert main(words) == 0
    assert asked == [None]


@pytest.mark.parametrize("checkpoint", ["recovery-point", "replication", "log-start"])
def test_a_log_that_ends_before_its_checkpoints_is_named(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody whose disk was not mounted would learn of it from consumers that read nothing."""
    source, target = source_dir(tmp_path / "kafka", 0, 1), tmp_path / "ours"
    (source / "orders-1" / f"{0:020d}.log").write_bytes(b"")
    (source / f"{checkpoint}-offset-checkpoint").write_text("0\n2\norders 0 3\norders 1 3\n")
    assert main(["import", str(source), "--data-dir", str(target)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "checkpoints" in line]
    assert lines == [
        f"odradek: {source}/orders-1 ends at offset 0, the checkpoints beside it say 3: records "
        "are missing there"
    ]


@pytest.mark.parametrize("has_metadata", [False, True])
def test_a_partition_that_only_the_checkpoints_have_is_named(
    has_metadata: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without metadata the topic would have a partition less, and nobody would say so."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    other = source_dir(tmp_path / "second", 2)
    if has_metadata:
        add_metadata_log(source)
    noted = "0\n4\norders 0 3\norders 1 7\norders 2 3\ngone 0 9\n"
    (source / "replication-offset-checkpoint").write_text(noted)
    assert main(["import", str(source), str(other), "--data-dir", str(target)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "checkpoints" in line]
    named = ["orders-1"] if has_metadata else ["gone-0", "orders-1"]
    assert [line.split()[4].rstrip(",") for line in lines] == named
    assert "ended at offset 7" in lines[-1]


def test_an_import_that_fails_at_its_end_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that is in use, the logs without metadata would be "a topic already"."""
    source, target = source_dir(tmp_path / "kafka", 0, 1), tmp_path / "ours"
    with odradek.Broker(data_dir=str(target)) as broker:
        broker.produce("lines", "x")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    words = ["import", str(source), "--data-dir", str(target)]
    with monkeypatch.context() as patched:
        patched.setattr(import_kafka.Database, "write", fail)
        assert main(words) == 1
    assert not list(target.glob("orders-*"))
    assert main(words) == 0
    with odradek.Broker(data_dir=str(target)) as broker:
        assert [len(broker.records(topic)) for topic in ("lines", "orders")] == [1, 6]


def test_an_import_whose_last_words_nobody_hears_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is done by then: removing it would leave neither the old nor the new."""
    source, target = source_dir(tmp_path / "kafka", 0), tmp_path / "ours"
    add_metadata_log(source)

    def fail(_: object) -> str:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(import_kafka, "told_of_access", fail)
    assert main(["import", str(source), "--data-dir", str(target)]) == 1
    assert [topic.name for topic in read_metadata(str(target)).topics] == ["orders"]
    assert (target / "orders-0" / f"{0:020d}.log").exists()
