"""Replicas move between log directories while they are used: nothing is lost, nothing stays."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.late_background import LateBackground
from tests.unit.replication.fakes import Cluster

from odradek.background import Background
from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.reader import iter_records
from odradek.records.record import Record
from odradek.replication.alter_log_dirs import agreed_end
from odradek.storage import names
from odradek.storage.checkpoint_file import CheckpointFile
from odradek.storage.files import FileSystem, OsFileSystem
from odradek.storage.log.log import Log
from odradek.testing.faulty_files import FaultyFileSystem
from odradek.testing.volatile_files import VolatileFileSystem

A = TopicPartition("orders", 0)
SMALL = {"segment_bytes": "400", "index_interval_bytes": "100", "file_delete_delay_ms": "10"}
STEP_BYTES = 300
MARKER = {"base_offset": 0, "timestamp_ms": 1, "producer_epoch": 0, "coordinator_epoch": 1}


class SlowDisk(BaseException):
    """A disk that has not done yet what it was asked for."""


class Directories:
    """Three log directories, and brokers over them one after the other."""

    def __init__(self, root: Path) -> None:
        self.paths = [str(root / name) for name in "abc"]
        self.running: list[Cluster] = []

    def start(
        self,
        file_system: FileSystem | None = None,
        background: Background | None = None,
        **settings: str,
    ) -> Cluster:
        first, *more = self.paths
        named = {name.replace("_", "."): value for name, value in settings.items()}
        cluster = Cluster(
            first,
            file_system=file_system,
            more_directories=more,
            settings=named,
            background=background,
        )
        cluster.replicas.log_dir_moves.step_bytes = STEP_BYTES
        self.running.append(cluster)
        return cluster

    def stop(self, cluster: Cluster) -> None:
        self.running.remove(cluster)
        cluster.close()

    def crash(self, cluster: Cluster) -> None:
        """Files are not flushed, closed or written any more."""
        self.running.remove(cluster)
        cluster.replicas.shutdown()
        for directory in cluster.log_manager.directories:
            directory.release_lock()

    def found(self) -> list[list[str]]:
        """The files in each directory that is or was the partition's, without unique parts."""
        return [
            sorted(
                name.partition(".")[0] + "-" + name.rpartition("-")[2] if "." in name else name
                for name in os.listdir(path)
                if name.startswith("orders-")
            )
            for path in self.paths
        ]


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    made = Directories(tmp_path)
    yield made
    for cluster in list(made.running):
        made.stop(cluster)


