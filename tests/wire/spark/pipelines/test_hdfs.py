"""Pipelines at home on HDFS, as a real one: a name node, and one with the data.

If these fail, a file there is for a moment gone or half written while it is replaced, or a run
that was killed between two changes of files, or came beside another, loses or doubles records.
"""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any

import pytest
from pyspark.errors import PySparkException
from tools import peers
from tools.hdfs_node import hdfs

import odradek
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    archive,
    audit,
    compact,
    latest,
    reading_table,
)
from pyspark_odradek.pipelines.ends.files import FileSystem, HadoopFiles
from pyspark_odradek.pipelines.ends.owners import Lock

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

RECORDS, KEYS, BATCHES = 60, 5, 3
WRITERS, CREATED, REPLACED = 6, 5, 60
CHANGES = ("create", "replace", "remove")


class Killed(Exception):
    """The process ended here."""


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """Where it is."""
    try:
        with hdfs() as uri:
            yield uri
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
        for number in range(RECORDS):
            key = b"%d" % (number % KEYS)
            broker.produce("orders", b"%d" % number, key=key, partition=number % KEYS % 2)
        yield broker


@pytest.fixture
def settings(broker: odradek.Broker, store: str, request: Any) -> PipelineSettings:
    place = f"{store}/a b%20[1]{{c}}*?ä/{request.node.name}/orders"
    return PipelineSettings(
        broker.bootstrap_servers, "orders", to=place, source=place,
        max_offsets_per_trigger=RECORDS // BATCHES,
    )  # fmt: skip


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """Ends the process before that change of a file, counted from 0; then none happens."""
    left: list[int | None] = [None]

    def mortal(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            if left[0] is not None:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
            return change(*arguments)

        return changing

    @contextmanager
    def dying(before: int) -> Iterator[None]:
        left[0] = before
        try:
            yield
        finally:
            left[0] = None

    for name in CHANGES:
        monkeypatch.setattr(FileSystem, name, mortal(getattr(FileSystem, name)))
    return dying


def kills(run: Callable[[], object], dying: Any, look: Callable[[], object]) -> int:
    """Runs it until it comes to its end, each time killed one change later, and looks in between;
    how often it was killed."""
    for before in itertools.count():
        with dying(before), suppress(Killed):
            try:
                run()
            except PySparkException as error:
                if "Killed" not in repr(error):
                    raise
                raise Killed from error
            return before
        look()
    raise AssertionError("there is no last number")


def values(spark: Any, directory: str | None) -> list[int]:
    with reading_table(spark, str(directory)) as table:
        return [] if table is None else sorted(int(row.value) for row in table.collect())


def test_a_rename_of_which_the_answer_was_lost_has_happened(
    spark, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that had committed a batch failed: the name node was asked again, and had nothing to
    rename."""
    rename = HadoopFiles._rename

    def rename_twice(*arguments: Any) -> None:
        rename(*arguments)
        rename(*arguments)

    files, directory = FileSystem(spark), f"{store}/asked-again"
    monkeypatch.setattr(HadoopFiles, "_rename", rename_twice)
    assert files.create(f"{directory}/a.json", "text")
    assert not files.create(f"{directory}/a.json", "another")
    files.replace(f"{directory}/a.json", "other")
    assert files.read(f"{directory}/a.json") == "other"
    assert files.names(directory) == ["a.json"]


def test_one_who_reads_finds_a_whole_file_while_it_is_replaced(spark, store: str) -> None:
    """A file that is deleted before its successor gets its name is not there for a moment."""
    files, path, ended = FileSystem(spark), f"{store}/replaced/a.json", Event()
    texts = [str(number) * 1000 for number in range(10)]
    files.replace(path, texts[0])

    def read() -> set[str]:
        found = set()
        while not ended.is_set():
            found.add(files.read(path))
        return found

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(REPLACED):
                files.replace(path, texts[number % len(texts)])
        finally:
            ended.set()
        for reader in readers:
            assert reader.result() <= set(texts)
    assert files.names(f"{store}/replaced") == ["a.json"]


def test_of_several_who_create_a_file_one_does(spark, store: str) -> None:
    files = FileSystem(spark)

    def create(path: str, text: str) -> bool:
        return files.create(path, text)

    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(CREATED):
            path, texts = f"{store}/created/{number}.json", list(map(str, range(WRITERS)))
            told = list(pool.map(create, [path] * WRITERS, texts))
            assert told.count(True) == 1
            assert files.read(path) == texts[told.index(True)]
    assert len(files.names(f"{store}/created")) == CREATED


def test_an_archive_is_whole_whenever_it_was_killed(spark, settings, dying) -> None:
    """Killed before any change to a file, while it is written and while it is put together."""

    def no_record_is_twice() -> None:
        found = values(spark, settings.to)
        assert len(set(found)) == len(found)

    def all_is_well() -> None:
        assert values(spark, settings.to) == list(range(RECORDS))
        assert audit.build(spark, settings).run().findings == []

    assert kills(lambda: archive.build(spark, settings).run(), dying, no_record_is_twice) > BATCHES
    all_is_well()
    with Lock(FileSystem(spark), settings.to):
        job = archive.build(spark, settings)
        with pytest.raises(PipelineError, match="is being written to by"):
            job.run()
    assert kills(lambda: compact.build(spark, settings).run(), dying, all_is_well) > BATCHES
    all_is_well()
    # What a killed run had left is gone.
    assert "files of no batch" not in audit.build(spark, settings).run().facts


def test_a_table_that_replaces_another_is_whole_whenever_it_was_killed(
    spark, settings, dying
) -> None:
    newest = list(range(RECORDS - KEYS, RECORDS))
    for earlier in ([], newest):

        def look(earlier: list[int] = earlier) -> None:
            assert values(spark, settings.to) in (earlier, newest)

        assert kills(lambda: latest.build(spark, settings).run(), dying, look) > 1
        assert values(spark, settings.to) == newest
