"""`odradek fsck`: silent on a sound directory, one line for each kind of damage, no change."""

import fcntl
import json
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cli import segments

import odradek
from odradek.cli.main import main
from odradek.storage import names

Check = Callable[..., tuple[int, list[str]]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a broker has closed in order, with records in two segments."""
    data = tmp_path_factory.mktemp("template") / "data"
    with odradek.Broker(data_dir=str(data)) as broker:
        broker.create_topic("orders", partitions=2)
    log = data / "orders-0"
    segments.write_segment(log, [segments.batch(i, [b"v" * 40], 1) for i in range(5)])
    segments.write_segment(log, [segments.batch(i, [b"v" * 40], 1) for i in range(5, 9)], 5)
    (log / names.LEADER_EPOCH_CHECKPOINT).write_text("0\n1\n1 0\n")
    return data


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(template, copy)
    return copy


@pytest.fixture
def check(data: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Checks the directory; returns the exit status and the findings, paths shortened."""

    def call(*words: str) -> tuple[int, list[str]]:
        status = main(["fsck", str(data), *words])
        lines = capsys.readouterr().out.splitlines()
        return status, [line.replace(f"{data}/", "") for line in lines]

    return call


def first_log(data: Path) -> Path:
    return data / "orders-0" / f"{0:020d}.log"


def last_log(data: Path) -> Path:
    return data / "orders-0" / f"{5:020d}.log"


def test_a_sound_directory_is_silent_and_stays_as_it_is(data: Path, check: Check) -> None:
    """Goal: no false alarm, no write."""
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert check("--deep") == (0, [])
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_torn_end_is_told_with_what_happens_to_it(data: Path, check: Check) -> None:
    """Goal: file, offset, position, what, remedy."""
    log = last_log(data)
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    status, lines = check()
    size = len(whole) // 4
    name = f"orders-0/{5:020d}"
    assert status == 1
    assert lines[0] == (
        f"{name}.log, offset 8, position {3 * size}: {size - 3} bytes at the end are no whole "
        "batch (the next start after a crash cuts the log there)"
    )
    # The indexes speak of the batch that is gone.
    assert [line.split(":")[0] for line in lines[1:]] == [
        f"{name}.index, offset 8, position 16",
        f"{name}.timeindex, offset 8, position 36",
    ]


def test_every_flipped_byte_of_a_log_is_found(data: Path, check: Check) -> None:
    """Goal: no damage goes unnoticed, but in the epoch, which nothing covers."""
    log = first_log(data)
    whole = log.read_bytes()
    size = len(whole) // 5
    for position in range(size, 2 * size):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        log.write_bytes(damaged)
        status, lines = check()
        if 12 <= position - size < 16:
            continue
        assert status == 1, f"byte {position} was changed unseen"
        assert f"{0:020d}.log" in lines[0], lines


def test_zeros_at_the_end_are_found(data: Path, check: Check) -> None:
    """Goal: what a file system leaves after a power failure."""
    log = last_log(data)
    log.write_bytes(log.read_bytes() + bytes(100))
    assert "a batch cannot have the length 0" in check()[1][0]


def test_a_segment_that_is_missing_is_a_gap(data: Path, check: Check) -> None:
    """Goal: offsets that the metadata gives no reason to be missing."""
    segments.write_segment(data / "orders-0", [segments.batch(12, [b"v"], 1)], 12)
    name = f"orders-0/{12:020d}.log"
    assert check() == (1, [f"{name}, offset 12, position 0: offsets 9 to 11 are missing"])


def test_a_segment_of_another_place_is_found(data: Path, check: Check) -> None:
    """Goal: batches that do not fit the file's name."""
    shutil.copyfile(first_log(data), last_log(data))
    assert "the file's name says that it begins later" in check()[1][0]


def test_an_index_that_lies_is_found(data: Path, check: Check) -> None:
    """Goal: entries that lead to the wrong batch, or to none."""
    index = first_log(data).with_suffix(".index")
    good = index.read_bytes()
    index.write_bytes(struct.pack(">ii", 1, 17) + good[8:])
    assert check()[1] == [
        f"orders-0/{0:020d}.index, offset 1, position 0: position 17 is not the beginning of a "
        "batch"
    ]
    first = struct.unpack_from(">ii", good)[1]
    index.write_bytes(struct.pack(">ii", 4, first) + good[8:])
    assert f"offset 4 leads to position {first}, where 1 to 1 lie" in check()[1][0]
    index.write_bytes(good[:-3])
    assert "not a whole number of entries" in check()[1][0]
    index.unlink()
    assert check()[1] == [f"orders-0/{0:020d}.index: it is missing (the next start rebuilds it)"]


def test_a_time_index_that_lies_is_found(data: Path, check: Check) -> None:
    """Goal: a timestamp that is not the largest up to its offset."""
    index = first_log(data).with_suffix(".timeindex")
    good = index.read_bytes()
    index.write_bytes(struct.pack(">qi", segments.BASE_TIME_MS - 7, 0) + good[12:])
    lines = check()[1]
    assert len(lines) == 1
    assert f"the log's largest up to there is {segments.BASE_TIME_MS}" in lines[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("meta.properties", "version=1\nnode.id=1\n", "does not name the cluster"),
        ("meta.properties", "version=7\nnode.id=1\ncluster.id=x\n", "version 7 of"),
        ("meta.properties", "version=1\nnode.id=1\ncluster.id=other\n", "the metadata names"),
        ("recovery-point-offset-checkpoint", "0\n1\norders 0 99\n", "its log ends at 9"),
        ("recovery-point-offset-checkpoint", "0\n2\norders 0 9\n", "it has 1 lines and says 2"),
        ("orders-0/leader-epoch-checkpoint", "0\n1\n1 40\n", "behind the log's end"),
        ("orders-0/leader-epoch-checkpoint", "nonsense", "(the next start rebuilds it)"),
        ("orders-0/partition.metadata", "version: 0\ntopic_id: x", "is not an id"),
        (
            "orders-0/partition.metadata",
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ",
            "the metadata says",
        ),
        (f"orders-0/{9:020d}.snapshot", "torn", "are no producer snapshot"),
        (f"orders-0/{7:020d}.index", "", "no log beside it"),
        (f"orders-0/{0:020d}.log.swap", "", "(the next start puts it in the place of what it"),
        (f"orders-0/{0:020d}.log.cleaned", "", "(the next start removes it)"),
        (f"orders-0/{0:020d}.txncheck", "0\n1 12345678\n", "not what the transaction index holds"),
        ("orders-0/notes.txt", "", "does not belong to a partition"),
        ("notes.txt", "", "does not belong to a log directory"),
        (f"orders-0/{0:020d}.txnindex", "torn", "not a whole number of entries"),
    ],
)
def test_each_small_file_is_checked(
    data: Path, check: Check, name: str, content: str, words: str
) -> None:
    """Goal: one finding, which names the file."""
    (data / name).write_text(content)
    status, lines = check()
    assert (status, len(lines)) == (1, 1), lines
    assert lines[0].startswith(name)
    assert words in lines[0]


