"""The arguments of a producer besides records. If these fail, an argument of other libraries is not
there, or does something else."""

import asyncio
import json
import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.test_producer import make, stored

import odradek
from odradek.client import Admin, CommittedOffset, GroupMetadata, Producer, sync
from odradek.client.errors import (
    BadRecord,
    KafkaError,
    LogTruncated,
    NotDelivered,
    RecordTooLarge,
    error_for,
)
from odradek.client.record_metadata import RecordMetadata
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

Run = Callable[[Any], Any]


def test_headers_may_be_text_and_a_mapping(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(servers, topic)
        async with Producer({"bootstrap.servers": servers}) as producer:
            await producer.send(topic, b"0", headers={"trace": "ä", "raw": b"\xff", "none": None})
            await producer.send(topic, b"1", headers=[("a", "x"), ("a", b"y")])
            await producer.send(topic, b"2", headers=None)
            await producer.send_many(topic, [b"3", b"4"], headers=[{"a": "x"}, None])

    run(scenario())
    assert [record.headers for record in stored(servers, topic)] == [
        [("trace", "ä".encode()), ("raw", b"\xff"), ("none", None)],
        [("a", b"x"), ("a", b"y")],
        [],
        [("a", b"x")],
        [],
    ]


NO_HEADERS: Any = (
    "ab",
    b"ab",
    {"a": 1, "b": 2},
    {"a", "b"},
    ("a",),
    ("a", b"b", b"c"),
    ("a", 1),
    7,
)


@pytest.mark.parametrize("header", NO_HEADERS, ids=lambda header: type(header).__name__)
def test_a_header_is_a_pair(servers: str, topic: str, run: Run, header: Any) -> None:
    """Text of two letters, and whatever else has two parts, was taken for a name and a value."""

    async def scenario() -> None:
        await make(servers, topic)
        async with Producer({"bootstrap.servers": servers}) as producer:
            with pytest.raises(TypeError, match="headers are pairs of a name"):
                await producer.send(topic, b"0", headers=[header])
            with pytest.raises(TypeError, match="headers are pairs of a name"):
                await producer.send_many(topic, [b"1", b"2"], headers=[None, [header]])

    run(scenario())
    assert stored(servers, topic) == []


class Tagging:
    """Says in a header what it made, as serializers of schema registries do."""

    def __init__(self, what: str) -> None:
        self.what = what

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], value: Any) -> bytes:
        headers.append((self.what, topic.encode()))
        return json.dumps(value).encode()


