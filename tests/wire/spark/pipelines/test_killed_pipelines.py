"""Each pipeline that goes along a topic, killed at every step of a batch, and run again.

The topic has records of transactions that were taken back between those that count, and Hadoop
writes no `_SUCCESS`. If these fail, a record is in an output twice or not at all after a crash, or
one is there that never happened.

In CI each pipeline dies at one step; with `./test --rounds 2` at each, in the first batch and
in a later one. One output of each outlives two kills there, at steps chosen by chance, while its
topic grows; with `--rounds 50` five of each outlive twenty.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from tests.deadlines import deadline_s
from tests.rounds import rounds

import odradek
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    archive,
    decode,
    dedup,
    join,
    read_table,
    volume,
    window,
)
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

RECORDS, BATCHES, A_KILL = 30, 3, 3
KILLS = min(rounds(2), 20)
OUTPUTS = rounds(2) // KILLS
PIPELINES = (archive, decode, dedup, join, volume, window)
# Before the call, or after it.
STEPS: tuple[tuple[type, str, bool], ...] = (
    (Output, "stage", False),
    (Output, "stage", True),
    (Table, "commit", True),
    (Table, "clear", True),
)
# Only the first batch of a run looks whether there was another attempt.
EVERYWHERE = [
    (pipeline, step, batch)
    for pipeline, step, batch in itertools.product(PIPELINES, STEPS, (0, 1))
    if batch == 0 or step[1] != "clear"
]
# What writes to a topic as well, when it has decided what.
DRAFTS = [
    (decode, (owner, name, is_after), batch)
    for owner, name in ((Output, "keep_draft"), (Table, "drop_draft"))
    for is_after, batch in itertools.product((False, True), (0, 1))
]
# What keeps a state dies when its batch is committed and Spark does not know.
HERE = [
    (pipeline, STEPS[step], batch)
    for pipeline, step, batch in zip(PIPELINES, (0, 1, 2, 3, 2, 1), (0, 1, 0, 0, 1, 1), strict=True)
]
ROUNDS = [*EVERYWHERE, *DRAFTS] if rounds(1) > 1 else [*HERE, DRAFTS[2]]


class Killed(Exception):
    """The process ended here."""


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
        producer = producer_of(broker, "orders")
        for number in range(0, RECORDS, 3):
            produce(producer, "orders", range(number, number + 3))
        yield broker


def producer_of(broker: odradek.Broker, topic: str) -> Producer:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions(deadline_s(30))
    return producer


def produce(producer: Producer, topic: str, numbers: Iterable[int]) -> None:
    """Writes the records of these numbers, and once more in a transaction that is taken back."""
    for is_kept in (True, False):
        producer.begin_transaction()
        for each in numbers:
            value = b'{"n": %d}' if each % 5 else b"none %d"
            producer.produce(topic, value % each, b"%d" % each, partition=each % 2)
        producer.flush(deadline_s(30))
        if is_kept:
            producer.commit_transaction(deadline_s(30))
        else:
            producer.abort_transaction(deadline_s(30))


@pytest.fixture
def dies(spark, monkeypatch) -> Iterator[Callable[..., None]]:
    """Ends the process at a step of a batch, or of any: from then on it changes no file."""
    plan: list[object] = []
    dead: list[bool] = []

    def plan_death(step: tuple[type, str, bool] | None, batch: int | None = 0) -> None:
        dead.clear()
        plan[:] = [] if step is None else [(step, batch)]

    def mortal(owner: type, name: str) -> None:
        act = getattr(owner, name)

        def acting(self: Any, *arguments: Any, **named: Any) -> Any:
            [batch] = [
                each if isinstance(each, int) else each.batch
                for each in arguments
                if isinstance(each, int) or hasattr(each, "batch")
            ][:1]
            die(((owner, name, False), batch))
            outcome = act(self, *arguments, **named)
            die(((owner, name, True), batch))
            return outcome

        monkeypatch.setattr(owner, name, acting)

    def die(moment: tuple[object, int]) -> None:
        if moment in plan or (moment[0], None) in plan:
            plan.clear()
            dead.append(True)
            raise Killed

    def living(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            if dead:
                raise Killed
            return change(*arguments)

        return changing

    for owner, name in {step[:2] for _, step, _ in [*EVERYWHERE, *DRAFTS]}:
        mortal(owner, name)
    for name in ("create", "replace", "remove"):
        monkeypatch.setattr(FileSystem, name, living(getattr(FileSystem, name)))
    hadoop = spark._jsc.hadoopConfiguration()
    setting = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    hadoop.set(setting, "false")
    yield plan_death
    hadoop.unset(setting)


@pytest.mark.parametrize(("pipeline", "step", "batch"), ROUNDS)
def test_every_record_counts_once(
    spark, broker, tmp_path: Path, dies, pipeline: Any, step: tuple[type, str, bool], batch: int
) -> None:
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=str(tmp_path / "out"), other="orders",
        by="CAST(key AS STRING)", schema="n INT", dead_letters=f"dead-{tmp_path.name[-40:]}",
        # As the connector does, it counts the offsets of what was taken back.
        max_offsets_per_trigger=RECORDS,
    )  # fmt: skip
    dies(step, batch)
    with suppress(Killed), pytest.raises((PySparkException, Killed)):
        pipeline.build(spark, settings).run()
    dies(None)
    files = FileSystem(spark)
    part = "/source=topic" if pipeline is decode else ""
    with Lock(files, f"{settings.to}{part}"), pytest.raises(PipelineError, match="written to by"):
        pipeline.build(spark, settings).run()
    pipeline.build(spark, settings).run()
    assert counted(spark, broker, pipeline, settings) == list(range(RECORDS))
    # And there is nothing more to do.
    pipeline.build(spark, settings).run()
    assert counted(spark, broker, pipeline, settings) == list(range(RECORDS))
    table = Table(files, f"{settings.to}{part}", ("", "windows", "late", "_open", "_letters"))
    assert table.unnamed(table.snapshot()) == []


@pytest.mark.parametrize("seed", range(OUTPUTS))
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_one_output_outlives_many_kills(
    spark, broker, tmp_path: Path, dies, pipeline: Any, seed: int
) -> None:
    """Each run goes on where the last one was killed, with what has come meanwhile, and is killed
    as well."""
    topic, killed = f"{pipeline.__name__.rpartition('.')[2]}-{seed}", 0
    broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
    producer, rng = producer_of(broker, topic), random.Random(topic)
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "out"), other=topic,
        by="CAST(key AS STRING)", schema="n INT", dead_letters=f"dead-{topic}",
    )  # fmt: skip
    for kill in range(KILLS):
        produce(producer, topic, range(kill * A_KILL, (kill + 1) * A_KILL))
        dies(rng.choice(STEPS), None)
        try:
            pipeline.build(spark, settings).run()
        except (PySparkException, Killed):
            killed += 1
    dies(None)
    pipeline.build(spark, settings).run()
    assert counted(spark, broker, pipeline, settings) == list(range(KILLS * A_KILL))
    assert killed == KILLS


def counted(spark, broker: odradek.Broker, pipeline: Any, settings: PipelineSettings) -> list[int]:
    """The numbers of the records in the output; where it only counts them, as many."""
    part = "/source=topic" if pipeline is decode else ""
    table = read_table(spark, f"{settings.to}{part}")
    assert table is not None
    if pipeline is volume:
        return list(range(table.groupBy().sum("records").first()[0]))
    if pipeline is window:
        # Nothing is late, nor complete.
        opened = spark.read.parquet(f"{settings.to}/_open")
        assert table.count() == 0
        assert opened.where("records > 1").count() == 0
        return sorted(int(row.by) for row in opened.collect())
    found = [int(row.key) for row in table.collect()]
    if pipeline is decode:
        found += [int(letter.key) for letter in broker.records(str(settings.dead_letters))]
    return sorted(found)