def fill(cluster: Cluster, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        (result,) = cluster.produce(A, b"%03d" % number)
        assert result.error_code == ErrorCode.NONE


def write(cluster: Cluster, *pairs: tuple[bytes, bytes | None]) -> None:
    """A batch for each pair of key and value."""
    partition = cluster.replicas.partition(A)
    for key, value in pairs:
        builder = RecordBatchBuilder()
        builder.append(1, key, value)
        partition.append_to_leader([memoryview(bytearray(builder.build()))], AppendOrigin.CLIENT, 0)
    partition.maybe_increment_leader_high_watermark()


def records_of(log: Log) -> list[Record]:
    return [
        record
        for segment in log.segments.all()
        for record in iter_records(segment.read(0, segment.size_bytes))
    ]


def values_of(cluster: Cluster) -> list[bytes]:
    log = cluster.replicas.partition(A).leader_log()
    values: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.high_watermark:
        (result,) = cluster.fetch(A, offset)
        assert result.error_code == ErrorCode.NONE
        data = b"".join(bytes(each) for each in result.records)
        for header in split_batches(data, drop_partial_tail=True):
            piece = data[header.position : header.end_position]
            values += [bytes(each.value) for each in iter_records(piece) if each.offset >= offset]
            offset = header.last_offset + 1
    return values


def numbers(count: int, first: int = 0) -> list[bytes]:
    return [b"%03d" % number for number in range(first, first + count)]


def directory_of(cluster: Cluster) -> str:
    return cluster.replicas.partition(A).leader_log().log_directory.path


def begin(
    directories: Directories,
    count: int = 30,
    file_system: FileSystem | None = None,
    **settings: str,
) -> Cluster:
    """A broker whose replica lies in the first directory and is on its way to the second."""
    cluster = directories.start(file_system, **settings)
    cluster.create("orders", **SMALL)
    assert directory_of(cluster) == directories.paths[0]
    fill(cluster, count)
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    return cluster


def wait_for_swap(cluster: Cluster, between: Callable[[], None] = lambda: None) -> None:
    for _ in range(2_000):
        if not len(cluster.log_manager.futures):
            return
        between()
        cluster.wait(1)
    raise AssertionError("the move does not end")


def wait_until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        cluster.wait(1)
    raise AssertionError("it does not come to that")


def swap_before_the_rest(
    cluster: Cluster, directories: Directories, background: LateBackground
) -> None:
    """Moves the log to the second directory; what follows the swap in the background is yet to be
    done."""
    background.is_late = True
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    (future,) = cluster.log_manager.futures.all()
    wait_until(cluster, lambda: cluster.log_manager.flusher.is_flushing(future.local))
    background.run()
    wait_for_swap(cluster)


def test_a_replica_moves_while_it_is_appended_to(directories: Directories) -> None:
    """Acknowledged records would be lost, or consumers would wait for ever."""
    cluster = begin(directories)
    waiting: list[object] = []
    sent = 30

    def append() -> None:
        nonlocal sent
        if sent < 60:
            fill(cluster, 1, sent)
            sent += 1
            waiting.append(cluster.fetch(A, sent, max_wait_ms=60_000))

    cluster.wait(1)
    (future,) = cluster.log_manager.futures.all()
    assert 0 < cluster.replicas.log_dir_moves.offset_lag(future) < 30
    assert directories.found() == [["orders-0"], ["orders-0-future"], []]
    wait_for_swap(cluster, append)
    assert directory_of(cluster) == directories.paths[1]
    assert directories.found() == [["orders-0-delete"], ["orders-0"], []]
    fill(cluster, 1, sent)
    assert all(waiting), "a fetch was not woken"
    assert values_of(cluster) == numbers(sent + 1)
    cluster.wait(20)
    assert directories.found() == [[], ["orders-0"], []]
    directories.stop(cluster)
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    assert values_of(cluster) == numbers(sent + 1)
    assert directory_of(cluster) == directories.paths[1]


def test_producers_go_on_where_they_were(directories: Directories) -> None:
    """A retry would be appended twice, or a good batch refused as out of order."""

    def send(sequence: int) -> tuple[ErrorCode, int]:
        builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(1, None, b"x")
        entry = [memoryview(bytearray(builder.build()))]
        partition = cluster.replicas.partition(A)
        (outcome,) = partition.append_to_leader(entry, AppendOrigin.CLIENT, 0)
        return (ErrorCode.NONE, outcome.first_offset)

    cluster = begin(directories, 0)
    for sequence in range(20):
        send(sequence)
    # Retention takes the batches away, and leaves what is known of their producer.
    cluster.replicas.partition(A).maybe_increment_leader_high_watermark()
    cluster.replicas.partition(A).delete_records(20)
    wait_for_swap(cluster)
    assert send(20) == (ErrorCode.NONE, 20)
    assert send(20) == (ErrorCode.NONE, 20)
    assert cluster.replicas.partition(A).leader_log().log_end_offset == 21


def delete_records(cluster: Cluster, log: Log) -> None:
    cluster.replicas.partition(A).delete_records(log.high_watermark)


def let_retention_take_all(cluster: Cluster, log: Log) -> None:
    log.update_config(LogConfig(parse_topic_settings({"retention.bytes": "0"})))
    assert log.delete_old_segments(cluster.clock.wall_ms()) > 0


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("copied_steps", [0, 3, 20])
@pytest.mark.parametrize("empty", [delete_records, let_retention_take_all])
def test_a_transaction_goes_on_where_nothing_is_left_of_it(
    directories: Directories,
    empty: Callable[[Cluster, Log], None],
    copied_steps: int,
    is_open: bool,
    is_crashed: bool,
) -> None:
    """A healthy producer would get a fatal answer, or nothing behind its transaction be shown."""

    def write(data: bytes, origin: AppendOrigin) -> None:
        partition = cluster.replicas.partition(A)
        (outcome,) = partition.append_to_leader([memoryview(bytearray(data))], origin, 0)
        assert not isinstance(outcome, BrokerError), outcome
        partition.maybe_increment_leader_high_watermark()

    def send(sequence: int) -> None:
        builder = RecordBatchBuilder(
            producer_id=5, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        builder.append(1, None, b"%03d" % sequence)
        write(builder.build(), AppendOrigin.CLIENT)

    def commit() -> None:
        write(build_end_marker(commit=True, producer_id=5, **MARKER), AppendOrigin.COORDINATOR)

    cluster = begin(directories, 0)
    for sequence in range(20):
        send(sequence)
    if not is_open:
        commit()
    for _ in range(copied_steps):
        cluster.wait(1)
    empty(cluster, cluster.replicas.partition(A).leader_log())
    wait_for_swap(cluster)
    if is_crashed:
        directories.crash(cluster)
        cluster = directories.start()
        cluster.create("orders", **SMALL)
    log = cluster.replicas.partition(A).leader_log()
    start = log.log_start_offset
    assert start == log.log_end_offset == (20 if is_open else 21)
    assert directory_of(cluster) == directories.paths[1]
    send(20)
    assert log.last_stable_offset == start
    commit()
    assert log.last_stable_offset == log.high_watermark == start + 2
    send(21)
    commit()
    assert log.last_stable_offset == log.high_watermark == start + 4


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_move_goes_on_after_a_restart(directories: Directories, is_clean: bool) -> None:
    """Half a move would be forgotten, or its copy pass for the log."""
    cluster = begin(directories)
    cluster.wait(3)
    (future,) = cluster.log_manager.futures.all()
    copied = future.log_end_offset
    assert 0 < copied < 30
    (directories.stop if is_clean else directories.crash)(cluster)
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    (future,) = cluster.log_manager.futures.all()
    assert future.log_end_offset == copied
    fill(cluster, 5, 30)
    wait_for_swap(cluster)
    assert directory_of(cluster) == directories.paths[1]
    assert values_of(cluster) == numbers(35)


@pytest.mark.parametrize("renamed", [1, 2])
def test_a_crash_within_the_swap_leaves_one_log(directories: Directories, renamed: int) -> None:
    """The partition would come back empty, or not at all."""
    cluster = begin(directories)
    wait_for_swap(cluster)
    directories.crash(cluster)
    if renamed == 1:
        current = os.path.join(directories.paths[1], "orders-0")
        os.rename(current, current + f".{1:032x}-future")
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    assert directory_of(cluster) == directories.paths[1]
    assert values_of(cluster) == numbers(30)
    assert not len(cluster.log_manager.futures)


def test_a_swap_outlives_a_start_without_the_new_disk(directories: Directories) -> None:
    """The old log would be removed, and the copy, once its disk is back, be one that nothing
    explains: the partition's records would be gone."""
    cluster = begin(directories)
    wait_for_swap(cluster)
    directories.crash(cluster)
    current = os.path.join(directories.paths[1], "orders-0")
    os.rename(current, current + f".{1:032x}-future")
    place = Path(directories.paths[1])
    place.rename(f"{place}.away")
    place.touch()
    for end in (directories.stop, directories.crash):
        cluster = directories.start()
        assert cluster.log_manager.offline_dirs == [str(place)]
        cluster.wait(100_000)
        end(cluster)
        (old,) = Path(directories.paths[0]).glob("orders-0.*-delete")
        # The checkpoints do not have it any more: a log that is made anew is no other one's.
        assert not (old / names.PARTITION_METADATA).exists()
    place.unlink()
    Path(f"{place}.away").rename(place)
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    assert directory_of(cluster) == directories.paths[1]
    assert values_of(cluster) == numbers(30)
    cluster.wait(1)
    assert directories.found() == [[], ["orders-0"], []]


def test_a_copy_that_nothing_explains_is_set_aside(directories: Directories) -> None:
    """A half copy would become the log of a partition whose directory was taken away."""
    cluster = begin(directories)
    cluster.wait(2)
    directories.stop(cluster)
    os.rename(os.path.join(directories.paths[0], "orders-0"), directories.paths[0] + "-elsewhere")
    cluster = directories.start()
    assert directories.found() == [[], ["orders-0-stray"], []]


def test_a_wish_to_stay_or_to_go_elsewhere_gives_the_move_up(directories: Directories) -> None:
    cluster = begin(directories)
    cluster.wait(2)
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    assert len(cluster.log_manager.futures) == 1
    cluster.replicas.log_dir_moves.alter(A, directories.paths[2])
    assert directories.found() == [["orders-0"], ["orders-0-delete"], ["orders-0-future"]]
    cluster.replicas.log_dir_moves.alter(A, directories.paths[0])
    assert not len(cluster.log_manager.futures)
    cluster.wait(100)
    assert directories.found() == [["orders-0"], [], []]
    assert values_of(cluster) == numbers(30)


def test_what_cannot_be_moved_is_told_as_by_kafka(directories: Directories) -> None:
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    cluster.create("elsewhere", (2,), leader=2)
    second = directories.paths[1]
    wishes = [
        (A, directories.paths[0], None),
        (A, "/no/such/directory", ErrorCode.LOG_DIR_NOT_FOUND),
        (TopicPartition("none", 0), second, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("orders", 7), second, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("elsewhere", 0), second, ErrorCode.REPLICA_NOT_AVAILABLE),
        (TopicPartition("x" * 220, 0), second, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    for topic_partition, path, expected in wishes:
        if expected is None:
            cluster.replicas.log_dir_moves.alter(topic_partition, path)
            continue
        with pytest.raises(BrokerError) as refused:
            cluster.replicas.log_dir_moves.alter(topic_partition, path)
        assert refused.value.code is expected, topic_partition
    assert not len(cluster.log_manager.futures)


def test_a_replica_is_made_where_it_is_wished(directories: Directories) -> None:
    """Tools say where replicas are to lie before they are there."""
    cluster = directories.start()
    with pytest.raises(BrokerError):
        cluster.replicas.log_dir_moves.alter(A, directories.paths[2])
    cluster.create("orders", **SMALL)
    assert directory_of(cluster) == directories.paths[2]


def test_deleting_the_topic_ends_the_move(directories: Directories) -> None:
    """The copy of a deleted topic would come back as its log at the next start."""
    cluster = begin(directories)
    cluster.wait(2)
    cluster.delete("orders")
    cluster.wait(100)
    assert directories.found() == [[], [], []]
    assert not len(cluster.log_manager.futures)


def test_a_copy_that_a_full_disk_does_not_let_go_goes_with_its_log(
    directories: Directories,
) -> None:
    """Left behind by its log, it would pass for the end of a move, and the deleted log be back."""
    files = FaultyFileSystem()
    cluster = begin(directories, file_system=files)
    cluster.wait(2)
    files.is_full = True
    with pytest.raises(BrokerError, match="renaming"):
        cluster.replicas.log_dir_moves.alter(A, directories.paths[2])
    cluster.delete("orders")
    assert directories.found() == [["orders-0"], ["orders-0-future"], []]
    files.is_full = False
    cluster.wait(2_000)
    assert directories.found() == [[], [], []]
    assert not len(cluster.log_manager.futures)


def test_a_swap_that_cannot_be_taken_back_fails_the_directory(directories: Directories) -> None:
    """Records acknowledged from then on would be deleted at the next start."""
    files = FaultyFileSystem()
    cluster = begin(directories, file_system=files)
    files.errno, files.fail_count = errno.ENOSPC, 2
    rename, renamed = files.rename, []

    def refuse_the_second(path: str, target: str) -> None:
        if os.path.isdir(path):
            renamed.append(path)
            if len(renamed) == 2:
                files.fail_at = files.operations + 1
        rename(path, target)

    files.rename = refuse_the_second  # type: ignore[method-assign]
    while len(renamed) < 3:
        cluster.wait(1)
    assert cluster.log_manager.offline_dirs == directories.paths[:1]
    assert cluster.produce(A, b"late")[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    directories.crash(cluster)
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    assert values_of(cluster) == numbers(30)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_damaged_copy_is_given_up(directories: Directories, is_full: bool) -> None:
    """A broker would not start for a copy that it does not need."""
    cluster = begin(directories)
    cluster.wait(3)
    directories.stop(cluster)
    (name,) = [each for each in os.listdir(directories.paths[1]) if each.endswith("-future")]
    segments = [
        each for each in Path(directories.paths[1], name).iterdir() if each.suffix == ".log"
    ]
    last = max(segments)
    last.write_bytes(last.read_bytes()[:-1])
    files = FaultyFileSystem()
    files.is_full = is_full
    cluster = directories.start(files)
    files.is_full = False
    cluster.create("orders", **SMALL)
    assert not len(cluster.log_manager.futures)
    assert values_of(cluster) == numbers(30)


def test_what_the_log_loses_its_copy_loses(directories: Directories) -> None:
    """Records that were truncated, or deleted, would come back with the copy."""
    cluster = begin(directories)
    cluster.wait(6)
    (future,) = cluster.log_manager.futures.all()
    assert future.log_end_offset > 12
    log = cluster.replicas.partition(A).leader_log()
    log.truncate_to(12)
    fill(cluster, 20, 100)
    cluster.replicas.partition(A).delete_records(5)
    wait_for_swap(cluster)
    assert values_of(cluster) == numbers(7, 5) + numbers(20, 100)
    assert cluster.replicas.partition(A).leader_log().log_start_offset == 5


def test_a_log_that_is_compacted_meanwhile_would_lose_its_tombstones(
    directories: Directories,
) -> None:
    """Compaction waits for the end of a move, and takes place after it."""
    cluster = directories.start()
    cluster.create("orders", **SMALL, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    write(cluster, *((b"key", b"value") for _ in range(40)))
    partition = cluster.replicas.partition(A)
    log = partition.leader_log()
    size_bytes = log.segments.size_bytes
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    cluster.log_manager.cleaner.look()
    assert log.segments.size_bytes == size_bytes
    wait_for_swap(cluster)
    moved = partition.leader_log()
    assert moved.segments.size_bytes == size_bytes
    cluster.log_manager.cleaner.look()
    assert moved.segments.size_bytes < size_bytes


def test_a_log_whose_move_waits_to_go_on_is_not_compacted(directories: Directories) -> None:
    """A key that was deleted would come back: its value is copied, and its tombstone goes before
    the broker is told after a restart that the replica is its own, and the move goes on."""
    settings = {"min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    cluster = directories.start()
    cluster.create("orders", **SMALL, **settings, cleanup_policy="compact")
    write(cluster, *((b"key", b"value") for _ in range(20)))
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    cluster.wait(1)
    write(cluster, (b"key", None), *((b"other", b"value") for _ in range(20)))
    directories.stop(cluster)
    cluster = directories.start(**settings, log_cleanup_policy="compact")
    (future,) = cluster.log_manager.futures.all()
    assert 0 < future.log_end_offset < 20
    for _ in range(3):
        cluster.log_manager.cleaner.look()
        cluster.wait(1)
    cluster.create("orders", **SMALL, **settings, cleanup_policy="compact")
    wait_for_swap(cluster)
    for _ in range(3):
        write(cluster, *((b"other", b"value") for _ in range(5)))
        cluster.log_manager.cleaner.look()
        cluster.wait(1)
    log = cluster.replicas.partition(A).leader_log()
    assert [each.value for each in records_of(log) if each.key == b"key"] == []


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_copy_that_was_away_while_its_log_was_compacted_is_made_anew(
    directories: Directories, is_noted: bool
) -> None:
    """A key that was deleted would come back: its value was copied, and its tombstone went while
    the disk of the copy was offline, so that nobody knew of the move. A kill, or a full disk, may
    come before it is noted how far the log was compacted."""
    settings = {"min_cleanable_dirty_ratio": "0.01", "delete_retention_ms": "0"}
    compacted = {**SMALL, **settings, "cleanup_policy": "compact"}
    cluster = directories.start()
    cluster.create("orders", **compacted)
    write(cluster, *((b"key", b"value") for _ in range(20)))
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    cluster.wait(1)
    write(cluster, (b"key", None), *((b"other", b"value") for _ in range(20)))
    directories.stop(cluster)
    place = Path(directories.paths[1])
    place.rename(f"{place}.away")
    place.touch()
    cluster = directories.start()
    assert cluster.log_manager.offline_dirs == [str(place)]
    cluster.create("orders", **compacted)
    for _ in range(3):
        write(cluster, *((b"other", b"value") for _ in range(5)))
        cluster.log_manager.cleaner.look()
        cluster.wait(1)
    assert [each.key for each in records_of(cluster.replicas.partition(A).leader_log())].count(
        b"key"
    ) == 0
    directories.stop(cluster)
    if not is_noted:
        os.remove(os.path.join(directories.paths[0], names.CLEANER_CHECKPOINT))
    place.unlink()
    Path(f"{place}.away").rename(place)
    cluster = directories.start()
    (future,) = cluster.log_manager.futures.all()
    assert 0 < future.log_end_offset < 20
    cluster.create("orders", **compacted)
    wait_for_swap(cluster)
    log = cluster.replicas.partition(A).leader_log()
    assert log.log_directory.path == str(place)
    assert [each.value for each in records_of(log) if each.key == b"key"] == []


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_copy_that_ends_below_what_was_compacted_is_made_anew(
    directories: Directories, is_compacted: bool
) -> None:
    """As above: compacted batches may have as many bytes as before, since other timestamps in them
    take more. Where nothing was compacted a move goes on where it was."""
    cluster = begin(directories)
    cluster.wait(3)
    directories.stop(cluster)
    if is_compacted:
        note = CheckpointFile(OsFileSystem(), directories.paths[0], names.CLEANER_CHECKPOINT)
        note.prepare({A: 25})()
    cluster = directories.start()
    (future,) = cluster.log_manager.futures.all()
    assert 0 < future.log_end_offset < 20
    cluster.create("orders", **SMALL)
    assert cluster.replicas.partition(A).leader_log().cleaned_offset >= 20 * is_compacted
    wait_for_swap(cluster)
    assert future.local.cuts == int(is_compacted)
    assert values_of(cluster) == numbers(30)


def test_a_move_keeps_to_its_rate(directories: Directories) -> None:
    """A move would take the disk from everybody else."""
    cluster = begin(directories, replica_alter_log_dirs_io_max_bytes_per_second="1000")
    size_bytes = cluster.replicas.partition(A).leader_log().segments.size_bytes
    duration_ms = 0
    while len(cluster.log_manager.futures):
        cluster.wait(10)
        duration_ms += 10
        assert duration_ms < 60_000
    assert duration_ms >= (size_bytes - STEP_BYTES) * 0.9


def test_a_disk_that_fails_ends_the_move_and_nothing_else(directories: Directories) -> None:
    """The replica would go offline with a directory in which it does not lie."""
    files = FaultyFileSystem()
    cluster = directories.start(files)
    cluster.create("orders", **SMALL)
    fill(cluster, 30)
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    cluster.wait(2)
    (future,) = cluster.log_manager.futures.all()
    future.log_directory.fail(OSError(5, "the disk is gone"))
    cluster.wait(100)
    assert not len(cluster.log_manager.futures)
    assert cluster.store.offline == []
    fill(cluster, 1, 30)
    assert values_of(cluster) == numbers(31)
    with pytest.raises(BrokerError) as refused:
        cluster.replicas.log_dir_moves.alter(A, directories.paths[2])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_names_of_future_directories() -> None:
    name = f"a.b-c-7.{5:032x}-future"
    assert names.parse_future_directory(name) == TopicPartition("a.b-c", 7)
    assert names.parse_partition_directory(name) is None
    assert names.parse_future_directory("a-7") is None


def test_a_copy_that_a_full_disk_does_not_let_cut_is_cut_later(directories: Directories) -> None:
    """Records that a new leader has not got would be back with the end of the move, in the place of
    those that it has."""
    files = FaultyFileSystem()
    cluster = begin(directories, file_system=files)
    cluster.wait(6)
    (future,) = cluster.log_manager.futures.all()
    cluster.replicas.partition(A).leader_log().truncate_to(12)
    fill(cluster, 20, 100)
    segment = future.segments.floor(12)
    assert segment is not None
    assert segment.offset_index.entry_count > 0
    Path(segment.offset_index.path).write_bytes(b"\xff" * segment.offset_index.used_bytes)
    files.is_full = True  # the index cannot be mended
    cluster.wait(2)
    assert future.log_end_offset > 12
    files.is_full = False
    cluster.wait(2_000)
    wait_for_swap(cluster)
    assert directory_of(cluster) == directories.paths[1]
    assert values_of(cluster) == numbers(12) + numbers(20, 100)


def test_a_copy_keeps_the_end_of_the_log_though_its_disk_was_full(directories: Directories) -> None:
    """Offsets would be given twice, after the next start, where compaction has left nothing in
    front of the end."""
    files = FaultyFileSystem()
    cluster = directories.start(files)
    cluster.create("orders", **SMALL, cleanup_policy="compact")
    write(cluster, *((b"key", b"value") for _ in range(5)))
    log = cluster.replicas.partition(A).leader_log()
    # As compaction leaves it where the last records were tombstones.
    log.local.log_end_offset = 8
    log.appender.roll()
    log.update_high_watermark(8)
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    (future,) = cluster.log_manager.futures.all()
    wait_until(cluster, lambda: future.log_end_offset == 5)
    files.is_full = True
    cluster.wait(5)
    files.is_full = False
    cluster.wait(2_000)
    wait_for_swap(cluster)
    assert len(future.segments) == len(log.segments)
    directories.stop(cluster)
    cluster = directories.start()
    cluster.create("orders", **SMALL, cleanup_policy="compact")
    assert directory_of(cluster) == directories.paths[1]
    assert cluster.replicas.partition(A).leader_log().log_end_offset == 8


@pytest.mark.parametrize("how", ["stopped", "killed", "offline"])
def test_what_a_log_has_lost_before_its_move_goes_on_its_copy_loses(
    directories: Directories, how: str
) -> None:
    """Records that a new leader has not got would be back in the place of its own: between two
    steps of a move there may be hours, with a low rate or a full disk."""
    cluster = begin(directories)
    cluster.wait(6)
    (future,) = cluster.log_manager.futures.all()
    assert future.log_end_offset > 14
    cluster.replicas.partition(A).leader_log().truncate_to(12)
    cluster.change("orders", leader_epoch=1)
    fill(cluster, 20, 100)
    if how == "offline":
        cluster.change("orders", offline=(1,))
        cluster.wait(2)
        cluster.change("orders", offline=(), leader_epoch=2)
    else:
        (directories.stop if how == "stopped" else directories.crash)(cluster)
        cluster = directories.start()
        cluster.create("orders", **SMALL)
        cluster.change("orders", leader_epoch=2)
    (future,) = cluster.log_manager.futures.all()
    log = cluster.replicas.partition(A).leader_log()
    assert agreed_end(log, future) == 12, "what is right is not copied again"
    wait_for_swap(cluster)
    assert directory_of(cluster) == directories.paths[1]
    assert values_of(cluster) == numbers(12) + numbers(20, 100)


def test_what_a_full_disk_refuses_to_a_copy_that_was_cut_is_done_later(
    directories: Directories,
) -> None:
    """Offsets would be given twice, after the next start: the copy ends where it should and nothing
    says so, as compaction has left no batch in front of its end."""
    files = FaultyFileSystem()
    cluster = directories.start(files)
    cluster.create("orders", **SMALL, cleanup_policy="compact")
    write(cluster, *((b"key", b"value") for _ in range(3)))
    log = cluster.replicas.partition(A).leader_log()
    log.local.log_end_offset = 6
    log.appender.roll()
    log.update_high_watermark(6)
    write(cluster, *((b"key", b"value") for _ in range(30)))
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    (future,) = cluster.log_manager.futures.all()
    wait_until(cluster, lambda: future.log_end_offset > 6)
    log.truncate_to(5)
    files.is_full = True
    cluster.wait(2)
    assert future.log_end_offset == 5
    files.is_full = False
    cluster.wait(2_000)
    wait_for_swap(cluster)
    directories.stop(cluster)
    cluster = directories.start()
    cluster.create("orders", **SMALL, cleanup_policy="compact")
    assert directory_of(cluster) == directories.paths[1]
    assert cluster.replicas.partition(A).leader_log().log_end_offset == 5


def test_a_move_ends_though_each_record_is_flushed(directories: Directories) -> None:
    """Every step would find a flush of the copy under way, and leave the swap to the next one."""
    background = LateBackground(is_late=False)
    cluster = directories.start(background=background)
    cluster.create("orders", **{**SMALL, "segment_bytes": "100000"}, flush_messages="1")
    fill(cluster, 10)
    background.is_late = True
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    sent = 10

    def append() -> None:
        nonlocal sent
        fill(cluster, 1, sent)
        sent += 1

    def sync_and_append() -> None:
        background.try_step()
        append()

    (future,) = cluster.log_manager.futures.all()
    wait_until(cluster, lambda: future.log_end_offset == sent)
    for _ in range(5):  # during the first flush of the copy
        append()
        cluster.wait(1)
    assert len(cluster.log_manager.futures)
    wait_for_swap(cluster, sync_and_append)
    assert directory_of(cluster) == directories.paths[1]
    log = cluster.replicas.partition(A).leader_log()
    assert log.local.recovery_point >= 15, "what came during a long flush is flushed as well"
    for _ in range(2):
        background.run()
        assert log.local.recovery_point == log.log_end_offset == sent
        append()
    background.catch_up()
    assert values_of(cluster) == numbers(sent)


def test_a_power_failure_after_the_swap_leaves_one_log(
    directories: Directories, tmp_path: Path
) -> None:
    """The new directory's disk may be the quicker one: a broker that finds the log in both does not
    start."""
    files, background = VolatileFileSystem(str(tmp_path)), LateBackground(is_late=False)
    cluster = directories.start(files, background)
    cluster.create("orders", **SMALL)
    fill(cluster, 3)
    files.sync(directories.paths[0])  # the log has been there for long
    swap_before_the_rest(cluster, directories, background)
    background.work.pop()()  # one thread syncs the moved log, another is yet to write checkpoints
    left = Directories(tmp_path / "left")
    files.survive(str(tmp_path / "left"), 0, zeros=False)
    assert left.found()[1] == ["orders-0"]
    after = left.start()
    after.create("orders", **SMALL)
    assert directory_of(after) == left.paths[1]
    assert values_of(after) == numbers(3)
    left.stop(after)
    background.catch_up()


def test_a_swap_of_which_the_first_name_cannot_be_synced_is_taken_back(
    directories: Directories,
) -> None:
    """The log would be left under a name of those that are deleted with the next start."""
    files = FaultyFileSystem()
    cluster = begin(directories, file_system=files)
    rename = files.rename

    def refuse_what_follows(path: str, target: str) -> None:
        if os.path.isdir(path) and files.fail_at is None:
            files.fail_at = files.operations + 2
        rename(path, target)

    files.rename = refuse_what_follows  # type: ignore[method-assign]
    wait_until(cluster, lambda: bool(cluster.log_manager.offline_dirs))
    assert cluster.log_manager.offline_dirs == directories.paths[:1]
    directories.crash(cluster)
    assert directories.found() == [["orders-0"], ["orders-0-future"], []]
    cluster = directories.start()
    cluster.create("orders", **SMALL)
    wait_for_swap(cluster)
    assert values_of(cluster) == numbers(30)


@pytest.mark.parametrize("refused", ["sync", "rename"])
def test_a_swap_that_was_taken_back_stays_so_when_the_power_fails(
    directories: Directories, tmp_path: Path, refused: str
) -> None:
    """The start would find the log under the name of one that is deleted, finish the swap, and
    leave out what was acknowledged and synced since."""
    files, background = VolatileFileSystem(str(tmp_path)), LateBackground(is_late=False)
    cluster = directories.start(files, background)
    cluster.create("orders", **SMALL)
    fill(cluster, 3)
    cluster.replicas.partition(A).leader_log().local.flush()
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    (future,) = cluster.log_manager.futures.all()
    rename, refusals = files.rename, []

    def refuse(path: str, target: str) -> None:
        if path == future.local.path and not refusals:
            refusals.append(path)
            raise OSError(errno.ENOSPC, "No space left on device", path)
        rename(path, target)

    def refuse_sync(path: str, target: str) -> None:
        rename(path, target)
        if target.endswith("-delete") and not refusals:
            refusals.append(path)
            files.errno, files.fail_at = errno.ENOSPC, files.operations + 1

    files.rename = refuse if refused == "rename" else refuse_sync  # type: ignore[method-assign]
    wait_until(cluster, lambda: bool(refusals))
    assert directory_of(cluster) == directories.paths[0]
    fill(cluster, 5, 3)
    cluster.replicas.partition(A).leader_log().local.flush()
    for kept in range(files.pending_changes + 1):
        left = Directories(tmp_path / f"left{kept}")
        files.survive(str(tmp_path / f"left{kept}"), kept, zeros=False)
        after = left.start()
        after.create("orders", **SMALL)
        assert values_of(after) == numbers(8), (kept, left.found())
        left.stop(after)


def test_a_log_that_has_moved_goes_when_the_new_name_is_on_the_disk(
    directories: Directories, tmp_path: Path
) -> None:
    """A power failure would leave neither of the two under a name that the next start knows: with
    `file.delete.delay.ms=0`, or a disk that takes long, the removal comes before the sync."""
    files, background = VolatileFileSystem(str(tmp_path)), LateBackground(is_late=False)
    cluster = directories.start(files, background)
    cluster.create("orders", **SMALL)
    fill(cluster, 3)
    for path in directories.paths:
        files.sync(path)
    swap_before_the_rest(cluster, directories, background)
    waiting = [background.work.pop()]  # the flush of the moved log
    change = files.change

    def keep_waiting(what: str, path: str, *, writes: bool = False) -> None:
        if path.startswith(directories.paths[1]):
            raise SlowDisk(path)
        change(what, path, writes=writes)

    files.change = keep_waiting  # type: ignore[method-assign]
    for _ in range(3):
        while background.work:
            work = background.work.popleft()
            try:
                work()
            except SlowDisk:
                waiting.append(work)
        cluster.wait(20)
    files.change = change  # type: ignore[method-assign]
    files.sync(directories.paths[0])
    left = Directories(tmp_path / "left")
    files.survive(str(tmp_path / "left"), 0, zeros=False)
    after = left.start()
    after.create("orders", **SMALL)
    assert values_of(after) == numbers(3), left.found()
    left.stop(after)
    background.work.extend(waiting)
    background.catch_up()
    cluster.wait(20)
    assert directories.found() == [[], ["orders-0"], []]


def test_a_swap_that_a_start_finishes_is_on_the_disk_before_the_old_log_goes(
    directories: Directories, tmp_path: Path
) -> None:
    """The disk of the old log may be the quicker one: after a power failure neither of the two
    would have a name that the next start knows."""
    files = VolatileFileSystem(str(tmp_path))
    cluster = directories.start(files)
    cluster.create("orders", **SMALL)
    fill(cluster, 3)
    cluster.replicas.partition(A).leader_log().local.flush()
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    rename = files.rename

    def kill(path: str, target: str) -> None:
        if path.endswith("-future"):
            raise SlowDisk(path)
        rename(path, target)

    files.rename = kill  # type: ignore[method-assign]
    with pytest.raises(SlowDisk):
        wait_for_swap(cluster)
    directories.crash(cluster)
    assert directories.found() == [["orders-0-delete"], ["orders-0-future"], []]
    files.rename = rename  # type: ignore[method-assign]
    change, removed = files.change, []

    def note(what: str, path: str, *, writes: bool = False) -> None:
        change(what, path, writes=writes)
        if what == "remove tree":
            removed.append(path)
            files.survive(str(tmp_path / "left"), 0, zeros=False)

    files.change = note  # type: ignore[method-assign]
    cluster = directories.start(files)
    cluster.wait(1)
    assert len(removed) == 1
    assert Directories(tmp_path / "left").found()[1] == ["orders-0"]


def test_what_was_on_the_disk_before_a_swap_is_so_after_it(
    directories: Directories, tmp_path: Path
) -> None:
    """With `flush.messages=1` each record is soon on the disk: a power failure would take the last
    ones, whose copies were yet to be synced."""
    files, background = VolatileFileSystem(str(tmp_path)), LateBackground(is_late=False)
    cluster = directories.start(files, background)
    cluster.create("orders", **{**SMALL, "segment_bytes": "100000"})
    fill(cluster, 10)
    log = cluster.replicas.partition(A).leader_log()
    log.local.flush()
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    background.is_late = True
    sent = 10

    def sync_and_append() -> None:
        nonlocal sent
        background.try_step()
        fill(cluster, 1, sent)
        sent += 1
        log.local.flush()

    wait_for_swap(cluster, sync_and_append)
    assert sent > 11
    left = Directories(tmp_path / "left")
    files.survive(str(tmp_path / "left"), 0, zeros=False)
    after = left.start()
    after.create("orders", **SMALL)
    assert values_of(after) == numbers(sent)
    left.stop(after)
    background.catch_up()


def test_a_copy_knows_the_producers_that_a_damaged_log_has_forgotten(
    directories: Directories,
) -> None:
    """A replica is moved from a disk that loses bits: after a cut the old log cannot tell from its
    records what each producer has sent, and batches would be appended twice."""

    def send(sequence: int) -> int:
        builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(1, None, b"x")
        partition = cluster.replicas.partition(A)
        data = [memoryview(bytearray(builder.build()))]
        (outcome,) = partition.append_to_leader(data, AppendOrigin.CLIENT, 0)
        assert not isinstance(outcome, BrokerError), outcome
        return outcome.first_offset

    background = LateBackground(is_late=False)
    cluster = directories.start(background=background)
    cluster.create("orders", **{**SMALL, "segment_bytes": "100000"})
    assert [send(sequence) for sequence in range(20)] == [*range(20)]
    log = cluster.replicas.partition(A).leader_log()
    background.is_late = True
    cluster.replicas.log_dir_moves.alter(A, directories.paths[1])
    (future,) = cluster.log_manager.futures.all()
    wait_until(cluster, lambda: future.log_end_offset == 20)
    cluster.change("orders", leader=2, leader_epoch=1)
    with open(log.segments.active.file.path, "r+b") as file:
        file.write(bytes(8) + b"\xff" * 4)
    with pytest.raises(BrokerError) as refused:
        log.truncate_to(15)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    cluster.change("orders", leader=1, leader_epoch=2)
    background.catch_up()
    wait_for_swap(cluster)
    assert directory_of(cluster) == directories.paths[1]
    assert [send(sequence) for sequence in (14, 15, 15, 16)] == [14, 15, 15, 16]
