"""If these fail, a query's lag is not seen, or is that of another one."""

import asyncio
import json
from threading import Semaphore
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.listener import SourceProgress

import odradek
from odradek.client import Admin
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.tables.plan.offsets import PartitionOffsets, with_reader
from pyspark_odradek.progress import (
    Brokers,
    ProgressGroups,
    offsets_behind,
    read_offsets,
    source_metrics,
)


def progress(name: str | None, *ends: str, latest: str | None = None) -> SimpleNamespace:
    sources = [SimpleNamespace(endOffset=end, latestOffset=latest) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="id-1", sources=sources))


async def offsets_of(servers: str, group_id: str) -> dict[TopicPartition, int]:
    async with Admin(servers) as admin:
        committed = (await admin.list_group_offsets([group_id]))[group_id]
    return {part: offset.offset for part, offset in committed.items()}  # type: ignore[union-attr]


def test_what_a_query_has_read_is_its_groups_offsets() -> None:
    with odradek.Broker() as broker:
        broker.create_topic("a", partitions=2, config={})
        broker.create_topic("b", partitions=1, config={})
        listener = ProgressGroups(broker.bootstrap_servers)
        listener.onQueryProgress(progress("q", '{"a":{"0":5,"1":7}}', '{"b":{"0":3}}', "17"))  # type: ignore[arg-type]
        listener.onQueryProgress(progress(None, '{"a":{"0":6,"1":7}}'))  # type: ignore[arg-type]
        listener.onQueryProgress(progress("q", '{"gone":{"0":6}}'))  # type: ignore[arg-type]
        listener.close(60)
        found = asyncio.run(offsets_of(broker.bootstrap_servers, "spark.q"))
        expected = {("a", 0): 5, ("a", 1): 7, ("b", 0): 3}
        assert found == {TopicPartition(*name): offset for name, offset in expected.items()}
        assert asyncio.run(offsets_of(broker.bootstrap_servers, "spark.id-1"))


class Cluster:
    """Brokers that answer when the test says so."""

    def __init__(self, *errors: Exception) -> None:
        self.asked, self.told = Semaphore(0), Semaphore(0)
        self.commits: list[tuple[str, PartitionOffsets]] = []
        self._errors = list(errors)

    def commit(self, _brokers: Brokers, group_id: str, offsets: PartitionOffsets) -> None:
        self.asked.release()
        self.told.acquire()
        self.commits.append((group_id, offsets))
        if self._errors:
            raise self._errors.pop()


def test_spark_does_not_wait_for_a_broker() -> None:
    """All listeners have one thread: a broker that was gone held up each for a minute."""
    cluster = Cluster(BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no answer"))
    listener = ProgressGroups("a:1", commit=cluster.commit)
    listener.onQueryProgress(progress("q", '{"a":{"0":1,"1":1}}'))  # type: ignore[arg-type]
    cluster.asked.acquire()
    for end in (2, 3):
        listener.onQueryProgress(progress("q", f'{{"a":{{"0":{end}}}}}'))  # type: ignore[arg-type]
    listener.onQueryProgress(progress("r", '{"b":{"0":9}}'))  # type: ignore[arg-type]
    # Of what came meanwhile the newest, though what was told first was refused.
    cluster.told.release(3)
    listener.close(60)
    one, other, last = (TopicPartition(*at) for at in (("a", 0), ("a", 1), ("b", 0)))
    expected = [("spark.q", {one: 1, other: 1}), ("spark.q", {one: 3}), ("spark.r", {last: 9})]
    assert cluster.commits == expected


def test_the_end_does_not_wait_for_a_broker() -> None:
    cluster = Cluster()
    listener = ProgressGroups("a:1", commit=cluster.commit)
    listener.onQueryProgress(progress("q", '{"a":{"0":1}}'))  # type: ignore[arg-type]
    # Else the second might be told in its place.
    cluster.asked.acquire()
    listener.onQueryProgress(progress("q", '{"a":{"0":2}}'))  # type: ignore[arg-type]
    listener.close(0)
    listener.onQueryProgress(progress("q", '{"a":{"0":3}}'))  # type: ignore[arg-type]
    cluster.told.release(3)
    listener.close(60)
    assert cluster.commits == [("spark.q", {TopicPartition("a", 0): 1})]


def test_a_source_says_itself_whom_to_tell() -> None:
    """`session()` does not know which brokers its queries will read from."""
    with odradek.Broker() as broker:
        broker.create_topic("a", partitions=1, config={})
        servers = broker.bootstrap_servers

        def tell(name: str | None, group: str | None) -> None:
            latest = {"a": {"0": 9}}
            if group is not None:
                latest = with_reader(latest, servers, group)
            event = progress(name, '{"a":{"0":5}}', latest=json.dumps(latest))
            listener = ProgressGroups()
            listener.onQueryProgress(event)  # type: ignore[arg-type]
            listener.close(60)

        tell("q", "spark.{}")
        tell("q", "etl.{}")
        tell(None, "billing")
        tell(None, "spark.{}")
        tell("connector's", None)
        assert asyncio.run(offsets_of(servers, "spark.q")) == {TopicPartition("a", 0): 5}
        assert sorted(broker.groups()) == ["billing", "etl.q", "spark.q"]


@pytest.mark.parametrize("text", ["", None, "17", "[1]", '{"files": 3}', '{"a": {"x": 1}}', "{"])
def test_sources_without_topics_have_no_offsets(text: str | None) -> None:
    assert read_offsets(text) == {}


def source(end: str | None, latest: str | None) -> SourceProgress:
    return cast(SourceProgress, {"endOffset": end, "latestOffset": latest})


def test_how_far_a_source_is_behind() -> None:
    """As the connector counts; a partition that nothing was read of yet is behind by all it has."""
    told = source('{"a":{"0":5,"1":7},"a:id":{}}', '{"a":{"0":5,"1":9,"2":4},"a:id":{}}')
    expected = {("a", 0): 0, ("a", 1): 2, ("a", 2): 4}
    assert offsets_behind(told) == {TopicPartition(*at): count for at, count in expected.items()}
    assert source_metrics(told) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 2.0,
    }
    for unknown in (source(None, None), source("17", "18"), source('{"a":{"0":5}}', None)):
        assert source_metrics(unknown) == {}
