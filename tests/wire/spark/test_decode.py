"""Values to typed tables, and what fails to a topic and back.

If these fail, a record is in neither, in both, or nobody can say why it failed.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import odradek
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, decode, redrive

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TIME_MS = 1_700_000_000_000
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "shop", "type": "string", "default": "Prague"}]}


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


def test_what_fails_is_kept_with_its_reason_and_comes_back(spark, broker, tmp_path) -> None:
    """Values of two schemas, one of which is not known at first; one value is none at all."""
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "1.avsc").write_text(json.dumps(OLD))
    (schemas / "orders-value.avsc").write_text(json.dumps(NEW))
    broker.create_topic("orders", partitions=1, config={"retention.ms": "-1"})
    for key, value in (
        ("a", b"\0\0\0\0\x01\x02"),
        ("b", b"\0\0\0\0\x02\x04\x0aVaduz"),
        ("c", None),
        ("d", b'{"id": 4}'),
    ):
        broker.produce("orders", value, key=key, timestamp=TIME_MS, headers={"from": b"test"})
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=str(tmp_path / "table"), format="avro",
        registry=str(schemas),
    )  # fmt: skip
    decode.build(spark, settings).run()
    assert rows(spark, settings) == [
        ("topic", b"a", 1, "Prague", 0),
        ("topic", b"c", None, None, 2),
    ]
    letters = broker.records("orders-dead-letters")
    assert [(letter.key, letter.value) for letter in letters] == [
        (b"b", b"\0\0\0\0\x02\x04\x0aVaduz"),
        (b"d", b'{"id": 4}'),
    ]
    assert letters[0].headers == [
        ("from", b"test"),
        ("odradek.reason", f"{schemas} has no schema 2".encode()),
        ("odradek.topic", b"orders"),
        ("odradek.partition", b"0"),
        ("odradek.offset", b"1"),
        ("odradek.timestamp", b"%d" % TIME_MS),
    ]
    # Somebody puts the schema there; the other one fails once more.
    (schemas / "2.avsc").write_text(json.dumps(NEW))
    broker.produce("orders-dead-letters", "not a letter of ours")
    redrive.build(spark, settings).run()
    assert rows(spark, settings)[1] == ("redriven", b"b", 2, "Vaduz", 1)
    assert len(rows(spark, settings)) == 3
    assert [letter.key for letter in broker.records("orders-dead-letters")[3:]] == [b"d"]
    [again] = spark.read.parquet(f"{settings.to}/source=redriven").collect()
    assert (again.topic, again.headers[0].value) == ("orders", b"test")
    assert again.timestamp.timestamp() * 1000 == TIME_MS


def rows(spark, settings: PipelineSettings) -> list[tuple[object, ...]]:
    table = spark.read.parquet(str(settings.to)).orderBy("offset")
    shown = table.selectExpr("source", "key", "value.id", "value.shop", "offset")
    return [(row.source, bytes(row.key), *row[2:]) for row in shown.collect()]


def test_what_cannot_be_decoded_at_all_is_refused(spark, broker, tmp_path: Path) -> None:
    broker.create_topic("never")
    settings = PipelineSettings(broker.bootstrap_servers, "never", to=str(tmp_path / "table"))
    with pytest.raises(PipelineError, match="say what is in a value"):
        decode.build(spark, settings)
    with pytest.raises(PipelineError, match="are no columns such as 'id LONG, name STRING'"):
        decode.build(spark, replace(settings, schema="id WRONG"))
    with pytest.raises(PipelineError, match="there is no topic never-dead-letters"):
        redrive.build(spark, settings)
    with pytest.raises(PipelineError, match="what fails again would come back for ever"):
        redrive.build(spark, replace(settings, every="1 seconds"))
    assert not (tmp_path / "table").exists()