def test_a_swap_that_will_be_undone_is_told_so(data: Path, check: Check) -> None:
    """Goal: what compaction's recovery does about its files."""
    for suffix in (".index.cleaned", ".log.swap"):
        (data / "orders-0" / f"{0:020d}{suffix}").touch()
    assert [line.split(" (")[1] for line in check()[1]] == ["the next start removes it)"] * 2


@pytest.mark.parametrize("name", [".kafka_cleanshutdown", "orders-0/leader-epoch-checkpoint"])
def test_a_directory_in_a_files_place_is_found(data: Path, check: Check, name: str) -> None:
    """Goal: what a start would stumble over, whether the file is read or only there."""
    (data / name).unlink()
    (data / name).mkdir()
    status, lines = check()
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith(name)


def test_epochs_that_the_batches_do_not_have_are_found(data: Path, check: Check) -> None:
    """Goal: a follower that asks would cut its log at the wrong place."""
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 3\n")
    assert [line.split(" (")[0] for line in check()[1]] == [
        "orders-0/leader-epoch-checkpoint, offset 0: epoch 0 does not begin there",
        "orders-0/leader-epoch-checkpoint, offset 3: epoch 1 does not begin there",
    ]


def test_zeros_at_the_end_of_an_index_are_found(data: Path, check: Check) -> None:
    """Goal: an index that was closed in order has none; one of a crash has, and is made anew."""
    for log in (first_log(data), last_log(data)):
        with log.with_suffix(".index").open("ab") as index:
            index.write(bytes(8))
    assert len(check()[1]) == 2
    (data / ".kafka_cleanshutdown").unlink()
    assert [line.split(",")[0] for line in check()[1]] == [f"orders-0/{0:020d}.index"]


