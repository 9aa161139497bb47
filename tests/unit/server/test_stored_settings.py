"""A durable broker starts over whatever settings its metadata holds."""

import asyncio
from pathlib import Path
from typing import Any

from odradek.clock import SystemClock
from odradek.config import BrokerConfig
from odradek.controller import AlterOperation, ConfigAlteration, CreatableTopic
from odradek.metadata import ConfigResource
from odradek.model import ConfigResourceType, TopicPartition
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.making import create_topic

TOPIC = ConfigResource.topic("t")
ALL_BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
OF_ANOTHER_VERSION = {"message.downconversion.enable": "true", "segment.bytes": "many"}


async def alter(broker: BrokerServer, resource: ConfigResource, name: str, value: str) -> Any:
    steps = [ConfigAlteration(name, AlterOperation.SET, value)]
    results: list[Any] = await outcome(
        lambda done: broker.controller.incremental_alter_configs([(resource, steps)], done)
    )
    return results[0].error_code


def test_settings_that_contradict_each_other_or_are_unknown_keep_no_broker_down(
    tmp_path: Path,
) -> None:
    """Two legal changes wedged the broker, and then it did not start any more; throttles were off
    after every start."""
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "1",
    }

    async def main() -> None:
        broker = BrokerServer(BrokerConfig(settings), SystemClock())
        await broker.start()
        throttled = {"leader.replication.throttled.replicas": " *"}
        await create_topic(broker, CreatableTopic("t", 1, configs=throttled))
        assert not await alter(broker, TOPIC, "max.compaction.lag.ms", "1000")
        lag = "log.cleaner.min.compaction.lag.ms"
        assert not await alter(broker, ALL_BROKERS, lag, "5000")
        stored = {TOPIC: OF_ANOTHER_VERSION, ALL_BROKERS: {"log.retention.ms": "x"}}
        assert await outcome(lambda done: broker.store.alter_configs(stored, done)) is None
        await broker.stop()

        again = BrokerServer(BrokerConfig(settings), SystemClock())
        await again.start()
        (log,) = again.logs.logs()
        assert log.config.min_compaction_lag_ms == 5000
        assert log.config.max_compaction_lag_ms == 1000
        assert log.config.segment_bytes == 1 << 30
        assert again.replicas.partitions._quota.is_throttled(TopicPartition("t", 0))
        await create_topic(again, CreatableTopic("another", 1))
        await again.stop()

    asyncio.run(main())
