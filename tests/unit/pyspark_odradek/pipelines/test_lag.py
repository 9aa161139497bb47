"""If these fail, a group's lag in time is told of records that its readers never get."""

import asyncio
from dataclasses import replace
from typing import cast

from pyspark.sql import SparkSession

import odradek
from odradek.client import ConfigChange, ConfigResource, Producer
from odradek.client.sync import Admin, ShareConsumer
from odradek.model import TopicPartition
from odradek.tables.plan.ranges import OffsetRange
from pyspark_odradek.pipelines import PIPELINES, PipelineSettings
from pyspark_odradek.pipelines.bookkeeping import described
from pyspark_odradek.pipelines.lag import first_times_of

NO_SPARK = cast(SparkSession, None)
TAKEN_BACK_MS, COMMITTED_MS = 1_700_000_000_000, 1_700_000_360_000


async def fill(servers: str) -> None:
    async with Producer({"bootstrap.servers": servers, "transactional.id": "orders"}) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send_and_wait("orders", b"taken back", timestamp_ms=TAKEN_BACK_MS)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("orders", b"committed", timestamp_ms=COMMITTED_MS)


def test_the_first_record_that_waits_is_none_that_was_taken_back() -> None:
    """A group was six minutes behind for a record that nobody reads."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=1, config={"retention.ms": "-1"})
        asyncio.run(fill(broker.bootstrap_servers))
        waiting = OffsetRange(TopicPartition("orders", 0), 0, 4)
        settings = PipelineSettings(broker.bootstrap_servers, "orders")
        everything = replace(settings, isolation_level="read_uncommitted")
        found = [first_times_of(NO_SPARK, each, [waiting]) for each in (settings, everything)]
    assert found == [{waiting: COMMITTED_MS}, {waiting: TAKEN_BACK_MS}]


def test_a_share_group_has_no_offsets() -> None:
    """With one in the cluster no topic could be archived, nor the lag of any group told."""
    with odradek.Broker() as broker:
        broker.create_topic("jobs", partitions=1)
        servers = broker.bootstrap_servers
        settings = PipelineSettings(servers, "jobs")
        described.commit(settings.brokers, "jobs", {"billing": {0: 0}})
        with Admin(servers) as admin:
            early = ConfigChange("share.auto.offset.reset", "earliest")
            admin.alter_configs({ConfigResource.group("workers"): [early]})
        broker.produce("jobs", b"x")
        with ShareConsumer(servers, group_id="workers", topics=["jobs"]) as consumer:
            next(consumer)
            assert described.committed(settings.brokers, "jobs") == {"billing": {0: 0}}
            assert described.committed(settings.brokers, "jobs", ["workers"]) == {}


def test_every_pipeline_that_reads_a_topic_can_be_told_to_read_all_of_it() -> None:
    """`lag` had no flag for what its groups read who do not ask for what is committed."""
    without = {row.name for row in PIPELINES if "isolation_level" not in row.takes}
    # Dead letters are read in one way, and an archive as it was written.
    assert without == {"audit", "compact", "redrive", "restore"}
