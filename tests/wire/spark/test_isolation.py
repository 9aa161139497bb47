"""If these fail, a pipeline takes records for real that their transaction has taken back."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.deadlines import deadline_s

import odradek
from pyspark_odradek.pipelines import PIPELINES, Outcome, PipelineSettings, read_table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TOPIC, LETTERS, GROUP = "orders", "letters", "billing"
FIRST_TIME_MS = 1_700_000_000_000
DAY_MS = 86_400_000
# In the order of their offsets. The first two are of one key and time, and so are the others of one
# key.
NAMES = KEPT, ABORTED, LATER, OPEN = (b"kept", b"aborted", b"later", b"open")
OTHER = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    """Two topics, each with records that are committed, one that is aborted, one that is neither;
    one has the records as dead letters."""
    with odradek.Broker() as broker:
        still_open = []
        for topic in (TOPIC, LETTERS):
            broker.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
            for name in NAMES:
                producer = begin(broker, topic, name)
                if name is ABORTED:
                    producer.abort_transaction(deadline_s(30))
                elif name is OPEN:
                    still_open.append(producer)
                else:
                    producer.commit_transaction(deadline_s(30))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 2)], asynchronous=False)
        consumer.close()
        yield broker
        for producer in still_open:
            producer.abort_transaction(deadline_s(30))


def begin(broker: odradek.Broker, topic: str, name: bytes) -> Producer:
    """Writes one record in a transaction, which stays open."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{name!r}",
         "transaction.timeout.ms": 900_000}
    )  # fmt: skip
    producer.init_transactions(deadline_s(30))
    producer.begin_transaction()
    number = NAMES.index(name)
    told = {"topic": TOPIC, "partition": 0, "offset": number, "timestamp": FIRST_TIME_MS}
    producer.produce(
        topic, b'{"name": "%s"}' % name, b"new" if number > 1 else b"old", 0,
        timestamp=FIRST_TIME_MS + max(0, number - 1) * DAY_MS,
        headers=[(f"odradek.{header}", str(value).encode()) for header, value in told.items()],
    )  # fmt: skip
    assert producer.flush(deadline_s(30)) == 0
    return producer


@dataclass(frozen=True)
class Work:
    """Pipelines on the topic at one isolation level, each with a directory of its own."""

    spark: Any
    broker: odradek.Broker
    settings: PipelineSettings
    root: Path

    def run(self, name: str, **more: Any) -> Outcome:
        module = import_module(f"pyspark_odradek.pipelines.{name}")
        settings = replace(self.settings, to=str(self.root / name))
        outcome = module.build(self.spark, replace(settings, **more)).run()
        assert isinstance(outcome, Outcome)
        return outcome

    def rows(self, directory: str) -> list[Any]:
        table = read_table(self.spark, str(self.root / directory))
        return [] if table is None else table.collect()

    def table(self, name: str, *columns: str, **more: Any) -> list[bytes]:
        """The records that a pipeline has written to its table, by their values in columns."""
        self.run(name, **more)
        return named(row[each] for row in self.rows(name) for each in columns or ("value",))

    def decoded(self, name: str, source: str, **more: Any) -> list[bytes]:
        self.run(name, format="json", schema="name STRING", **more)
        return sorted(row.value.name.encode() for row in self.rows(f"{name}/source={source}"))

    def archived(self, name: str, **more: Any) -> list[bytes]:
        """The records of an archive that another pipeline has worked on, and found to be sound."""
        self.run("archive")
        outcome = self.run(name, source=str(self.root / "archive"), **more)
        assert outcome.findings == []
        assert "records that the topic has no longer" not in outcome.facts
        return named(row.value for row in self.rows("archive"))

    def restored(self) -> list[bytes]:
        again = f"again-{self.settings.isolation_level}"
        self.archived("restore", topic=again)
        return named(record.value for record in self.broker.records(again))

    def windows(self) -> list[bytes]:
        """The records of windows that are complete, each the only one of its window."""
        self.run("window", by="value")
        rows = self.spark.read.parquet(str(self.root / "window/windows")).collect()
        assert {row.records for row in rows} == {1}
        return named(row.by for row in rows)

    def counted(self) -> int:
        self.run("volume")
        return sum(row.records for row in self.rows("volume"))

    def waited_since(self) -> float:
        """The time of the first record that the group has still to read."""
        self.run("lag")
        [lag] = [row for row in self.rows("lag") if row.group == GROUP]
        return round((lag.at.replace(tzinfo=UTC).timestamp() - lag.seconds) * 1000)


SEEN: dict[str, Callable[[Work], object]] = {
    "archive": lambda work: work.table("archive"),
    "compact": lambda work: work.archived("compact"),
    "restore": Work.restored,
    # It reads as the archive was read, whatever it is told.
    "audit": lambda work: work.archived(
        "audit", isolation_level=OTHER[work.settings.isolation_level]
    ),
    "latest": lambda work: work.table("latest"),
    "decode": lambda work: work.decoded("decode", "topic"),
    "redrive": lambda work: work.decoded("redrive", "redriven", dead_letters=LETTERS),
    "dedup": lambda work: work.table("dedup", by="value"),
    "window": Work.windows,
    "join": lambda work: work.table("join", "value", "other_value", other=TOPIC, by="1"),
    "lag": Work.waited_since,
    "query": lambda work: work.table("query", sql=f"SELECT value FROM {TOPIC}"),
    "volume": Work.counted,
}
# Where it is not the records themselves: those that are committed, and all.
EXPECTED: dict[str, tuple[object, object]] = {
    # A letter that was not committed is none.
    "redrive": ([KEPT, LATER], [KEPT, LATER]),
    "latest": ([KEPT, LATER], [ABORTED, OPEN]),
    "window": ([KEPT], [ABORTED, KEPT, LATER]),
    "join": ([KEPT, KEPT, LATER, LATER], [*[ABORTED] * 4, *[KEPT] * 4, LATER, LATER, OPEN, OPEN]),
    "lag": (FIRST_TIME_MS + DAY_MS, FIRST_TIME_MS),
    "volume": (2, 4),
}


@pytest.mark.parametrize("name", [pipeline.name for pipeline in PIPELINES])
def test_what_was_taken_back_is_read_by_no_pipeline(spark, broker, tmp_path, name: str) -> None:
    """`latest` had the aborted record for the newest of its key, and `restore` committed it."""
    committed, everything = EXPECTED.get(name, ([KEPT, LATER], sorted(NAMES)))
    settings = PipelineSettings(broker.bootstrap_servers, TOPIC)
    of_all = replace(settings, isolation_level="read_uncommitted")
    for asked, expected in ((settings, committed), (of_all, everything)):
        place = tmp_path / asked.isolation_level
        assert SEEN[name](Work(spark, broker, asked, place)) == expected


def test_committed_records_are_read_unless_it_is_said_otherwise() -> None:
    """A reader that does not know of transactions would read those that were taken back."""
    assert PipelineSettings("", TOPIC).isolation_level == "read_committed"


def named(values: Iterable[Any]) -> list[bytes]:
    """The names of records by their values."""
    return sorted(name for value in values for name in NAMES if name in bytes(value))
