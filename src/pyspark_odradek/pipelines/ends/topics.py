"""Topics that pipelines write to.

They are created before they are written to: if a producer's first record creates a topic, the next
record may overtake it.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from odradek.client import Admin
from odradek.client.core.admin_types import ConfigChange, ConfigEntry, ConfigResource, NewTopic
from odradek.client.errors import KafkaError
from odradek.clock import SystemClock
from odradek.errors import ErrorCode
from pyspark_odradek.pipelines.running.settings import PipelineError

LIMIT: Final = "max.message.bytes"
# The settings that bound a batch: a segment takes whole ones.
BOUNDS: Final = (LIMIT, "segment.bytes")
# How far a record's time may be from now, before and after: archived records are older every day.
BOUNDS_OF_TIME: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
# The same in one setting, which Kafka 4 has no longer.
_EITHER_BOUND: Final = "message.timestamp.difference.max.ms"
NO_BOUND: Final = str((1 << 63) - 1)
# How long it may take until the last record is written.
_DAY_MS: Final = 86_400_000


def create_topic(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int = 1,
    settings: Mapping[str, str] | None = None,
    *,
    may_be_there: bool = False,
) -> bool:
    """Creates a topic that keeps all records, with their old times, and has these settings; False
    if it exists and may exist.

    Raises:
        PipelineError: it cannot be created, or exists and may not.
    """
    # Old times must not make records too old at once, nor a broker's defaults remove them.
    kept = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }
    config = {"cleanup.policy": "delete", **(settings or {}), **kept}
    return asyncio.run(_create(brokers, topic, partitions, config, may_be_there))


async def _create(
    brokers: Mapping[str, object],
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    may_be_there: bool,
) -> bool:
    async with Admin(brokers) as admin:
        created = await admin.create_topics([NewTopic(topic, partitions, config=config)])
        outcome = created[topic]
        if not isinstance(outcome, KafkaError):
            return True
        if not may_be_there or outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise PipelineError(f"{topic} could not be created: {outcome}")
        return False


def raise_limit(brokers: Mapping[str, object], topic: str, limit: int) -> None:
    """Raises the limits of a topic and its segments for batches of a size, if they are lower.

    Raises:
        PipelineError: the limit cannot be read, or not be changed.
    """
    asyncio.run(_raise_limit(brokers, topic, limit))


def admit_times(brokers: Mapping[str, object], topic: str, oldest_ms: int, newest_ms: int) -> None:
    """Lifts a topic's bounds on the times of records, if they exclude these.

    Raises:
        PipelineError: the bounds cannot be read, or not be changed.
    """
    now_ms = SystemClock().wall_ms()
    before_ms, after_ms = now_ms + _DAY_MS - oldest_ms, newest_ms - now_ms
    distances = dict(zip(BOUNDS_OF_TIME, (before_ms, after_ms), strict=True))
    distances[_EITHER_BOUND] = max(before_ms, after_ms)
    asyncio.run(_admit(brokers, topic, distances))


def take_up_to(brokers: Mapping[str, object], topic: str, limit: int) -> int:
    """Raises a topic's limit as `raise_limit`, for records without keys, and returns the limit that
    holds then: changing it may be forbidden.

    Raises:
        PipelineError: its settings cannot be read, or it would lose records.
    """
    return asyncio.run(_take_up_to(brokers, topic, limit))


def setting_of(brokers: Mapping[str, object], topic: str, name: str) -> str | None:
    """Returns the value of a topic's setting, its own or its broker's.

    Raises:
        PipelineError: it cannot be read.
    """
    return asyncio.run(_setting_of(brokers, topic, name))


async def _setting_of(brokers: Mapping[str, object], topic: str, name: str) -> str | None:
    async with Admin(brokers) as admin:
        return (await _settings_of(admin, topic))[name].value


async def _raise_limit(brokers: Mapping[str, object], topic: str, limit: int) -> None:
    async with Admin(brokers) as admin:
        refused = await _raised(admin, topic, await _settings_of(admin, topic), limit)
    if refused is not None:
        raise PipelineError(f"{topic} could not be given {' and '.join(BOUNDS)}: {refused}")


async def _admit(brokers: Mapping[str, object], topic: str, distances: Mapping[str, int]) -> None:
    async with Admin(brokers) as admin:
        settings = await _settings_of(admin, topic)
        near = [name for name, ms in distances.items() if ms > _bound_of_time(settings, name)]
        refused = await _change(admin, topic, dict.fromkeys(near, NO_BOUND))
    if refused is not None:
        raise PipelineError(
            f"{topic} takes no records of these times ({' and '.join(near)}), and this could not "
            f"be changed: {refused}"
        )


async def _take_up_to(brokers: Mapping[str, object], topic: str, limit: int) -> int:
    async with Admin(brokers) as admin:
        settings = await _settings_of(admin, topic)
        if "compact" in str(settings["cleanup.policy"].value):
            raise PipelineError(f"{topic} is compacted: it takes no record without a key")
        refused = await _raised(admin, topic, settings, limit)
    taken = _limit_of(settings)
    return max(taken, limit) if refused is None else taken


async def _settings_of(admin: Admin, topic: str) -> Mapping[str, ConfigEntry]:
    resource = ConfigResource.topic(topic)
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise PipelineError(f"the settings of {topic} could not be asked: {found}")
    return found


async def _raised(
    admin: Admin, topic: str, settings: Mapping[str, ConfigEntry], limit: int
) -> KafkaError | None:
    """Raises settings that are lower; returns the reason if that is refused."""
    low = [name for name in BOUNDS if _bound(settings, name) < limit]
    return await _change(admin, topic, dict.fromkeys(low, str(limit)))


async def _change(admin: Admin, topic: str, values: Mapping[str, str]) -> KafkaError | None:
    if not values:
        return None
    resource = ConfigResource.topic(topic)
    changes = [ConfigChange(name, value) for name, value in values.items()]
    return (await admin.alter_configs({resource: changes}))[resource]


def _limit_of(settings: Mapping[str, ConfigEntry]) -> int:
    """Returns the size of the largest batch that a topic takes."""
    return min(_bound(settings, name) for name in BOUNDS)


def _bound(settings: Mapping[str, ConfigEntry], name: str) -> int:
    return int(settings[name].value or 0)


def _bound_of_time(settings: Mapping[str, ConfigEntry], name: str) -> int:
    return int((settings[name].value if name in settings else None) or NO_BOUND)
