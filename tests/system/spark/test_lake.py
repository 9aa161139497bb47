"""Archives that are Delta and Iceberg tables, written by those projects' own libraries.

If this fails, a table of a lake has a record twice or not at all after a crash of `archive` or
`compact`, or says something else than the topic. Tables are read back by libraries for Python that
share no code with what wrote them. Two Sparks: the first one dies in the middle of a batch.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from confluent_kafka import Producer
from tests.deadlines import deadline_s
from tools import peers

from odradek import Broker
from odradek.tables.topic import Topic

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(400)
RECORDS, BATCHES = 900, 3
HOUR_MS = 3_600_000
# On the day on which the zone of the session has no time between two and three o'clock.
FIRST_TIME_MS = 1_774_743_200_000
ZONE = "Europe/Berlin"
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
PROGRAM = """
import os, sys
from dataclasses import replace
from pyspark_odradek import session
from pyspark_odradek.pipelines import PipelineSettings, archive, audit, compact
from pyspark_odradek.pipelines.bookkeeping.lake.delta import DeltaTable
from pyspark_odradek.pipelines.bookkeeping.lake.iceberg import IcebergTable
from pyspark_odradek.pipelines.bookkeeping.lake.table import begun_table
from pyspark_odradek.pipelines.bookkeeping.manifest import Manifest

servers, folder, jars, limit, zone, phase = sys.argv[1:]
plan = {}

def dying(append):
    def may_die(table, batch_id, files):
        how = plan.pop(batch_id, None)
        if how == "before":
            raise ConnectionError("died")
        append(table, batch_id, files)
        # Again, as by somebody who does not know: nothing more may be there.
        append(table, batch_id, files)
        if how == "after":
            raise ConnectionError("died")
        if how == "exit":
            os._exit(9)
    return may_die

def replacing(replace):
    def may_die(table, old, new):
        if plan.pop("replace", None):
            raise ConnectionError("died")
        replace(table, old, new)
    return may_die

def with_somebody_else(replaced):
    def while_another_commits(table, transaction, old, new):
        yield from replaced(table, transaction, old, new)
        if plan.pop("meanwhile", None):
            table._commit(table._builder("WRITE").build(table._engine), [])
    return while_another_commits

def fails(work, why):
    try:
        work()
    except Exception as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"nothing {why}")

def compacts(spark, settings, name):
    run = lambda: compact.build(spark, settings).run().facts
    table, manifest = begun_table(spark, settings.to), Manifest(spark, settings.to)
    with manifest.reading() as archived:
        # Of an hour that has another.
        one = archived.files[1]
    if name == "delta":
        table.replace([one], [])
    else:
        table._table.newDelete().deleteFile(table._current()[one.path]).commit()
    fails(run, "not in the table as it was added")
    if name == "delta":
        table.replace([], [one])
    else:
        table._table.newAppend().appendFile(table._data_file(one)).commit()
    # Decided, and not in the table.
    plan["replace"] = True
    fails(run, "died")
    assert len(table.paths()) == len(archived.files)
    plan["meanwhile"] = name == "delta"
    print(run())
    assert not plan.pop("meanwhile", None)
    with manifest.reading() as archived:
        assert table.paths() == {file.path for file in archived.files}
    # Who reads the table as it was has to find the files, for a week.
    assert os.path.exists(f"{settings.to}/{one.path}")
    assert table.may_forget(0)

for kind in (DeltaTable, IcebergTable):
    kind.append, kind.replace = dying(kind.append), replacing(kind.replace)
DeltaTable._replaced = with_somebody_else(DeltaTable._replaced)
conf = {
    "spark.jars": jars,
    "spark.sql.session.timeZone": zone,
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": f"{folder}/warehouse",
}
with session("lake", master="local[2]", memory="512m", conf=conf) as spark:
    for name, table in (("delta", None), ("iceberg", "lake.shop.orders")):
        place = f"{folder}/{name}"
        settings = PipelineSettings(
            servers, "orders", to=place, source=place, format=name, table=table,
            max_offsets_per_trigger=int(limit),
        )
        if phase == "first":
            for batch_id, how in ((0, "before"), (1, "after")):
                plan[batch_id] = how
                try:
                    archive.build(spark, settings).run()
                except Exception as error:
                    assert "died" in str(error), error
                assert not plan
            if name == "iceberg":
                plan[2] = "exit"
        archive.build(spark, settings).run()
        if phase == "first":
            continue
        assert audit.build(spark, settings).run().findings == []
        compacts(spark, settings, name)
        archive.build(spark, settings).run()
        assert audit.build(spark, settings).run().findings == []
        # A batch of days was committed, and the table never took it.
        for by in ("day", "none"):
            other = replace(settings, partition_by=by)
            fails(lambda: archive.build(spark, other), f"another --partition-by than {by}: say")