def test_files_that_wait_for_their_deletion_are_no_finding(data: Path, check: Check) -> None:
    """Goal: a broker that stops within `file.delete.delay.ms` leaves them on purpose."""
    (data / "orders-0" / f"{0:020d}.log.deleted").touch()
    (data / f"gone-0.{'0' * 32}-delete").mkdir()
    assert check() == (0, [])


def test_a_log_that_was_set_aside_is_found(data: Path, check: Check) -> None:
    """Goal: records that nobody serves stay on the disk until somebody looks at them."""
    name = f"orders-1.{'0' * 32}-stray"
    (data / name).mkdir()
    assert check()[1] == [f"{name}: a log that was set aside: of another topic, or of no replica"]


def test_the_metadata_is_held_against_the_directories(data: Path, check: Check) -> None:
    """Goal: a partition without a directory, a directory without a partition."""
    (data / "orders-1").rename(data / "strangers-0")
    assert check() == (
        1,
        [
            "strangers-0: the metadata knows no such partition",
            "orders-1: it is missing: the metadata knows the partition, no directory here holds "
            "it (the next start makes an empty one)",
        ],
    )


def test_a_damaged_metadata_file_is_a_finding(data: Path, check: Check) -> None:
    """Goal: sqlite3's complaint in one line."""
    (data / "odradek-metadata.sqlite").write_bytes(b"nonsense" * 99)
    status, lines = check()
    assert (status, len(lines)) == (1, 1)
    assert lines[0].startswith("odradek-metadata.sqlite: the file is corrupt")


def test_the_write_ahead_log_of_a_killed_broker_stays(data: Path, check: Check) -> None:
    """Goal: read-only means the metadata too, and what was committed last counts."""
    path = data / "odradek-metadata.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("DELETE FROM partition WHERE partition = 1")
    held = {name: (data / name).read_bytes() for name in (path.name, path.name + "-wal")}
    connection.close()
    for name, content in held.items():
        (data / name).write_bytes(content)
    assert check() == (1, ["orders-1: the metadata knows no such partition"])
    assert {name: (data / name).read_bytes() for name in held} == held


def test_a_directory_in_use_is_refused(
    data: Path, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: what is being written looks torn."""
    with (data / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["fsck", str(data)]) == 1
    assert capsys.readouterr().err == f"odradek: {data}: a broker is running on it; stop it first\n"
    assert check() == (0, [])


def test_what_is_no_directory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a wrong argument is no traceback."""
    assert main(["fsck", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err == f"odradek: {tmp_path}/nowhere: No such file or directory\n"


def test_a_log_that_is_a_directory_is_a_finding(data: Path, check: Check) -> None:
    """Goal: a directory in a file's place is named like any damage."""
    log = last_log(data)
    log.unlink()
    log.mkdir()
    assert "Is a directory" in check()[1][0]


def test_json_names_the_parts(data: Path, check: Check) -> None:
    """Goal: `--format json` for scripts."""
    first_log(data).with_suffix(".index").unlink()
    rows = [json.loads(line) for line in check("--format", "json")[1]]
    assert [row["what"] for row in rows] == ["it is missing"]
    assert rows[0]["remedy"] == "the next start rebuilds it"
