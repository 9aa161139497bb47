"""Records as no program should write them. If these fail, one of them ends a pipeline at each
start, or is another record afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odradek
from pyspark_odradek.pipelines import (
    PipelineSettings,
    archive,
    audit,
    compact,
    decode,
    dedup,
    latest,
    query,
    read_table,
    restore,
    window,
)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TIME_MS = 1_700_000_000_000
# Spark has no later one, and with a minus none that is earlier.
LAST_TIME_MS = 9_223_372_036_854_775
RECORDS: list[dict[str, Any]] = [
    {"key": b"last", "value": b"v", "timestamp": LAST_TIME_MS},
    {"key": b"first", "value": b"v", "timestamp": -LAST_TIME_MS},
    {"key": b"before", "value": b"v", "timestamp": -1},
    {
        "key": b"none",
        "value": b"v",
        "timestamp": 0,
        "headers": [("h", None), ("h", b""), ("", b"x")],
    },
    {"key": None, "value": None, "timestamp": TIME_MS},
    {"key": b"", "value": b"", "timestamp": TIME_MS, "headers": []},
    {"key": b"large", "value": b"x" * 3_000_000, "timestamp": TIME_MS},
    {
        "key": b"\xff\x00",
        "value": b"\x00",
        "timestamp": TIME_MS,
        "headers": [("\u00e4=/%", b"\xff")],
    },
]


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def contents(broker: odradek.Broker, topic: str) -> list[tuple[object, ...]]:
    return [
        (each.offset, each.key, each.value, each.timestamp, each.headers)
        for each in broker.records(topic)
    ]


def test_a_directory_may_have_any_name(spark, broker, tmp_path: Path) -> None:
    """Spark took some for patterns, and found no file of what it had just written."""
    broker.create_topic("named", partitions=1, config={"retention.ms": "-1"})
    for value in ('{"n": 1}', "none", '{"n": 3}'):
        broker.produce("named", value, key="k")
    place = str(tmp_path / "a b%20[1]{c}*?")
    settings = PipelineSettings(
        broker.bootstrap_servers, "named", to=f"{place}/archive", source=f"{place}/archive",
        schema="n INT", max_offsets_per_trigger=2,
    )  # fmt: skip
    archive.build(spark, settings).run()
    compact.build(spark, settings).run()
    assert audit.build(spark, settings).run().findings == []
    typed = replace(settings, to=f"{place}/typed")
    decode.build(spark, typed).run()
    window.build(spark, replace(settings, to=f"{place}/windows")).run()
    found = [read_table(spark, each) for each in (settings.to, f"{place}/typed/source=topic")]
    assert [table and table.count() for table in found] == [3, 2]
    assert len(broker.records("named-dead-letters")) == 1


@pytest.mark.parametrize("by", ["hour", "day", "none"])
def test_odd_records_are_archived_and_come_back(spark, broker, tmp_path: Path, by: str) -> None:
    topic = f"odd-{by}"
    own = {
        "retention.ms": "-1",
        "max.message.bytes": "4000000",
        "message.timestamp.after.max.ms": str(2**63 - 1),
    }
    broker.create_topic(topic, partitions=1, config=own)
    target = str(tmp_path / "archive")
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=target, source=target, partition_by=by
    )
    for record in RECORDS:
        broker.produce(topic, **record)
    archive.build(spark, settings).run()
    for record in RECORDS:
        broker.produce(topic, **record)
    archive.build(spark, settings).run()
    facts = compact.build(spark, settings).run().facts
    # Those of one directory were written again at each compaction, each from one.
    assert facts["files after"] < facts["files before"]
    assert audit.build(spark, settings).run().findings == []
    again = replace(settings, topic=f"{topic}-again")
    restore.build(spark, again).run()
    assert contents(broker, again.topic) == contents(broker, topic)
    assert audit.build(spark, again).run().findings == []
    # Of two without a key neither is a duplicate.
    for name, pipeline, count in (("latest", latest, 7), ("dedup", dedup, 9), ("query", query, 16)):
        place = str(tmp_path / name)
        asked = replace(settings, to=place, sql=f"SELECT * FROM `{topic}`")
        pipeline.build(spark, asked).run()
        table = read_table(spark, place)
        assert table is not None
        assert (name, table.count()) == (name, count)
