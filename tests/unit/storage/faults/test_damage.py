"""Every file of a log directory, damaged in every way, between two starts.

A log of four segments with an aborted transaction is closed in order, one file is damaged, and
the directory is opened again. Either the start is refused by one line that names the file, or
every record is read at every offset, found by its time, and nothing aborted passes for
committed; the last batch of a producer is known, and the log takes another one. `fsck` says
what is wrong before, and nothing after, since what can be rebuilt from the records is.

Some values have no checksum in Kafka's formats and hang on nothing else: an offset in a checkpoint
that could be another one is believed (`UNTOLD`).
"""

import itertools
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.storage.conftest import Batches, World, read_records

from odradek.config.topic import LogConfig, parse_topic_settings
from odradek.errors import BrokerError, LogDirFailure
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.batch import split_batches
from odradek.records.builder import build_end_marker
from odradek.records.errors import CorruptRecords
from odradek.records.reader import iter_records
from odradek.storage import Log, OsFileSystem
from odradek.storage.checkpoints import (
    CorruptCheckpoint,
    parse_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from odradek.storage.log.recovery import check_batch

SMALL = {"segment_bytes": "400", "index_interval_bytes": "50", "file_delete_delay_ms": "0"}
ABORTED = [(3, 4)]
# The user whom Linux gives no rights.
NOBODY = 65534

IN_LOG = [".index", ".timeindex", ".txnindex", ".txncheck", ".snapshot"]
IN_LOG += ["leader-epoch-checkpoint", "partition.metadata"]
OFFSETS = [
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
]
BESIDE = [*OFFSETS, ".kafka_cleanshutdown", "meta.properties", ".lock"]
# A start can do with any content of these, or with none that makes sense.
UNTOLD = {*OFFSETS, ".kafka_cleanshutdown", "meta.properties", ".lock"}
# What misleads nobody may stay: an entry that is not used, an older snapshot.
UNUSED = {".index", ".timeindex", ".snapshot"}
# A log that began later would be right too.
HIDES_RECORDS = {"log-start-offset-checkpoint"}
MEANING: dict[str, Callable[[bytes], object]] = {
    "leader-epoch-checkpoint": parse_epochs,
    "partition.metadata": parse_partition_metadata,
    "meta.properties": parse_meta_properties,
    **dict.fromkeys(OFFSETS, parse_offsets),
}
ENTRY_BYTES = {".index": 8, ".timeindex": 12}

thorough = pytest.mark.parametrize(
    "each", [pytest.param(False, id="some"), pytest.param(True, id="all", marks=pytest.mark.slow)]
)


def abort_marker(world: World, producer_id: int) -> memoryview:
    """The marker that ends a transaction, as the coordinator sends it."""
    marker = build_end_marker(
        commit=False,
        base_offset=0,
        timestamp_ms=world.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=1,
    )
    return memoryview(bytearray(marker))


class NoPermission(OsFileSystem):
    """Refuses to open what lies at one path; tests may run as root, whom nothing is refused."""

    def __init__(self, denied: str) -> None:
        super().__init__(64, durable=False)
        self._denied = denied
        self.has_refused = False

    def _ask(self, path: str) -> None:
        if path == self._denied:
            self.has_refused = True
            raise PermissionError(13, "Permission denied", path)

    def open(self, path, *, create=False):
        self._ask(path)
        return super().open(path, create=create)

    def map(self, path, size_bytes):
        self._ask(path)
        return super().map(path, size_bytes)

    def read_bytes(self, path):
        self._ask(path)
        return super().read_bytes(path)

    def lock(self, path):
        self._ask(path)
        return super().lock(path)

    def remove(self, path):
        self._ask(path)
        super().remove(path)


class Directory:
    """A closed log directory, kept beside itself so that it can be damaged again and again."""

    def __init__(self, world: World, batches) -> None:
        self.world = world
        self.batches = batches
        (self.path,) = world.directories
        manager = world.start()
        log = world.log(manager, **SMALL)
        self._fill(log)
        self.end_offset = log.log_end_offset
        self.records = [(r.offset, r.value) for r in read_records(log)]
        self.epochs = log.leader_epochs.entries
        # Where each batch begins: file, position, base offset.
        self.places = [
            (segment.file.path.removeprefix(self.path + "/"), header.position, header.base_offset)
            for segment in log.segments.all()
            for header in split_batches(segment.read(0, segment.size_bytes))
        ]
        log.update_high_watermark(log.log_end_offset)
        manager.shutdown()
        for name in ("cleaner-offset-checkpoint", "log-start-offset-checkpoint"):
            with open(f"{self.path}/{name}", "w") as file:
                file.write("0\n1\norders 0 0\n")
        self.kept = self.path + ".kept"
        shutil.move(self.path, self.kept)
        self.restore()
        assert world.findings() == []

    def _fill(self, log: Log) -> None:
        for n in range(12):
            self._append(log, b"%03d" % n, n // 5, 9, n)
            if n == 3:
                self.world.advance(10)
                self._append(log, b"gone", 0, 3, 0, is_transactional=True)
                self.world.advance(10)
                marker = abort_marker(self.world, 3)
                log.appender.append_as_leader([marker], 0, AppendOrigin.COORDINATOR)
            self.world.advance(10)

    def _append(self, log, value, epoch, producer_id, sequence, **options) -> None:
        batch = self.batches(value, producer_id=producer_id, base_sequence=sequence, **options)
        (result,) = log.appender.append_as_leader([batch], epoch)
        assert not isinstance(result, BrokerError), result

    def restore(self, *, crashed: bool = False) -> None:
        """Everything is as it was after the orderly end, or as if that had not come."""
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.kept, self.path)
        if crashed:
            for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
                os.unlink(f"{self.path}/{name}")

    def files(self, name: str, *, each: bool = True) -> list[str]:
        """The paths below the directory that `name` stands for; of many the first and last."""
        if name in BESIDE:
            return [name]
        found = sorted(os.listdir(f"{self.kept}/orders-0"))
        matching = [f"orders-0/{file}" for file in found if file.endswith(name)]
        return matching if each else sorted({matching[0], matching[-1]})

    def records_beside(self, damaged: str) -> set[tuple[int, bytes | None]]:
        """The names of the other log files."""
        offsets = {offset for file, _, offset in self.places if file != damaged}
        return {record for record in self.records if record[0] in offsets}

    def content(self, file: str) -> bytes:
        with open(f"{self.kept}/{file}", "rb") as stream:
            return stream.read()

    def damage(self, file: str, content: bytes) -> None:
        """Begins with a sound directory but for this file."""
        self.restore()
        with open(f"{self.path}/{file}", "wb") as stream:
            stream.write(content)

    def check(self, name: str, file: str, what: object, file_system=None) -> bool:
        """Starts on the damaged directory; returns whether the start was refused."""
        self.world.failed.clear()
        refusal = self.refusal(name, what, file_system)
        if refusal is None:
            findings = self.world.findings()
            is_left = name in UNTOLD | UNUSED or os.path.isdir(f"{self.path}/{file}")
            assert findings == [] or is_left, (what, findings)
            return False
        assert f"{self.path}/{file}" in refusal, (what, refusal)
        assert "\n" not in refusal, (what, refusal)
        return True

    def refusal(self, name: str, what: object, file_system) -> str | None:
        """Why the directory cannot be used; None when it was, and all was right."""
        try:
            manager = self.world.start(file_system)
            log = self.world.log(manager, **SMALL)
            self._check_log(log, what, hides=name in HIDES_RECORDS)
            manager.shutdown()
        except (ValueError, LogDirFailure) as error:
            return str(error)
        except BrokerError as error:
            # The disk refused later: the directory has to be offline.
            return str(error) if self.world.failed == [self.path] else f"still in use: {error}"
        finally:
            self.world.crash(self.world.managers.pop())
        return None

    def _check_log(self, log: Log, what: object, *, hides: bool) -> None:
        assert log.log_end_offset == self.end_offset, what
        start = log.log_start_offset
        assert start == 0 or hides, what
        log.update_high_watermark(self.end_offset)
        expected = [record for record in self.records if record[0] >= start]
        assert [(r.offset, r.value) for r in read_records(log)] == expected, what
        for offset, value in expected:
            data = b"".join(log.read(offset, 1, self.end_offset, True).records)
            served = [(r.offset, r.value) for r in iter_records(data, drop_partial_tail=True)]
            assert (offset, value) in served, (what, offset)
        self._check_ends(log, what)
        self._check_times(log, what)
        if start == 0:
            assert log.reader.aborted_transactions(0, self.end_offset) == ABORTED, what
            assert log.leader_epochs.entries == self.epochs, what
        self._check_producer(log, what)

    def _check_ends(self, log: Log, what: object) -> None:
        """The aborted transactions that a reader is told of are those before the end of a read."""
        offsets = [offset for _, _, offset in self.places if offset >= log.log_start_offset]
        for offset, size_bytes in itertools.product(offsets, (1, 250, 400)):
            found = log.read(offset, size_bytes, self.end_offset, True)
            headers = split_batches(b"".join(found.records), drop_partial_tail=True)
            assert log.reader.end_of(found) == headers[-1].last_offset + 1, (what, offset)

    def _check_producer(self, log: Log, what: object) -> None:
        repeated = self.batches(b"011", producer_id=9, base_sequence=11)
        (retry,) = log.appender.append_as_leader([repeated], log.leader_epochs.latest_epoch)
        assert getattr(retry, "duplicate", False), (what, retry)
        self._append(log, b"012", 3, 9, 12)
        log.update_high_watermark(log.log_end_offset)
        if log.log_start_offset < self.end_offset:
            assert [r.value for r in read_records(log)][-1] == b"012", what

    def _check_times(self, log: Log, what: object) -> None:
        for record in read_records(log):
            found = log.fetch_offset_by_timestamp(record.timestamp, self.end_offset)
            assert found is not None, what
            assert (found.offset, found.timestamp) == (record.offset, record.timestamp), what


@pytest.fixture
def directory(world, batches) -> Iterator[Directory]:
    directory = Directory(world, batches)
    yield directory
    directory.restore()


def means_the_same(name: str, content: bytes, damaged: bytes) -> bool:
    """Whether a reader finds in both what it is looking for."""
    meaning = MEANING.get(name)
    try:
        return meaning is not None and meaning(content) == meaning(damaged)
    except CorruptCheckpoint:
        return False


def is_raised(content: bytes, damaged: bytes) -> bool:
    """Whether only the beginning of the first epoch is another, a later one."""
    try:
        before, after = parse_epochs(content), parse_epochs(damaged)
    except CorruptCheckpoint:
        return False
    return before[1:] == after[1:] and before[0][0] == after[0][0] and before[0] < after[0]


def is_told(directory: Directory, name: str, content: bytes, damaged: bytes) -> bool:
    """Whether `fsck` says something, where there is something to be said."""
    if name in UNTOLD or means_the_same(name, content, damaged):
        return True
    # The first epoch begins with the log, wherever a deletion of records has put that.
    if name == "leader-epoch-checkpoint" and is_raised(content, damaged):
        return True
    # A sparse index may have fewer entries.
    if content.startswith(damaged) and len(damaged) % ENTRY_BYTES.get(name, 1 << 20) == 0:
        return True
    return directory.world.findings() != []


def places_in(content: bytes, *, each: bool) -> range:
    """The positions in a file; of one that is not small some."""
    return range(0, len(content), 1 if each or len(content) < 80 else 5)


def flips(content: bytes, *, each: bool) -> Iterator[tuple[int, int]]:
    """Positions and masks: the lowest and the highest bit, or one of the eight at a time."""
    for position in places_in(content, each=each):
        for mask in (0x01, 0x80) if each else (1 << (position % 8),):
            yield position, mask


@thorough
@pytest.mark.parametrize("name", IN_LOG + BESIDE)
def test_cut_at_every_byte(directory, name, each):
    """A file that was torn would hide records, invent some, or end the start unexplained."""
    for file in directory.files(name, each=each):
        content = directory.content(file)
        for size_bytes in places_in(content, each=each):
            directory.damage(file, content[:size_bytes])
            what = (file, size_bytes)
            assert is_told(directory, name, content, content[:size_bytes]), what
            directory.check(name, file, what)


@thorough
@pytest.mark.parametrize("name", IN_LOG + BESIDE)
def test_every_byte_flipped(directory, name, each):
    """One bad byte would lead a reader to a wrong place, or end the start unexplained."""
    for file in directory.files(name, each=each):
        content = directory.content(file)
        for position, mask in flips(content, each=each):
            flipped = bytearray(content)
            flipped[position] ^= mask
            directory.damage(file, flipped)
            what = (file, position, mask)
            assert is_told(directory, name, content, bytes(flipped)), what
            directory.check(name, file, what)


@pytest.mark.parametrize("name", IN_LOG + BESIDE)
@pytest.mark.parametrize("count", [1, 34, 4096])
def test_zeros_at_the_end(directory, name, count):
    """A file system that extends before it writes would leave entries that nobody wrote."""
    for file in directory.files(name, each=False):
        content = directory.content(file)
        directory.damage(file, content + bytes(count))
        assert is_told(directory, name, content, content + bytes(count)), (file, count)
        directory.check(name, file, (file, count))


@pytest.mark.parametrize("name", IN_LOG + BESIDE)
def test_missing(directory, name):
    """A lost file would take records or the start with it."""
    for file in directory.files(name):
        directory.restore()
        os.unlink(f"{directory.path}/{file}")
        # Snapshots come and go, and Kafka has no check files.
        if name not in (".snapshot", ".txncheck", *UNTOLD):
            assert directory.world.findings() != [], file
        assert not directory.check(name, file, file), file


@pytest.mark.parametrize("name", [".log", *IN_LOG, *BESIDE])
def test_a_directory_in_its_place(directory, name):
    """The start would end with a traceback instead of a line that names the culprit."""
    for file in directory.files(name):
        directory.restore()
        os.unlink(f"{directory.path}/{file}")
        os.mkdir(f"{directory.path}/{file}")
        assert directory.world.findings() != [], file
        # An older snapshot is not looked at.
        assert directory.check(name, file, file) or name == ".snapshot", file


@pytest.mark.parametrize("name", [".log", *IN_LOG, *BESIDE])
def test_no_permission(directory, name):
    """A file that may not be read would be taken for an empty one, or end the start unexplained."""
    for file in directory.files(name):
        directory.restore()
        files = NoPermission(f"{directory.path}/{file}")
        assert directory.check(name, file, file, files) == files.has_refused, file
        assert files.has_refused or name in (".snapshot", ".kafka_cleanshutdown"), file


@pytest.fixture
def strangers(tmp_path, world, batches) -> Iterator[str]:
    """The partition directory of another topic, with batches of other sizes, closed in order."""
    other = World([str(tmp_path / "other")])
    other.clock = world.clock
    manager = other.start()
    topic_id = UUID("bf2ad2cb-8a7e-4a55-a4d1-3c2f0d1de6a8")
    config = LogConfig(parse_topic_settings({k.replace("_", "."): v for k, v in SMALL.items()}))
    log = manager.get_or_create(TopicPartition("payments", 0), topic_id, config)
    for n in range(9):
        batch = batches(b"*" * (n + 20), b"", producer_id=7, base_sequence=2 * n)
        log.appender.append_as_leader([batch], 2 + n // 3)
        world.advance(7)
    batch = batches(b"", producer_id=5, base_sequence=0, is_transactional=True)
    log.appender.append_as_leader([batch], 9)
    log.appender.append_as_leader([abort_marker(world, 5)], 9, AppendOrigin.COORDINATOR)
    manager.shutdown()
    yield f"{other.directories[0]}/payments-0"
    other.crash(manager)


@pytest.mark.parametrize("name", IN_LOG)
def test_a_file_of_another_log(directory, strangers, name):
    """Copied to the wrong place it would send readers to positions of the other log."""
    (stranger, *_) = [entry for entry in sorted(os.listdir(strangers)) if entry.endswith(name)]
    with open(f"{strangers}/{stranger}", "rb") as stream:
        content = stream.read()
    for file in directory.files(name):
        directory.damage(file, content)
        assert directory.world.findings() != [], file
        if name != "partition.metadata":
            assert not directory.check(name, file, file), file
            continue
        # Whose records they are nobody can tell: they are set aside, for a person to look at.
        assert directory.world.log(**SMALL).log_end_offset == 0
        directory.world.crash(directory.world.managers.pop())
        assert any(entry.endswith("-stray") for entry in os.listdir(directory.path))


def damaged_logs(directory: Directory, *, each: bool) -> Iterator[tuple[str, int, int, bytearray]]:
    """Every damage of every log file: the file, the position, the mask (0: cut there), the rest."""
    for file in directory.files(".log", each=each):
        content = directory.content(file)
        for position in range(0, len(content), 1 if each else 7):
            yield file, position, 0, bytearray(content[:position])
            flipped = bytearray(content)
            flipped[position] ^= 1 << (position % 8)
            yield file, position, 1 << (position % 8), flipped
        yield file, len(content), 0, bytearray(content + bytes(100))


@thorough
def test_a_damaged_log_after_a_crash(directory, each):
    """A damaged batch would be served, or whole ones be lost before it."""
    for file, position, mask, content in damaged_logs(directory, each=each):
        what = (file, position, mask)
        begin = max(place for place in directory.places if place[:2] <= (file, position))
        if mask and begin == directory.places[-1] and position - begin[1] < 8:
            # No checksum covers a batch's offset, and nothing comes after it that would tell.
            continue
        directory.restore(crashed=True)
        with open(f"{directory.path}/{file}", "wb") as stream:
            stream.write(content)
        log = directory.world.log(**SMALL)
        served = [(r.offset, r.value) for r in read_records(log)]
        is_whole = position == len(directory.content(file))
        before = [r for r in directory.records if is_whole or r[0] < begin[2]]
        assert served[: len(before)] == before, what
        assert set(served) <= set(directory.records), what
        directory.world.crash(directory.world.managers.pop())


@thorough
def test_a_damaged_log_after_an_orderly_end(directory, each):
    """A reader's batch would pass its checksum and not be what was written; a damaged batch would
    cost those behind it."""
    for file, position, mask, content in damaged_logs(directory, each=each):
        what = (file, position, mask)
        directory.damage(file, content)
        log = directory.world.log(**SMALL)
        log.update_high_watermark(log.log_end_offset)
        served = {
            record
            for offset in range(log.log_start_offset, log.log_end_offset)
            for record in sound_records(log, offset, f"{directory.path}/{file}")
        }
        assert served <= set(directory.records), what
        assert served >= directory.records_beside(file), what
        directory.world.crash(directory.world.managers.pop())


def sound_records(log: Log, offset: int, damaged: str) -> list[tuple[int, bytes | None]]:
    """The records that a reader of one batch believes: none, when the checksum is wrong."""
    try:
        data = b"".join(log.read(offset, 1, log.log_end_offset, True).records)
        for header in split_batches(data):
            check_batch(data, header)
    except CorruptRecords as error:
        # The broker names the file; a client finds the checksum wrong.
        is_told = damaged in error.message or "CRC" in error.message
        return [] if is_told else [(offset, error.message.encode())]
    return [(r.offset, r.value) for r in iter_records(data)]


def test_a_record_lost_at_the_end_is_told(directory, caplog):
    """Acknowledged records would be gone without a word."""
    (*_, file) = directory.files(".log")
    place = [each for each in directory.places if each[0] == file][-1]
    directory.damage(file, directory.content(file)[: place[1]])
    log = directory.world.log(**SMALL)
    assert log.log_end_offset == place[2]
    assert "records are missing" in caplog.text
    assert file in caplog.text


@pytest.mark.slow
def test_no_permission_of_a_real_disk():
    """The file system of the test would refuse where a real one does not, or the other way."""
    with tempfile.TemporaryDirectory() as place:
        forked = multiprocessing.get_context("fork")
        child = forked.Process(target=_tell_refused_files, args=(place,))
        child.start()
        child.join()
        assert child.exitcode == 0
        refused = json.loads(Path(place, "refused").read_text())
    assert len(refused) > 10
    for path, text in refused.items():
        assert path in text, refused
        assert "Permission denied" in text, refused


def _tell_refused_files(place: str) -> None:
    """Writes down what a start says of each file that may not be read, as a user whom the kernel
    refuses."""
    os.chmod(place, 0o777)
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    world = World([f"{place}/data"])
    directory = Directory(world, Batches(world.clock))
    refused = {}
    for name in [".log", *IN_LOG, *BESIDE]:
        if name == ".kafka_cleanshutdown":
            # It is not read: that it is there says all.
            continue
        for file in directory.files(name)[-1:]:
            directory.restore()
            path = f"{directory.path}/{file}"
            os.chmod(path, 0)
            refused[path] = directory.refusal(name, file, None) or "it was read"
    Path(place, "refused").write_text(json.dumps(refused))
