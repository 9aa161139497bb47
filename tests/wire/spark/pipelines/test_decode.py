"""Values to typed tables, and what fails to a topic and back.

If these fail, a record is in neither, in both, or nobody can say why it failed.
"""

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import odradek
from odradek.client import Admin, ConfigChange, ConfigResource, sync
from odradek.client.errors import error_for
from odradek.errors import ErrorCode
from odradek.tables.write.batch_commit import BatchCommit
from pyspark_odradek.pipelines import (
    PipelineError,
    PipelineSettings,
    decode,
    read_table,
    redrive,
)
from pyspark_odradek.pipelines.ends import letters as letters_module
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.letters import Letters
from pyspark_odradek.pipelines.ends.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TIME_MS = 1_700_000_000_000
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "shop", "type": "string", "default": "Prague"}]}


class Killed(Exception):
    """The process ended here."""


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


def test_a_number_that_grew_is_read_from_old_and_new_batches(spark, broker, tmp_path) -> None:
    """A schema made an int a long: the table was in two halves that no reader put together."""
    broker.create_topic("grown", partitions=1, config={"retention.ms": "-1"})
    settings = PipelineSettings(broker.bootstrap_servers, "grown", to=str(tmp_path / "table"))
    for value, schema in (
        ('{"n": 1}', "n INT"),
        ('{"n": 5000000000, "shop": "Vaduz"}', "n LONG, shop STRING"),
    ):
        broker.produce("grown", value)
        decode.build(spark, replace(settings, schema=schema)).run()
    table = read_table(spark, f"{settings.to}/source=topic")
    assert table is not None
    found = table.orderBy("offset").select("value.n", "value.shop").collect()
    assert [tuple(each) for each in found] == [(1, None), (5_000_000_000, "Vaduz")]


def test_letters_come_back_to_a_table_in_which_a_type_has_changed(
    spark, broker, tmp_path: Path
) -> None:
    """No letter could come back to it any more: `redrive` looks there for what it has."""
    broker.create_topic("changed", partitions=2, config={"retention.ms": "-1"})
    settings = PipelineSettings(broker.bootstrap_servers, "changed", to=str(tmp_path / "table"))
    for values, schema in ((('{"n": 1}', '{"n": "two"}'), "n INT"), (('{"n": "x"}',), "n STRING")):
        for partition, value in enumerate(values):
            broker.produce("changed", value, partition=partition)
        decode.build(spark, replace(settings, schema=schema)).run()
    with pytest.raises(PipelineError, match=r"column value\.n is int .* and string"):
        read_table(spark, f"{settings.to}/source=topic")
    for _ in range(2):
        redrive.build(spark, replace(settings, schema="n STRING")).run()
    table = read_table(spark, f"{settings.to}/source=redriven")
    assert table is not None
    assert [row.n for row in table.select("value.n").collect()] == ["two"]


def test_a_batch_without_rows_may_have_had_any_schema(spark, broker, tmp_path: Path) -> None:
    """A first run with a wrong schema, which no value matched, spoiled the table for all others."""
    broker.create_topic("at-first", partitions=1, config={"retention.ms": "-1"})
    settings = PipelineSettings(broker.bootstrap_servers, "at-first", to=str(tmp_path / "table"))
    parts = [f"{settings.to}/source={part}" for part in ("topic", "redriven")]
    for value, schema in (("x", "id LONG"), ("y", "id STRING")):
        assert read_table(spark, parts[1]) is None
        broker.produce("at-first", f'{{"id": "{value}"}}')
        decode.build(spark, replace(settings, schema=schema)).run()
        found = read_table(spark, parts[0])
        assert found is not None
        assert [row.id for row in found.select("value.id").collect()] == ["y"] * (value == "y")
    for schema in ("id LONG", "id STRING"):
        redrive.build(spark, replace(settings, schema=schema)).run()
    again = read_table(spark, parts[1])
    assert again is not None
    assert [row.id for row in again.select("value.id").collect()] == ["x"]


