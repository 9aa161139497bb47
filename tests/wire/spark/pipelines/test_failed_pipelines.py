"""Pipelines that fail, and are started again when somebody has corrected what was wrong.

If these fail, a mistake at the first run leaves a checkpoint that is in the way of the second, or
the second run lacks records, or has them twice.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter

import odradek
from pyspark_odradek.errors import SourceError, reason_in
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    archive,
    decode,
    dedup,
    join,
    lag,
    latest,
    query,
    read_table,
    redrive,
    volume,
    window,
)
from pyspark_odradek.pipelines.ends import parquet
from pyspark_odradek.pipelines.running.jobs import StreamJob

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

FAILED = (PipelineError, SourceError, PySparkException)
RECORDS = 20
NO_NUMBER = "CAST(CAST(value AS STRING) AS INT)"
TEXT = "CAST(value AS STRING)"
EVERYTHING: dict[str, Any] = {"isolation_level": "read_uncommitted"}
NOWHERE: dict[str, Any] = {"path": "/nowhere", **EVERYTHING}


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2, config={})
        for number in range(RECORDS):
            broker.produce("orders", f"v{number}", key=f"k{number}", partition=number % 2)
        yield broker


@pytest.fixture
def settings(broker: odradek.Broker, tmp_path: Path) -> PipelineSettings:
    return PipelineSettings(broker.bootstrap_servers, "orders", to=str(tmp_path / "out"))


@contextmanager
def registry(answers: dict[str, tuple[int, object]]) -> Iterator[str]:
    """A registry by HTTP, with a status and a document for every path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = answers[self.path]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def rows(spark: Any, *folder: str | None) -> int:
    return spark.read.parquet("/".join(map(str, folder))).count()