def test_serializers_may_see_topic_and_headers(bootstrap: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(bootstrap, topic)
        settings = {"key_serializer": Tagging("key"), "value_serializer": Tagging("value")}
        async with Producer(bootstrap, **settings) as producer:
            given = [("mine", b"1")]
            await producer.send(topic, {"a": 1}, key=7, headers=given)
            await producer.send_many(topic, [[1], [2]], keys=[1, 2])
            assert given == [("mine", b"1")]

    run(scenario())
    name = topic.encode()
    records = stored(bootstrap, topic)
    assert [(each.key, each.value) for each in records] == [
        (b"7", b'{"a": 1}'),
        (b"1", b"[1]"),
        (b"2", b"[2]"),
    ]
    assert records[0].headers == [("mine", b"1"), ("key", name), ("value", name)]
    assert records[2].headers == [("key", name), ("value", name)]


def test_a_partitioner_of_ones_own(bootstrap: str, topic: str, run: Run) -> None:
    seen: list[tuple[bytes | None, Sequence[int], Sequence[int]]] = []

    def last(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        seen.append((key, partitions, available))
        if key == b"bad":
            raise ZeroDivisionError
        return partitions[-1]

    async def scenario() -> None:
        await make(bootstrap, topic, 3)
        async with Producer(bootstrap, partitioner=last) as producer:
            assert (await producer.send_and_wait(topic, b"v", key=b"k")).partition == 2
            assert (await producer.send_and_wait(topic, b"v", partition=0)).partition == 0
            with pytest.raises(ZeroDivisionError):
                await producer.send(topic, b"v", key=b"bad")
            with pytest.raises(ZeroDivisionError):
                await producer.send_many(topic, [b"v"], keys=[b"bad"])
            delivery = await producer.send_many(topic, [b"v"] * 3, keys=[b"k", b"bad", b"l"])
            with pytest.raises(NotDelivered) as some:
                await delivery
            assert sorted(some.value.errors) == [1, 2], "nothing is raised when one is sent"

    run(scenario())
    assert seen[0] == (b"k", [0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_levels_of_compression(bootstrap: str, topic: str, codec: str, run: Run) -> None:
    async def scenario() -> list[float]:
        await make(bootstrap, topic)
        sizes = []
        for level in (1, 9 if codec == "gzip" else 15):
            settings = {"compression.type": codec, f"compression.{codec}.level": level}
            async with Producer(bootstrap, settings, linger_ms=1_000) as producer:
                values = [b"%d %d" % (each, each * each % 997) for each in range(600)]
                await producer.send_many(topic, values)
                await producer.flush()
                sizes.append(producer.metrics()["producer-metrics"]["batch-size-avg"])
        return sizes

    fast, small = run(scenario())
    assert small < fast
    with pytest.raises(ValueError, match="no more than"):
        Producer(bootstrap, {f"compression.{codec}.level": 99})


def test_callbacks_are_told_of_every_delivery(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str | None, int, int]] = []

    def note(who: str) -> Callable[[KafkaError | None, RecordMetadata], None]:
        def on_delivery(error: KafkaError | None, metadata: RecordMetadata) -> None:
            name = None if error is None else error.code.name
            told.append((who, name, metadata.partition, metadata.offset))
            raise RuntimeError("does not matter")

        return on_delivery

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            servers = broker.bootstrap_servers
            async with Producer(servers, on_delivery=note("all"), linger_ms=0) as producer:
                await producer.send("t", b"0", on_delivery=note("one"))
                await producer.flush()
                with broker.fail("Produce", "INVALID_RECORD", times=1):
                    await producer.send("t", b"1", partition=0, on_delivery=note("one"))
                    await producer.flush()
                await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING, "odradek.client"):
        run(scenario())
    assert sorted(told, key=str) == [
        ("all", "INVALID_RECORD", 0, -1),
        ("all", None, 0, 0),
        ("one", "INVALID_RECORD", 0, -1),
        ("one", None, 0, 0),
    ]
    lines = [line for line in caplog.messages if "not delivered" in line]
    assert len(lines) == 1, "who does not look at a delivery is told by the log"
    assert "1 records for t-0 were not delivered: INVALID_RECORD" in lines[0]


def test_a_record_refused_among_many_is_in_the_log(run: Run, caplog: Any) -> None:
    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with Producer(broker.bootstrap_servers, max_request_size=1_000) as producer:
                for _ in range(3):
                    await producer.send_many("t", [b"a", b"x" * 1_000])

    with caplog.at_level(logging.WARNING, "odradek.client"):
        run(scenario())
    assert len([line for line in caplog.messages if "not delivered" in line]) == 1


def test_records_that_a_broker_refuses_for_long_are_in_the_log(run: Run, caplog: Any) -> None:
    """They are tried again for two minutes: nobody would know why nothing comes."""

    def told() -> list[str]:
        return [each.message for each in caplog.records if each.name.startswith("odradek.client")]

    async def scenario() -> None:
        with odradek.Broker() as broker:
            broker.create_topic("t")
            async with Producer(broker.bootstrap_servers) as producer:
                await producer.send_and_wait("t", b"a")
                with broker.full_disk() as fault:
                    waiting = await producer.send("t", b"b")
                    await broker.wait_for_fault_async(fault, 3)
                    assert not told(), "an election takes as long"
                    while not told():
                        await asyncio.sleep(0.01)
                await waiting

    with caplog.at_level(logging.WARNING, "odradek.client"):
        run(scenario())
    (line,) = told()
    assert "records for t-0 are not written yet: KAFKA_STORAGE_ERROR" in line


def test_measurements_have_kafkas_names(servers: str, topic: str, run: Run) -> None:
    async def scenario() -> None:
        await make(servers, topic)
        async with Producer(servers, compression_type="gzip") as producer:
            await (await producer.send_many(topic, [b"x" * 100] * 50))
            found = producer.metrics()
        all_of_it, of_topic = found["producer-metrics"], found[f"producer-topic-metrics.{topic}"]
        assert all_of_it["record-send-total"] == of_topic["record-send-total"] == 50
        assert all_of_it["record-error-total"] == all_of_it["record-retry-total"] == 0
        assert all_of_it["records-per-request-avg"] == 50
        assert all_of_it["batch-size-avg"] == of_topic["byte-total"]
        assert 0 < all_of_it["compression-rate-avg"] < 0.5
        assert all_of_it["request-latency-max"] >= 0
        assert all_of_it["requests-in-flight"] == all_of_it["waiting-threads"] == 0
        assert all_of_it["buffer-available-bytes"] == all_of_it["buffer-total-bytes"] == 33_554_432

    run(scenario())


def test_the_blocking_producer_takes_the_same(bootstrap: str, topic: str) -> None:
    told: list[KafkaError | None] = []
    with sync.Producer(
        {"bootstrap.servers": bootstrap},
        partitioner=lambda _, partitions, __: partitions[0],
        on_delivery=lambda error, _: told.append(error),
    ) as producer:
        producer.send(topic, b"v", headers={"a": "b"}).result(timeout=deadline_s(30))
        given: Any = ["ab"]
        with pytest.raises(TypeError, match="a header is a pair, not str"):
            producer.send(topic, b"v", headers=given)
        with pytest.raises(TypeError, match="a header is a pair, not str"):
            producer.send_many(topic, [b"v"], headers=[given])
    assert told == [None]


MADE_OTHERWISE = (LogTruncated, BadRecord, NotDelivered)


def kinds_of(kind: type[KafkaError]) -> Iterator[type[KafkaError]]:
    """A type of our errors, and all below it."""
    yield kind
    for each in kind.__subclasses__():
        yield from kinds_of(each)


def test_errors_can_be_pickled() -> None:
    """They go from one process to another: Spark's tasks, pools of workers."""
    place = RecordMetadata("t", 0, 7, 1)
    too_large = RecordTooLarge("so large", ErrorCode.MESSAGE_TOO_LARGE)
    errors: list[KafkaError] = [
        *(error_for(code, "why") for code in ErrorCode if code),
        *(kind("why") for kind in kinds_of(KafkaError) if kind not in MADE_OTHERWISE),
        LogTruncated(TopicPartition("t", 1), 5),
        BadRecord(TopicPartition("t", 1), 5, "why", ErrorCode.CORRUPT_MESSAGE),
        NotDelivered({1: too_large}, [place, None]),
    ]
    assert {type(error) for error in errors} == {*kinds_of(KafkaError)}
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert (again.code, again.message) == (error.code, error.message)
    many = pickle.loads(pickle.dumps(errors[-1]))
    assert many.metadata == [place, None]
    assert many.errors[1].code is ErrorCode.MESSAGE_TOO_LARGE


def test_offsets_of_a_group_are_numbers_or_have_metadata(
    servers: str, topic: str, run: Run
) -> None:
    """Numbers, which `commit` takes, would end in an AttributeError, and in an open transaction; so
    would the name of a group, which other libraries take."""
    partition = TopicPartition(topic, 0)
    group = f"readers-of-{topic}"

    async def scenario() -> None:
        await make(servers, topic)
        async with (
            Producer(servers, transactional_id=f"writes-{topic}") as producer,
            Admin(servers) as admin,
        ):
            await producer.init_transactions()
            async with producer.transaction():
                with pytest.raises(TypeError, match=r"Consumer\.group_metadata\(\)"):
                    await producer.send_offsets_to_transaction({partition: 3}, group)  # type: ignore[arg-type]
                await producer.send_offsets_to_transaction({partition: 3}, GroupMetadata(group))
            # The next one begins when the end of the first is written everywhere.
            async with producer.transaction():
                await producer.send(topic, b"0")
            assert await admin.list_group_offsets([group]) == {
                group: {partition: CommittedOffset(3)}
            }
            assert await admin.alter_group_offsets(group, {partition: 2}) == {partition: None}
            assert (await admin.list_group_offsets([group]))[group][partition].offset == 2

    run(scenario())