def test_columns_of_another_case_and_keys_that_grew_are_read_from_all_batches(
    spark, broker, tmp_path: Path
) -> None:
    """Spark refused to read both: the table could not be read any more."""
    broker.create_topic("renamed", partitions=1, config={"retention.ms": "-1"})
    settings = PipelineSettings(broker.bootstrap_servers, "renamed", to=str(tmp_path / "table"))
    for value, schema in (
        ('{"Id": 1, "by": {"2": 3}}', "Id INT, by MAP<INT, INT>"),
        ('{"id": 2, "by": {"5000000000": 4}}', "id LONG, Shop STRING, by MAP<LONG, INT>"),
    ):
        broker.produce("renamed", value)
        decode.build(spark, replace(settings, schema=schema)).run()
    table = read_table(spark, f"{settings.to}/source=topic")
    assert table is not None
    rows = table.orderBy("offset").select("value.id", "value.shop", "value.by").collect()
    assert [tuple(row) for row in rows] == [(1, None, {2: 3}), (2, None, {5_000_000_000: 4})]
    # As Spark takes it, too.
    spark.conf.set("spark.sql.caseSensitive", "True")
    try:
        apart = read_table(spark, f"{settings.to}/source=topic")
        assert apart is not None
        assert apart.schema["value"].dataType.names == ["Id", "by", "id", "Shop"]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_what_cannot_be_decoded_at_all_is_refused(spark, broker, tmp_path: Path) -> None:
    broker.create_topic("never")
    settings = PipelineSettings(broker.bootstrap_servers, "never", to=str(tmp_path / "table"))
    with pytest.raises(PipelineError, match="say what is in a value"):
        decode.build(spark, settings)
    with pytest.raises(PipelineError, match="are no columns such as 'id LONG, name STRING'"):
        decode.build(spark, replace(settings, schema="id WRONG"))
    with pytest.raises(PipelineError, match="there is no topic never-dead-letters"):
        redrive.build(spark, settings)
    with pytest.raises(PipelineError, match="records that fail again would come back for ever"):
        redrive.build(spark, replace(settings, every="1 seconds"))
    assert not (tmp_path / "table").exists()


SHAPE = """id LONG NOT NULL, price DECIMAL(5,2), at TIMESTAMP, name STRING, small INT, x FLOAT,
    by MAP<INT, STRING>, many ARRAY<STRING>"""
POISON = (
    b'{"id": 1, "price": 123456}',
    b'{"id": 2, "at": "0001-01-01T00:00:00+14:00"}',
    b'{"id": 3, "at": "9999-12-31T23:59:59-14:00"}',
    b"[" * 100_000,
    b"[" * 2_000 + b"]" * 2_000,
    b'{"id": "' + b"x" * 3_000_000 + b'"}',
    b'{"price": 1}',
    b'{"id": 4, "small": 1099511627776}',
    b'{"id": 5, "x": 1e300}',
    b'{"id": 6, "by": {"one": "x"}}',
    b'{"id": 7, "name": "\\ud800"}',
    b'{"id": 8, "price": "NaN"}',
)
GOOD = (
    b'{"id": 10, "at": "0001-01-01T00:00:00Z"}',
    b'{"id": 11, "at": "9999-12-31T23:59:59Z"}',
    b'{"id": 12, "price": 1e-99999999, "name": 1.10, "by": {"-1": "x"}, "many": [1, null]}',
)


def test_no_value_stops_the_job(spark, broker, tmp_path: Path) -> None:
    """A record that Spark or the dead-letter topic could not take ended it at each start; of others
    Spark made 0, infinite or `?`."""
    broker.create_topic("poison", partitions=1, config={"max.message.bytes": "4000000"})
    # It is there already, from a time when nothing large had failed.
    broker.create_topic("poison-dead-letters", partitions=1, config={})
    for value in (*POISON, *GOOD):
        broker.produce("poison", value)
    settings = PipelineSettings(
        broker.bootstrap_servers, "poison", to=str(tmp_path / "table"), schema=SHAPE
    )
    decode.build(spark, settings).run()
    table = read_table(spark, f"{settings.to}/source=topic")
    assert table is not None
    found = sorted(table.select("value.*").drop("at").collect(), key=lambda row: row.id)
    assert [row.id for row in found] == [10, 11, 12]
    assert (str(found[2].price), found[2].name, found[2].by) == ("0.00", "1.10", {-1: "x"})
    assert found[2].many == ["1", None]
    assert [letter.value for letter in broker.records("poison-dead-letters")] == list(POISON)


