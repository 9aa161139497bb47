"""If these fail, a query's lag is not seen, or is that of another one."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.listener import SourceProgress

import odradek
from odradek.client import Admin
from odradek.model import TopicPartition
from pyspark_odradek.progress import ProgressGroups, offsets_behind, read_offsets, source_metrics


def progress(name: str | None, *ends: str) -> SimpleNamespace:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
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
        found = asyncio.run(offsets_of(broker.bootstrap_servers, "spark.q"))
        expected = {("a", 0): 5, ("a", 1): 7, ("b", 0): 3}
        assert found == {TopicPartition(*name): offset for name, offset in expected.items()}
        listener.onQueryProgress(progress(None, '{"a":{"0":6,"1":7}}'))  # type: ignore[arg-type]
        assert asyncio.run(offsets_of(broker.bootstrap_servers, "spark.id-1"))
        listener.onQueryProgress(progress("q", '{"gone":{"0":6}}'))  # type: ignore[arg-type]


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