"""
DELTA = """
import os, sys, deltalake, pyarrow.parquet as parquet
table = deltalake.DeltaTable(sys.argv[1])
parquet.write_table(table.to_pyarrow_table(), sys.argv[2])
print(table.metadata().partition_columns, table.version(), flush=True)
os._exit(0)  # at an orderly end deltalake's threads abort the process now and then
"""
ICEBERG = """
import sys, pyarrow as pa, pyarrow.parquet as parquet
from datetime import timedelta
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.table import StaticTable
table = StaticTable.from_metadata(sys.argv[1])
everything = table.scan().to_arrow()
hours = {time.replace(minute=0, second=0) for time in everything["timestamp"].to_pylist()}

def within(hour):
    end = hour + timedelta(hours=1)
    is_within = And(
        GreaterThanOrEqual("timestamp", hour.isoformat()), LessThan("timestamp", end.isoformat())
    )
    return table.scan(row_filter=is_within).to_arrow()

# Files of other hours are not even opened.
parquet.write_table(pa.concat_tables(map(within, hours)), sys.argv[2])
print([field.name for field in table.spec().fields], len(table.history()))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3, config={"retention.ms": "-1"})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(
                "orders",
                None if number % 5 == 0 else b"v%d" % number,
                None if number % 7 == 0 else b"k%d" % number,
                partition=number % 3,
                timestamp=FIRST_TIME_MS + number * HOUR_MS // 300,
                headers=[("n", b"%d" % number), ("none", None)] if number % 2 else None,
            )
        assert producer.flush(deadline_s(60)) == 0
        yield broker


def run(
    program: str, *arguments: str, path: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    places = [str(path or ""), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def rows(table: pa.Table) -> list[dict[str, object]]:
    table = table.select(COLUMNS).sort_by([("partition", "ascending"), ("offset", "ascending")])
    # PyIceberg makes an empty list of none; a record of Kafka's cannot have one.
    return [{**row, "headers": row["headers"] or None} for row in table.to_pylist()]


def test_every_record_is_in_the_tables_once(broker: Broker, tmp_path: Path) -> None:
    try:
        jars, readers = ",".join(map(str, peers.lake_jars())), peers.lake_readers()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")
    home = tmp_path / "a b%20[1]{c}"
    home.mkdir()
    arguments = (broker.bootstrap_servers, str(home), jars, str(RECORDS // BATCHES), ZONE)
    died = run(PROGRAM, *arguments, "first")
    assert died.returncode == 9, died.stderr
    done = run(PROGRAM, *arguments, "second")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("{'files before': 4, 'files after': 4}") == 2
    topic = Topic("orders", bootstrap_servers=broker.bootstrap_servers).to_arrow()
    metadata = home / "warehouse/shop/orders/metadata"
    newest = metadata / f"v{(metadata / 'version-hint.text').read_text()}.metadata.json"
    for program, place, partitions, others in (
        # deltalake takes `%20` in the name of a directory for a space.
        (DELTA, shutil.copytree(home / "delta", tmp_path / "delta"), ["date", "hour"], 1),
        (ICEBERG, newest, ["timestamp_hour"], 0),
    ):
        copy = tmp_path / "copy.parquet"
        read = run(program, str(place), str(copy), path=readers)
        assert read.returncode == 0, read.stderr
        table = parquet.read_table(copy)
        assert rows(table) == rows(topic)
        if "hour" in partitions:
            found = {(row["hour"], f"{row['timestamp']:%H}") for row in table.to_pylist()}
            assert found == {(f"{hour:02}",) * 2 for hour in range(4)}
        # One commit a batch, and Delta's that made the table has the number 0; then a file is out
        # and in again, and those of an hour are put together.
        assert read.stdout == f"{partitions} {BATCHES + 3 + others}\n"