def test_a_record_that_is_too_large_for_a_letter_is_cut(spark, broker, tmp_path: Path) -> None:
    """Where the limit of the dead-letter topic cannot be raised, it was the end of the job."""
    noise = random.Random(7).randbytes(60_000)
    broker.create_topic("large", partitions=1, config={})
    small = {"max.message.bytes": "20000"}
    broker.create_topic("large-dead-letters", partitions=1, config=small)
    for value in (b"x" * 60_000, noise, b"\xff"):
        broker.produce("large", value, headers={"odradek.offset": b"mine"})
    # Somebody else writes there what looks like letters.
    for name, value in (("offset", b"x"), ("timestamp", b"9223372036854775807")):
        place = {"topic": b"large", "partition": b"0", "offset": b"9", "timestamp": b"0"}
        told = {f"odradek.{each}": text for each, text in {**place, name: value}.items()}
        broker.produce("large-dead-letters", b"{}", headers=told)
    settings = PipelineSettings(
        broker.bootstrap_servers, "large", to=str(tmp_path / "table"), schema="id LONG"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_LARGEST_LETTER", 20_000)
        decode.build(spark, settings).run()
        text = replace(settings, schema="s STRING")
        redrive.build(spark, text).run()
    letters = broker.records("large-dead-letters")[2:]
    first, second = letters[:3], letters[3:]
    left = [b"x" * 60_000, noise[:5_000], b"\xff"]
    assert [letter.value for letter in first] == left
    assert sorted(letter.value for letter in second) == sorted(left)
    [again] = (letter for letter in second if letter.value == left[1])
    digest = hashlib.sha256(noise).hexdigest()
    for letter in (first[1], again):
        told = dict(letter.headers)
        assert told["odradek.cut.value"] == f"60000 bytes, sha256 {digest}".encode()
        assert told["odradek.offset"] == b"1"
    whole = b"it is cut: the whole record is at its topic, partition and offset"
    assert dict(again.headers)["odradek.reason"] == whole


def test_a_topic_for_letters_that_is_there_says_how_much_of_a_record_it_gets(
    spark, broker, tmp_path: Path, monkeypatch
) -> None:
    """The letter was refused, at each start of the job: its limit was taken for that of a new
    topic, and a new topic had the usual one."""
    noise = random.Random(7).randbytes(1_500_000)
    settings = [
        PipelineSettings(
            broker.bootstrap_servers, topic, to=str(tmp_path / topic), schema="id LONG"
        )
        for topic in ("made", "raised", "larger", "smaller")
    ]
    for each, limit in zip(settings, (None, 1_000_000, 2_000_000, 20_000), strict=True):
        broker.create_topic(each.topic, partitions=1, config={"max.message.bytes": "2000000"})
        if limit is not None:
            own = {"max.message.bytes": str(limit)}
            broker.create_topic(f"{each.topic}-dead-letters", partitions=1, config=own)
        broker.produce(each.topic, noise)
        decode.build(spark, each).run()
        if each.topic == "raised":
            monkeypatch.setattr(Admin, "alter_configs", refuse)
    found = [broker.records(f"{each.topic}-dead-letters") for each in settings]
    assert [[len(letter.value) for letter in letters] for letters in found] == [
        [1_500_000],
        [1_500_000],
        [1_500_000],
        [5_000],
    ]
    told = f"1500000 bytes, sha256 {hashlib.sha256(noise).hexdigest()}"
    assert dict(found[3][0].headers)["odradek.cut.value"] == told.encode()


def test_of_two_letters_of_a_record_the_whole_one_is_tried(spark) -> None:
    """If this fails, one that was cut hides one that could be read by now."""
    time = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    cut = [("odradek.cut.value", b"9 bytes")]
    letters = [
        (None, value, "orders", 0, offset, time, headers)
        for offset, value, headers in (
            (0, b"c", cut),
            (0, b"whole", None),
            (1, b"w", [("h", None)]),
            (1, b"c", cut),
            (2, b"c", cut),
        )
    ]
    found = decode.once(spark.createDataFrame(letters, schema)).orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in found] == [
        (0, b"whole"),
        (1, b"w"),
        (2, b"c"),
    ]


async def refuse(_: Admin, changes: dict[Any, Any]) -> dict[Any, Any]:
    refused = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")
    return dict.fromkeys(changes, refused)


def test_letters_of_another_topic_are_left_to_its_own_redrive(
    spark, broker, tmp_path: Path
) -> None:
    """They became rows of this table, or came back as letters once more at each attempt."""
    settings = [
        PipelineSettings(
            broker.bootstrap_servers, topic, to=str(tmp_path / topic), schema="id LONG",
            dead_letters="shared-letters",
        )
        for topic in ("ours", "theirs")
    ]  # fmt: skip
    for each in settings:
        broker.create_topic(each.topic, partitions=1, config={"retention.ms": "-1"})
        broker.produce(each.topic, f'{{"id": "{each.topic}"}}')
        broker.produce(each.topic, b"none")
        decode.build(spark, each).run()
    redrive.build(spark, replace(settings[0], schema="id STRING")).run()
    table = read_table(spark, f"{settings[0].to}/source=redriven")
    assert table is not None
    assert [(row.topic, row.value.id) for row in table.collect()] == [("ours", "ours")]
    letters = broker.records("shared-letters", read_committed=True)
    assert [dict(letter.headers)["odradek.topic"] for letter in letters] == [
        *(b"ours", b"ours", b"theirs", b"theirs"),
        b"ours",
    ]