@pytest.mark.parametrize(
    ("pipeline", "wrong", "words"),
    [
        (archive, NOWHERE, "/nowhere"),
        (archive, {"max_offsets_per_trigger": 0}, "maxOffsetsPerTrigger"),
        (archive, {"every": "often"}, "often"),
        (decode, {"format": "avro", "registry": "/nowhere"}, "nowhere"),
        (decode, {"schema": "id WRONG"}, "id WRONG"),
        (decode, {"schema": "id INT", "dead_letters": "orders"}, "orders is read, and cannot"),
        (redrive, {"schema": "id INT", "dead_letters": "orders"}, "orders is read, and cannot"),
        (dedup, {"to": None, "to_topic": "orders"}, "orders is read, and cannot"),
        (dedup, {"by": "nonsense("}, "nonsense"),
        (dedup, {"by": "colour"}, "colour"),
        (dedup, {"within": "soon"}, "soon"),
        (join, {"other": "ordres"}, r"no topic ordres at \S+ \(did you mean orders\?\)"),
        (join, {"other": "orders", "by": "colour"}, "colour"),
        (join, {"other": "orders", "within": "soon"}, "soon"),
        (window, {"by": "colour"}, "colour"),
        (window, {"measure": "colour"}, "colour"),
        (window, {"window": "soon"}, "soon"),
        (window, {"within": "soon"}, "soon"),
        (window, {"within": "-1 minute"}, "negative"),
        (join, {"other": "orders", "within": "-1 minute"}, "negative"),
        (volume, NOWHERE, "/nowhere"),
        (latest, {"topic": "ordres"}, r"no topic ordres at \S+ \(did you mean orders\?\)"),
        (query, {"topic": "ordres", "sql": "SELECT 1"}, r"\(did you mean orders\?\)"),
        (dedup, {"to": None, "to_topic": "ordres"}, r"\(did you mean orders\?\)"),
        (query, {"sql": "SELECT colour FROM orders"}, "colour"),
        (dedup, {"to_topic": "once", "checkpoint": "c"}, "--to DIR or --to-topic T, not both"),
        (volume, {"to": None, "checkpoint": "c"}, "counted again each time"),
    ],
)
def test_what_is_refused_leaves_nothing(
    spark, settings, pipeline: Any, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(FAILED, match=words):
        pipeline.build(spark, replace(settings, **wrong)).run()
    assert not Path(settings.to, "_checkpoint").exists()


def test_what_spark_asks_first_may_be_corrected(spark, settings) -> None:
    """The query was there already when it was refused, under an id of its own."""
    with pytest.raises(FAILED, match="/nowhere"):
        archive.build(spark, replace(settings, **NOWHERE)).run()
    archive.build(spark, settings).run()
    assert rows(spark, settings.to) == RECORDS


def test_a_directory_that_cannot_be_written_may_be_mended(spark, settings, tmp_path) -> None:
    """A file is where a directory should be: nobody may write there, not even root."""
    file = tmp_path / "out"
    file.touch()
    with pytest.raises(OSError, match=str(file)):
        archive.build(spark, settings).run()
    assert file.is_file()
    file.unlink()
    archive.build(spark, settings).run()
    assert rows(spark, settings.to) == RECORDS


@pytest.mark.parametrize(
    ("pipeline", "elsewhere"), [(dedup, False), (dedup, True), (join, False), (window, True)]
)
def test_a_first_batch_that_fails_is_begun_anew_with_other_settings(
    spark, settings, tmp_path, pipeline: Any, elsewhere: bool
) -> None:
    """State that it left would be of another shape, or batches of other settings."""
    checkpoint = tmp_path / "kept" if elsewhere else tmp_path / "out" / "_checkpoint"
    settings = replace(settings, other="orders", checkpoint=str(checkpoint) if elsewhere else None)
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        pipeline.build(spark, replace(settings, by=NO_NUMBER)).run()
    assert not checkpoint.exists()
    pipeline.build(spark, replace(settings, by=TEXT)).run()
    assert checkpoint.exists()
    if pipeline is not window:
        assert rows(spark, settings.to) == RECORDS
        return
    assert still_open(spark, settings) == RECORDS


def still_open(spark, settings) -> int:
    opened = spark.read.parquet(f"{settings.to}/_open").groupBy().sum("records").collect()
    return int(opened[0][0])


def test_nothing_is_taken_back_that_is_committed(spark, broker, settings, tmp_path) -> None:
    """The first run of `window` removed all its output when its third batch failed."""
    broker.create_topic("poison", partitions=1, config={})
    for value in ("1", "2", "x", "4"):
        broker.produce("poison", value)
    settings = replace(settings, topic="poison", max_offsets_per_trigger=1)
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        window.build(spark, replace(settings, by=NO_NUMBER)).run()
    assert (tmp_path / "out/_checkpoint/commits/1").exists()
    assert still_open(spark, settings) == 2
    # Windows by something else would be beside those that are there.
    with pytest.raises(PipelineError, match="out was begun with --by CAST"):
        window.build(spark, replace(settings, by=NO_NUMBER.replace("CAST", "TRY_CAST", 1)))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        window.build(spark, replace(settings, by=NO_NUMBER)).run()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert still_open(spark, settings) == 4


@pytest.mark.parametrize(
    ("pipeline", "more"),
    [
        *((each, EVERYTHING) for each in (archive, decode, dedup, join, lag, volume, window)),
        (dedup, {**EVERYTHING, "to": None, "to_topic": "refused-too"}),
        (dedup, {"by": "value"}),
        (dedup, {"by": "value", "to": None, "to_topic": "refused"}),
        (join, {"by": "value"}),
        (window, {"by": "value"}),
        (window, {"window": "1 day"}),
        (window, {"measure": "offset"}),
    ],
)
def test_one_table_is_not_of_two_kinds_of_rows(
    spark, broker, settings, tmp_path, pipeline: Any, more: dict[str, Any]
) -> None:
    """Windows of an hour and of a day were put together, and records of aborted transactions beside
    a table without them, and nobody was told."""
    if "to_topic" in more:
        broker.create_topic(more["to_topic"], partitions=1, config={})
    place = {name: more[name] for name in ("to", "to_topic") if name in more}
    settings = replace(settings, other="orders", checkpoint=str(tmp_path / "kept"), **place)
    settings = replace(settings, schema="id INT", dead_letters="of-two-kinds")
    pipeline.build(spark, settings).run()
    with pytest.raises(PipelineError, match=r"(out|kept) was begun with .+: say the same"):
        pipeline.build(spark, replace(settings, **more)).run()
    pipeline.build(spark, settings).run()


def test_a_batch_that_could_not_be_committed_is_begun_anew(spark, settings, tmp_path) -> None:
    """Its files are nobody's then: they are gone, and so is the checkpoint. Of the reason only the
    traceback was told."""
    job = archive.build(spark, settings)
    blocked = tmp_path / "out" / "_topic.json"
    blocked.mkdir()
    with pytest.raises(PySparkException, match="_topic") as error:
        job.run()
    assert re.fullmatch("Is a directory: '[^ ]+' -> '[^ ]+'", reason_in(str(error.value)))
    assert not (tmp_path / "out" / "_checkpoint").exists()
    assert list((tmp_path / "out").glob("batch=*")) == []
    blocked.rmdir()
    archive.build(spark, settings).run()
    assert rows(spark, settings.to) == RECORDS


def fails_at_once(_: StreamJob) -> None:
    raise PySparkException("nothing is read")


@pytest.mark.parametrize("pipeline", [archive, decode, dedup, join, volume, window])
def test_success_files_are_not_what_counts(
    spark, settings, tmp_path, monkeypatch, pipeline: Any
) -> None:
    """With this setting of many clusters every batch was taken for unfinished, and removed."""
    hadoop = spark._jsc.hadoopConfiguration()
    name = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    settings = replace(
        settings, other="orders", schema="n INT", max_offsets_per_trigger=RECORDS // 2
    )
    hadoop.set(name, "false")
    try:
        pipeline.build(spark, settings).run()
        part = "source=topic" if pipeline is decode else "."
        before = read_table(spark, f"{settings.to}/{part}")
        # The next run fails when it has taken the lock: what it made is taken back.
        monkeypatch.setattr(StreamJob, "start", fails_at_once)
        with pytest.raises(PySparkException, match="nothing is read"):
            pipeline.build(spark, settings).run()
    finally:
        hadoop.unset(name)
    assert list((tmp_path / "out").rglob("_SUCCESS")) == []
    after = read_table(spark, f"{settings.to}/{part}")
    assert (after and after.count()) == (before and before.count())
    assert (tmp_path / "out/_checkpoint").exists()


@pytest.mark.parametrize("pipeline", [archive, dedup, latest])
def test_rows_on_a_disk_that_the_workers_do_not_share_are_missed(
    spark, settings, monkeypatch, pipeline: Any
) -> None:
    """Each machine wrote to its own, Spark found nothing wrong, and a batch was committed with the
    files of one machine, or with none."""
    write = DataFrameWriter.parquet

    def written_elsewhere(writer: DataFrameWriter, place: str) -> None:
        write(writer, place)
        max(Path(place).rglob("*.parquet"), key=lambda file: file.stat().st_size).unlink()

    monkeypatch.setattr(parquet, "disk_of_workers", lambda _, place: place)
    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", written_elsewhere)
        with pytest.raises(FAILED, match=f"rows of {RECORDS} that Spark wrote: its workers have"):
            pipeline.build(spark, settings).run()
    pipeline.build(spark, settings).run()
    table = read_table(spark, str(settings.to))
    assert table is not None
    assert table.count() == RECORDS


def test_a_checkpoint_that_was_there_stays(spark, broker, settings, tmp_path) -> None:
    volume.build(spark, replace(settings, **EVERYTHING)).run()
    commits = tmp_path / "out" / "_checkpoint" / "commits"
    assert (commits / "0").exists()
    with pytest.raises(FAILED, match="/nowhere"):
        volume.build(spark, replace(settings, **NOWHERE)).run()
    assert (commits / "0").exists()


def test_a_batch_whose_tasks_may_have_written_is_kept(spark, broker, settings, tmp_path) -> None:
    """Begun anew, it would be in the topic twice as far as it came."""
    checkpoint = tmp_path / "kept"
    settings = replace(settings, to=None, to_topic="out", checkpoint=str(checkpoint))
    with pytest.raises(PipelineError, match="there is no topic out to write to"):
        dedup.build(spark, settings)
    broker.create_topic("out", partitions=2, config={})
    with pytest.raises(FAILED, match="/nowhere"):
        dedup.build(spark, replace(settings, **NOWHERE)).run()
    assert {path.name for path in checkpoint.glob("*")} <= {"_lock"}
    with pytest.raises(FAILED, match="CAST_INVALID_INPUT"):
        dedup.build(spark, replace(settings, by=NO_NUMBER)).run()
    assert (checkpoint / "offsets" / "0").exists()
    # Of the same type: Spark takes up the state that it has made.
    dedup.build(spark, replace(settings, by="CAST(substr(CAST(value AS STRING), 2) AS INT)")).run()
    assert len(broker.records("out")) == RECORDS


def test_a_registry_that_goes_away_leaves_the_batch_to_be_done(spark, broker, settings) -> None:
    """A record whose schema cannot be asked for is no dead letter, and is there when it is back."""
    broker.create_topic("avro")
    for number in range(3):
        broker.produce("avro", b"\0\0\0\0\x07" + bytes([2 * number]))
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    answers: dict[str, tuple[int, object]] = {
        "/subjects/avro-value/versions/latest": (200, {"id": 8, "schema": json.dumps(schema)}),
        "/schemas/ids/7": (500, {}),
    }
    with registry(answers) as url:
        settings = replace(settings, topic="avro", format="avro", registry=url)
        with pytest.raises(FAILED, match="answers 500"):
            decode.build(spark, settings).run()
        answers["/schemas/ids/7"] = (200, {"schema": json.dumps(schema)})
        decode.build(spark, settings).run()
    table = spark.read.parquet(str(settings.to)).select("value.id").collect()
    assert sorted(row.id for row in table) == [0, 1, 2]
    assert broker.records("avro-dead-letters") == []