def test_a_record_keeps_headers_of_its_own_that_are_named_as_those_of_letters(
    spark, broker, tmp_path: Path
) -> None:
    """They were taken for those that `decode` had added, and were gone."""
    broker.create_topic("named", partitions=1, config={"retention.ms": "-1"})
    broker.produce("named", b'{"id": "1"}', headers={"odradek.offset": b"mine", "from": b"test"})
    settings = PipelineSettings(
        broker.bootstrap_servers, "named", to=str(tmp_path / "table"), schema="id LONG"
    )
    decode.build(spark, settings).run()
    redrive.build(spark, replace(settings, schema="id STRING")).run()
    table = read_table(spark, f"{settings.to}/source=redriven")
    assert table is not None
    [row] = table.collect()
    assert (row.offset, [(each.key, bytes(each.value)) for each in row.headers]) == (
        0,
        [("odradek.offset", b"mine"), ("from", b"test")],
    )


def test_a_record_with_headers_of_its_own_named_as_those_of_what_is_cut_is_tried_again(
    spark, broker, tmp_path: Path
) -> None:
    """It was taken for cut: no schema brought it back, though its letter is whole."""
    broker.create_topic("seem-cut", partitions=1, config={"max.message.bytes": "2000000"})
    own = [
        [("odradek.cut.value", b"9 bytes"), ("from", b"test")],
        [("from", b"test"), ("odradek.cut.value", b"9 bytes")],
        [("odradek.cut.nothing", b"")],
        [],
    ]
    for number, headers in enumerate(own):
        broker.produce("seem-cut", f'{{"id": "{number}"}}', headers=headers)
    noise = random.Random(7).randbytes(60_000)
    broker.produce("seem-cut", noise, headers=own[1])
    small = {"max.message.bytes": "20000"}
    broker.create_topic("seem-cut-dead-letters", partitions=1, config=small)
    settings = PipelineSettings(
        broker.bootstrap_servers, "seem-cut", to=str(tmp_path / "table"), schema="id LONG"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_LARGEST_LETTER", 20_000)
        decode.build(spark, settings).run()
        # These come back to the topic once more, and are neither cut nor whole the less.
        redrive.build(spark, replace(settings, schema="id STRING, more LONG NOT NULL")).run()
        for _ in range(2):
            redrive.build(spark, replace(settings, schema="id STRING")).run()
    table = read_table(spark, f"{settings.to}/source=redriven")
    assert table is not None
    found = [
        (row.value.id, [(each.key, bytes(each.value)) for each in row.headers or ()])
        for row in table.orderBy("offset").collect()
    ]
    assert found == [(f"{number}", headers) for number, headers in enumerate(own)]
    letters = broker.records("seem-cut-dead-letters", read_committed=True)
    cut = [letter for letter in letters if dict(letter.headers)["odradek.offset"] == b"4"]
    assert [letter.value for letter in cut] == [noise[:5_000]] * 4
    reasons = {dict(letter.headers)["odradek.reason"] for letter in cut[1:]}
    assert reasons == {b"it is cut: the whole record is at its topic, partition and offset"}


def test_letters_that_were_not_committed_are_not_tried_again(
    spark, broker, tmp_path: Path, monkeypatch
) -> None:
    """`redrive` could be told to read them, and `decode`, which had been killed while it wrote
    them, had their records a second time."""
    broker.create_topic("begun", partitions=1, config={"retention.ms": "-1"})
    for number in range(4):
        broker.produce("begun", f'{{"id": "{number}"}}')
    settings = PipelineSettings(
        broker.bootstrap_servers, "begun", to=str(tmp_path / "table"), schema="id LONG"
    )

    def dying(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("pyspark_odradek.pipelines.ends.letters.commit_prepared", dying)
        with pytest.raises(PySparkException, match="Killed"):
            decode.build(spark, settings).run()
    assert len(broker.records("begun-dead-letters")) == 4
    text = replace(settings, schema="id STRING")
    redrive.build(spark, replace(text, isolation_level="read_uncommitted")).run()
    decode.build(spark, text).run()
    redrive.build(spark, text).run()
    found = [read_table(spark, f"{settings.to}/source={part}") for part in ("topic", "redriven")]
    assert sorted(row.offset for rows in found if rows for row in rows.collect()) == [0, 1, 2, 3]


def test_letters_of_a_batch_that_is_repeated_are_in_one_topic(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed behind its letters, and was started again with another topic for them,
    wrote them there too."""
    broker.create_topic("moved", partitions=1, config={"retention.ms": "-1"})
    broker.produce("moved", b"none")
    first = PipelineSettings(
        broker.bootstrap_servers, "moved", to=str(tmp_path / "table"), schema="id LONG",
        dead_letters="first-letters",
    )  # fmt: skip
    second = replace(first, dead_letters="second-letters")

    def dying(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Output, "commit", dying)
        with pytest.raises(PySparkException, match="Killed"):
            decode.build(spark, first).run()
    with pytest.raises(PySparkException, match="batch 0 was written to first-letters"):
        decode.build(spark, second).run()
    decode.build(spark, first).run()
    broker.produce("moved", b"nor this")
    decode.build(spark, second).run()
    found = [broker.records(f"{name}-letters", read_committed=True) for name in ("first", "second")]
    assert [[letter.value for letter in letters] for letters in found] == [[b"none"], [b"nor this"]]


@pytest.mark.parametrize(
    ("step", "allow_loss"), [("write", False), ("commit", False), ("commit", True)]
)
def test_a_batch_that_is_repeated_goes_by_the_schemas_that_there_were(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, allow_loss: bool
) -> None:
    """A batch that was killed behind its letters was refused for good: a schema that came to the
    registry meanwhile never goes. With `--allow-loss` a record was in the table and a letter. A
    schema may go from a folder, too: then it was in neither."""
    schemas, topic = tmp_path / "schemas", f"repeated-{step}-{allow_loss}"
    schemas.mkdir()
    for name, schema in (("1", OLD), ("4", OLD), (f"{topic}-value", NEW)):
        (schemas / f"{name}.avsc").write_text(json.dumps(schema))
    broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
    for number in range(5):
        value = bytes([0, 0, 0, 0, number, 2 * number]) + (
            b"" if number in (1, 4) else b"\x0aVaduz"
        )
        broker.produce(topic, value, key=f"{number}", partition=number % 2, timestamp=TIME_MS)
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "table"), format="avro",
        registry=str(schemas), allow_loss=allow_loss,
    )  # fmt: skip

    def dying(*_: object) -> None:
        raise Killed

    def dies(pipeline: Any) -> None:
        owner = Letters if step == "write" else Output
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, dying)
            with pytest.raises(PySparkException, match="Killed"):
                pipeline.build(spark, settings).run()

    def letters() -> list[bytes | None]:
        found = broker.records(f"{topic}-dead-letters", read_committed=True)
        return sorted(letter.key for letter in found)

    dies(decode)
    (schemas / "2.avsc").write_text(json.dumps(NEW))
    (schemas / "4.avsc").unlink()
    with pytest.raises(PipelineError, match="was begun with --isolation-level read_committed"):
        decode.build(spark, replace(settings, isolation_level="read_uncommitted")).run()
    decode.build(spark, settings).run()
    assert letters() == [b"0", b"2", b"3"]
    assert [row[1:3] for row in rows(spark, settings)] == [(b"1", 1), (b"4", 4)]
    dies(redrive)
    (schemas / "3.avsc").write_text(json.dumps(NEW))
    for _ in range(2):
        redrive.build(spark, settings).run()
    # That of 3 is tried once more, though it could be read when the batch was repeated.
    assert [letters().count(key) for key in (b"2", b"3")] == [1, 2]
    assert sorted(row[1] for row in rows(spark, settings)) == [b"1", b"2", b"3", b"4"]
    assert list(tmp_path.glob("table/source=*/_letters/*")) == []
    assert list(tmp_path.glob("table/source=*/_manifest/draft-*")) == []


@pytest.mark.parametrize(("first", "then"), [(20_000, 2_000_000), (2_000_000, 20_000)])
def test_a_batch_that_is_repeated_writes_the_letters_that_it_wrote_whatever_their_limit_is(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, then: int
) -> None:
    """It was refused until the limit was what it had been: its letters were cut otherwise."""
    topic = f"limited-{first}"
    broker.create_topic(topic, partitions=1, config={"max.message.bytes": "2000000"})
    broker.produce(topic, random.Random(7).randbytes(100_000))
    own = {"max.message.bytes": str(first)}
    broker.create_topic(f"{topic}-dead-letters", partitions=1, config=own)
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "table"), schema="id LONG"
    )
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "alter_configs", refuse)
        dies_in(spark, Output, "commit", settings)
    before = broker.records(f"{topic}-dead-letters")
    take(broker, f"{topic}-dead-letters", then)
    monkeypatch.setattr(Admin, "alter_configs", refuse)
    decode.build(spark, settings).run()
    assert broker.records(f"{topic}-dead-letters") == before
    assert [len(letter.value or b"") for letter in before] == [5_000 if first < then else 100_000]


def test_letters_of_one_topic_stay_as_they_are_when_another_is_tried(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that takes less had them cut before it was refused; then the first refused them, for
    good: it had them whole."""
    broker.create_topic("tried", partitions=1, config={"max.message.bytes": "2000000"})
    noise = random.Random(7).randbytes(200_000)
    broker.produce("tried", noise)
    for name, limit in (("large", 2_000_000), ("small", 20_000)):
        own = {"max.message.bytes": str(limit)}
        broker.create_topic(f"{name}-letters", partitions=1, config=own)
    large = PipelineSettings(
        broker.bootstrap_servers, "tried", to=str(tmp_path / "table"), schema="id LONG",
        dead_letters="large-letters",
    )  # fmt: skip
    monkeypatch.setattr(Admin, "alter_configs", refuse)
    dies_in(spark, Output, "commit", large)
    with pytest.raises(PySparkException, match="batch 0 was written to large-letters"):
        decode.build(spark, replace(large, dead_letters="small-letters")).run()
    decode.build(spark, large).run()
    found = [broker.records(f"{name}-letters", read_committed=True) for name in ("large", "small")]
    assert [[letter.value for letter in letters] for letters in found] == [[noise], []]


@pytest.mark.parametrize("step", ["write", "commit_prepared", "_endings"])
def test_letters_of_which_none_was_committed_are_cut_to_what_their_topic_takes_by_now(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A batch that was killed between its draft and its letters was refused at each start, if
    somebody had lowered the limit meanwhile; the last step comes after the batch's cut."""
    topic, noise = f"lowered-{step.replace('_', '-')}", random.Random(7).randbytes(200_000)
    broker.create_topic(topic, partitions=1, config={"max.message.bytes": "2000000"})
    for value in (b'{"id": 1}', noise, b"small"):
        broker.produce(topic, value)
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "table"), schema="id LONG"
    )
    owners = {"write": Letters, "commit_prepared": letters_module, "_endings": BatchCommit}
    own = {"max.message.bytes": "2000000"}
    broker.create_topic(f"{topic}-dead-letters", partitions=1, config=own)
    for limit in (100_000, 40_000, 20_000):
        with monkeypatch.context() as patch:
            patch.setattr(Admin, "alter_configs", refuse)
            dies_in(spark, owners[step], step, settings)
        take(broker, f"{topic}-dead-letters", limit)
    monkeypatch.setattr(Admin, "alter_configs", refuse)
    # Of a schema that comes meanwhile the batch knows nothing, as ever.
    decode.build(spark, replace(settings, schema="id STRING")).run()
    letters = broker.records(f"{topic}-dead-letters", read_committed=True)
    assert [letter.value for letter in letters] == [noise[:5_000], b"small"]
    told = [value for name, value in letters[0].headers if name == "odradek.cut.value"]
    assert told == [f"200000 bytes, sha256 {hashlib.sha256(noise).hexdigest()}".encode()]
    table = read_table(spark, f"{settings.to}/source=topic")
    assert table is not None
    assert [row.offset for row in table.collect()] == [0]
    assert list(tmp_path.glob("table/source=*/_letters/*")) == []
    assert list(tmp_path.glob("table/source=*/_manifest/draft-*")) == []


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_batch_repeats_the_letters_that_were_written_of_those_that_runs_have_cut(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """Of two runs at once one cut the letters again when the other had written them: each later run
    was refused."""
    topic, noise = f"variants-{is_cut}".lower(), random.Random(7).randbytes(200_000)
    broker.create_topic(topic, partitions=1, config={"max.message.bytes": "2000000"})
    broker.produce(topic, noise)
    settings = PipelineSettings(
        broker.bootstrap_servers, topic, to=str(tmp_path / "table"), schema="id LONG"
    )
    own = {"max.message.bytes": "2000000"}
    broker.create_topic(f"{topic}-dead-letters", partitions=1, config=own)
    small, large = 20_000, 2_000_000
    written, then = (small, large) if is_cut else (large, small)
    # What decides, what cuts, and what writes before it is killed.
    steps = [(Letters, "write", large), (Letters, "write", small), (Output, "commit", written)]
    for owner, step, limit in steps:
        take(broker, f"{topic}-dead-letters", limit)
        with monkeypatch.context() as patch:
            patch.setattr(Admin, "alter_configs", refuse)
            dies_in(spark, owner, step, settings)
    take(broker, f"{topic}-dead-letters", then)
    monkeypatch.setattr(Admin, "alter_configs", refuse)
    decode.build(spark, settings).run()
    letters = broker.records(f"{topic}-dead-letters", read_committed=True)
    assert [letter.value for letter in letters] == [noise[:5_000] if is_cut else noise]
    assert list(tmp_path.glob("table/source=*/_letters/*")) == []
    assert list(tmp_path.glob("table/source=*/_manifest/draft-*")) == []


def take(broker: odradek.Broker, topic: str, limit: int) -> None:
    """Lets a topic take batches of so many bytes, whatever is refused."""
    change = ConfigChange("max.message.bytes", str(limit))
    with sync.Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({ConfigResource.topic(topic): [change]})


def test_what_another_run_has_committed_as_rows_gets_no_letters(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was taken for dead wrote letters of the records that the other one could read:
    they were in the table and in the topic."""
    broker.create_topic("overtaken", partitions=1, config={"retention.ms": "-1"})
    broker.produce("overtaken", '{"id": "1"}')
    settings = PipelineSettings(
        broker.bootstrap_servers, "overtaken", to=str(tmp_path / "table"), schema="id LONG"
    )
    keep = Output.keep_draft

    def overtaken(output: Output, batch_id: int, document: Any) -> Any:
        other = Output(spark, output.table.directory, output.checkpoint.path, ("", "_letters"))
        draft = keep(other, batch_id, {**document, "letters": []})
        other.commit(batch_id, draft["files"], {"schema": draft["schema"]})
        other.drop_draft(batch_id)
        return keep(output, batch_id, document)

    with monkeypatch.context() as patch:
        patch.setattr(Output, "keep_draft", overtaken)
        with pytest.raises(PySparkException, match="has another batch-0 already"):
            decode.build(spark, settings).run()
    decode.build(spark, settings).run()
    assert broker.records("overtaken-dead-letters") == []


def dies_in(spark, owner: object, step: str, settings: PipelineSettings) -> None:
    """Runs `decode`, which is killed at a step."""

    def dying(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, step, dying)
        with pytest.raises(PySparkException, match="Killed"):
            decode.build(spark, settings).run()


def test_a_job_that_is_run_again_completes_its_batch(spark, broker, tmp_path: Path) -> None:
    """It wrote over the files of the draft that it then took up: no run came further."""
    broker.create_topic("run-again", partitions=1, config={"retention.ms": "-1"})
    for value in ('{"id": 1}', "none", '{"id": 3}'):
        broker.produce("run-again", value)
    settings = PipelineSettings(
        broker.bootstrap_servers, "run-again", to=str(tmp_path / "table"), schema="id LONG",
        max_offsets_per_trigger=1,
    )  # fmt: skip
    job, commit = decode.build(spark, settings), Output.commit

    def dying(output: Output, batch_id: int, *document: Any) -> None:
        if batch_id == 1:
            raise Killed
        commit(output, batch_id, *document)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Output, "commit", dying)
        with pytest.raises(PySparkException, match="Killed"):
            job.run()
    job.run()
    table = read_table(spark, f"{settings.to}/source=topic")
    assert table is not None
    assert sorted(row.offset for row in table.collect()) == [0, 2]
    letters = broker.records("run-again-dead-letters", read_committed=True)
    assert [letter.value for letter in letters] == [b"none"]


def test_a_batch_whose_draft_is_gone_says_what_helps(spark, broker, tmp_path: Path) -> None:
    """It advised an option that letters do not have."""
    broker.create_topic("draftless", partitions=1, config={"retention.ms": "-1"})
    for value in ('{"id": "1"}', "none"):
        broker.produce("draftless", value)
    settings = PipelineSettings(
        broker.bootstrap_servers, "draftless", to=str(tmp_path / "table"), schema="id LONG"
    )
    dies_in(spark, Output, "commit", settings)
    [draft] = tmp_path.glob("table/source=topic/_manifest/draft-0-*.json")
    draft.unlink()
    with pytest.raises(PySparkException, match=rf"remove {draft}, and start the pipeline once"):
        decode.build(spark, replace(settings, schema="id STRING")).run()
    draft.unlink()
    decode.build(spark, settings).run()
    assert len(broker.records("draftless-dead-letters", read_committed=True)) == 2


def test_a_batch_keeps_its_letters_though_all_of_them_can_be_read_by_now(
    spark, broker, tmp_path: Path
) -> None:
    """Decided anew it would have none, and be refused."""
    broker.create_topic("readable", partitions=1, config={"retention.ms": "-1"})
    broker.produce("readable", '{"id": "1"}')
    settings = PipelineSettings(
        broker.bootstrap_servers, "readable", to=str(tmp_path / "table"), schema="id LONG"
    )
    dies_in(spark, Output, "commit", settings)
    text = replace(settings, schema="id STRING")
    decode.build(spark, text).run()
    assert len(broker.records("readable-dead-letters", read_committed=True)) == 1
    redrive.build(spark, text).run()
    table = read_table(spark, f"{settings.to}/source=redriven")
    assert table is not None
    assert [row.value.id for row in table.collect()] == ["1"]


def test_a_run_looks_once_for_what_an_earlier_one_has_left(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch asked the file system for its draft, with letters or without."""
    broker.create_topic("looked", partitions=1, config={"retention.ms": "-1"})
    for value in ('{"id": 1}', "none", '{"id": 3}'):
        broker.produce("looked", value)
    asked: list[int] = []
    draft = Table.draft

    def noted(table: Table, batch_id: int, name: str) -> Any:
        asked.append(batch_id)
        return draft(table, batch_id, name)

    monkeypatch.setattr(Table, "draft", noted)
    settings = PipelineSettings(
        broker.bootstrap_servers, "looked", to=str(tmp_path / "table"), schema="id LONG",
        max_offsets_per_trigger=1,
    )  # fmt: skip
    decode.build(spark, settings).run()
    assert asked == [0]
    assert Table(FileSystem(spark), f"{settings.to}/source=topic").last_batch() == 2
    assert list(tmp_path.glob("table/source=topic/_manifest/draft-*")) == []
    assert list(tmp_path.glob("table/source=topic/_letters/*")) == []


def test_every_record_is_in_the_table_or_a_letter_once(
    spark, broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of either that was killed between its letters and its rows doubled them."""
    broker.create_topic("twice", partitions=2, config={})
    for number in range(40):
        value = b'{"id": %d}' if number % 4 else b'{"id": "%d"}'
        value %= number
        broker.produce("twice", value, partition=number % 2)
    settings = PipelineSettings(
        broker.bootstrap_servers, "twice", to=str(tmp_path / "table"), schema="id LONG",
        max_offsets_per_trigger=20,
    )  # fmt: skip
    deaths = {0, 1}
    commit = Output.commit

    def dying(output: Output, batch_id: int, *more) -> None:
        if batch_id in deaths:
            deaths.remove(batch_id)
            raise Killed
        commit(output, batch_id, *more)

    monkeypatch.setattr(Output, "commit", dying)
    for _ in range(2):
        with pytest.raises(PySparkException, match="Killed"):
            decode.build(spark, settings).run()
    decode.build(spark, settings).run()
    assert sorted(letter.value for letter in broker.records("twice-dead-letters")) == sorted(
        b'{"id": "%d"}' % number for number in range(0, 40, 4)
    )
    # One is there twice all the same, as a worker that is held up may send it.
    [first, *_] = broker.records("twice-dead-letters")
    broker.produce("twice-dead-letters", first.value, headers=first.headers)
    text = replace(settings, schema="id STRING", max_offsets_per_trigger=4)
    deaths.update((0, 2))
    for _ in range(2):
        with pytest.raises(PySparkException, match="Killed"):
            redrive.build(spark, text).run()
    redrive.build(spark, text).run()
    assert len(broker.records("twice-dead-letters")) == 11
    found = [read_table(spark, f"{settings.to}/source={part}") for part in ("topic", "redriven")]
    offsets = [sorted((r.offset, r.partition) for r in rows.collect()) for rows in found if rows]
    assert sorted(offsets[0] + offsets[1]) == [(n // 2, n % 2) for n in range(40)]
    assert len(offsets[1]) == 10
