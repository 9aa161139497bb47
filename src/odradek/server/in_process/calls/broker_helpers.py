"""Calls on the brokers of one program: records in and out, topics and settings.

All of it goes to the floors of the running brokers, on their loop, without a client or a socket.
Records take the way to the log that a client's take, so what a client would be refused is refused
here with the same error. Waits are woken by a fetch that is parked like a client's, and by changes
of the metadata (`changes`). Groups are `group_helpers`', the blocking faces `broker_calls`'.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.clock import Clock
from odradek.controller import (
    AlterOperation,
    ConfigAlteration,
    DeleteTopicResult,
    ResourceResult,
    TopicReference,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, TopicImage
from odradek.model import AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.schedule.listing import Schedule, schedules_in
from odradek.server.awaiting import outcome
from odradek.server.broker import BrokerServer
from odradek.server.coordination.coordinators import TOPIC_CHANGE_TIMEOUT_MS
from odradek.server.in_process.arguments.kinds import (
    pairs_of,
    seconds,
    timestamp_of,
    whole,
    whole_or_none,
)
from odradek.server.in_process.calls.changes import Changes
from odradek.server.in_process.calls.group_helpers import GroupHelpers
from odradek.server.in_process.calls.running_brokers import RunningBrokers
from odradek.server.in_process.calls.topic_reader import NEVER_MS, WITHOUT_LEADER, TopicReader

if TYPE_CHECKING:
    from odradek.tables.arrow import Table
    from odradek.tables.plan.moments import Stretch

Data = bytes | str | dict[str, Any] | list[Any] | None
Headers = Mapping[str, Data] | Sequence[tuple[str, Data]]


class BrokerHelpers:
    """The calls to the brokers of `running`, which the code that starts and stops them keeps up to
    date. All calls are their loop's."""

    def __init__(self, running: Sequence[BrokerServer], clock: Clock) -> None:
        self.brokers: Final = RunningBrokers(running)
        self._changes: Final = Changes()
        self._clock: Final = clock
        self.groups: Final = GroupHelpers(self.brokers, self._changes)

    def on_started(self, server: BrokerServer) -> None:
        """One of the brokers has been started."""
        self._changes.watch(server)

    def on_stopping(self) -> None:
        """The last of them stops: waits end with an error."""
        self._changes.close()

    def pause(self) -> None:
        """See `BrokerCalls.pause`."""
        for server in self.brokers.all:
            server.sockets.pause()

    def resume(self) -> None:
        """See `BrokerCalls.resume`."""
        for server in self.brokers.all:
            server.sockets.resume()

    # --- records --------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        value: Data,
        key: Data,
        headers: Headers,
        timestamp: int | None,
        partition: int | None,
    ) -> tuple[int, int]:
        """See `BrokerCalls.produce`."""
        stamp, to = timestamp_of(timestamp), whole_or_none("partition", partition)
        encoded = [(name, _bytes("header", data)) for name, data in pairs_of("headers", headers)]
        key_bytes, value_bytes = _bytes("key", key), _bytes("value", value)
        builder = RecordBatchBuilder()
        builder.append(self._stamp(stamp), key_bytes, value_bytes, encoded)
        image = await self._topic_to_write(topic)
        index = self._choose(image, key_bytes) if to is None else to
        [offset] = await self._append([(TopicPartition(topic, index), builder)])
        return index, offset

    async def produce_many(
        self, topic: str, records: Iterable[Data | tuple[Data, Data]], partition: int | None
    ) -> list[tuple[int, int]]:
        """See `BrokerCalls.produce_many`."""
        to = whole_or_none("partition", partition)
        if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
            kind = type(records).__name__
            raise TypeError(f"produce_many takes a list of values, and not one of type {kind}")
        pairs = [_key_and_value(each) for each in records]
        image = await self._topic_to_write(topic)
        now_ms = self._stamp(None)
        builders: dict[int, RecordBatchBuilder] = {}
        places: list[tuple[int, int]] = []
        counts: dict[int, int] = {}
        for key, value in pairs:
            index = self._choose(image, key, counts) if to is None else to
            builders.setdefault(index, RecordBatchBuilder()).append(now_ms, key, value, [])
            places.append((index, counts.get(index, 0)))
            counts[index] = counts.get(index, 0) + 1
        batches = [(TopicPartition(topic, each), builder) for each, builder in builders.items()]
        bases = dict(zip(builders, await self._append(batches), strict=True))
        return [(index, bases[index] + place) for index, place in places]

    async def _append(
        self, batches: Sequence[tuple[TopicPartition, RecordBatchBuilder]]
    ) -> list[int]:
        """Appends one batch to each of the partitions; answers their base offsets."""
        return [await self._append_one(where, builder.build()) for where, builder in batches]

    async def _append_one(self, where: TopicPartition, batch: bytes) -> int:
        server = self.brokers.leader(where)
        replicas = server.replicas
        refusal = server.coordinators.schedules.refusal(where, batch)
        if refusal is not None:
            raise refusal
        entries = [(where, memoryview(bytearray(batch)))]

        def append(on_done: Callable[[list[AppendResult] | BrokerError], None]) -> None:
            replicas.append_records(
                [AppendRequest(ACKS_ALL, NEVER_MS, AppendOrigin.CLIENT, entries, on_done)]
            )

        [result] = await outcome(append)
        _check(result.error_code, result.error_message)
        return result.base_offset

    def _stamp(self, timestamp: int | None) -> int:
        return self._clock.wall_ms() if timestamp is None else timestamp

    async def records(
        self, topic: str, partition: int | None, read_committed: bool
    ) -> list[ConsumerRecord]:
        """See `BrokerCalls.records`."""
        index = whole_or_none("partition", partition)
        self.brokers.topic(topic)
        reader = TopicReader(self.brokers, topic, index, read_committed)
        await reader.read_on()
        return reader.records()

    async def schedules(self, topic: str) -> list[Schedule]:
        """See `BrokerCalls.schedules`."""
        found: list[Schedule] = []
        for image in self.brokers.topic(topic).partitions:
            where = TopicPartition(topic, image.partition)
            releasers = self.brokers.leader(where).coordinators.schedules.releasers
            releaser = releasers.get(where)
            if releaser is None:
                raise ValueError(f"{topic} is no schedule topic")
            while releaser.state.position < releaser.log.high_watermark:
                await asyncio.sleep(0)  # it reads its log at its own turns
                if releasers.get(where) is not releaser:
                    raise RuntimeError(f"{where} has changed its leader meanwhile: ask again")
            target = releaser.log.config.schedule_target_topic
            found += schedules_in(where, releaser.state, target)
        return sorted(found, key=lambda each: (each.due_ms, each.partition, each.offset))

    async def to_arrow(
        self,
        topic: str,
        partition: int | None,
        read_committed: bool,
        stretch: "Stretch",
        columns: Sequence[str] | None,
    ) -> "Table":
        """See `BrokerCalls.to_arrow`."""
        from odradek.server.in_process.calls.running_bounds import RunningBounds
        from odradek.tables.columns import check_columns
        from odradek.tables.plan.moments import plan_stretch
        from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection

        self.brokers.topic(topic)
        index = whole_or_none("partition", partition)
        assigned = () if index is None else (TopicPartition(topic, index),)
        selection = TopicSelection((topic,), assignment=assigned)
        options = ReadOptions(selection, ClientOptions(), fail_without_match=False)
        plan = plan_stretch(RunningBounds(self.brokers, read_committed), options, stretch)
        reader = TopicReader(self.brokers, topic, index, read_committed)
        return await reader.arrow_table(plan.ranges, check_columns(columns))

    async def wait_for(
        self, topic: str, count: int, timeout_s: float, read_committed: bool
    ) -> list[ConsumerRecord]:
        """See `BrokerCalls.wait_for`."""
        count, limit_s = whole("n", count), seconds(timeout_s)
        reader = TopicReader(self.brokers, topic, None, read_committed)
        before = self.end_offsets()

        async def look() -> list[ConsumerRecord] | None:
            await reader.read_what_is_led()
            return reader.records() if reader.count >= count else None

        try:
            async with asyncio.timeout(limit_s):
                return await self._changes.look_until(look, reader.park)
        except TimeoutError:
            # It may have been reading when the time was over, or have had none.
            if (found := await look()) is not None:
                return found
            if self.brokers.find(topic) is None:
                there = self.brokers.no_topic(topic)
            else:
                there = f"{topic} has {reader.count} of {count} records{reader.unread_in_words}"
            grown = self._growth_in_words(topic, before)
            raise TimeoutError(f"{there} after {limit_s:g} s{grown}") from None

    def _growth_in_words(self, awaited: str, before: Mapping[TopicPartition, int]) -> str:
        """Which other topics have grown meanwhile: records may have gone there instead."""
        growth: dict[str, int] = {}
        for where, end in self.end_offsets().items():
            grown = end - before.get(where, 0)
            if where.topic != awaited and grown > 0:
                growth[where.topic] = growth.get(where.topic, 0) + grown
        if not growth:
            return ""
        return "; meanwhile " + ", ".join(
            f"{topic} has grown by {records}" for topic, records in growth.items()
        )

    async def _topic_to_write(self, name: str) -> TopicImage:
        """The topic, which comes into being as for a client that asks for its metadata."""
        creates = self.brokers.controller.config.auto_create_topics_enable
        if self.brokers.find(name) is None and creates:
            await self.brokers.auto_create(name)
        return self.brokers.topic(name)

    def _choose(self, topic: TopicImage, key: bytes | None, coming: Mapping[int, int] = {}) -> int:
        """By the key as every client does; without one the partition that has had the least.

        `coming` counts what is about to be appended.
        """
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        return min(
            range(len(topic.partitions)),
            key=lambda index: self._end(TopicPartition(topic.name, index)) + coming.get(index, 0),
        )

    def _end(self, where: TopicPartition) -> int:
        return self.brokers.leader(where).replicas.partition(where).leader_log().log_end_offset

    # --- topics ---------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """See `BrokerCalls.topics`."""
        topics = self.brokers.image.topics
        return {
            name: len(topic.partitions)
            for name, topic in sorted(topics.items())
            if not topic.is_internal
        }

    def end_offsets(self) -> dict[TopicPartition, int]:
        """The end offset of every partition with a leader, without Kafka's internal topics."""
        ends = {
            where: self._end_if_led(where)
            for topic, count in self.topics().items()
            for where in (TopicPartition(topic, index) for index in range(count))
        }
        return {where: end for where, end in ends.items() if end is not None}

    def _end_if_led(self, where: TopicPartition) -> int | None:
        try:
            return self._end(where)
        except BrokerError as error:
            if error.code not in WITHOUT_LEADER:
                raise
            return None

    async def delete_topic(self, name: str) -> None:
        """See `BrokerCalls.delete_topic`."""
        self.brokers.topic(name)
        controller = self.brokers.controller.controller
        results: list[DeleteTopicResult] = await outcome(
            lambda on_done: controller.delete_topics(
                [TopicReference(name)], TOPIC_CHANGE_TIMEOUT_MS, on_done
            )
        )
        _check(results[0].error_code, results[0].message)

    async def configure(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """See `BrokerCalls.configure`."""
        self.brokers.topic(topic)
        steps = [
            ConfigAlteration(
                name, AlterOperation.DELETE if text is None else AlterOperation.SET, text
            )
            for name, text in settings.items()
        ]
        resource = ConfigResource.topic(topic)
        controller = self.brokers.controller.controller
        results: list[ResourceResult] = await outcome(
            lambda on_done: controller.incremental_alter_configs([(resource, steps)], on_done)
        )
        _check(results[0].error_code, results[0].message)


def _key_and_value(record: Data | tuple[Data, Data]) -> tuple[bytes | None, bytes | None]:
    if not isinstance(record, tuple):
        return None, _bytes("value", record)
    if len(record) != 2:
        raise TypeError(f"a record is a value, or a pair of key and value, and not {len(record)}")
    return _bytes("key", record[0]), _bytes("value", record[1])


def _bytes(what: str, data: Data) -> bytes | None:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, dict | list):
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    if data is None or isinstance(data, bytes):
        return data
    raise TypeError(
        f"a {what} is bytes, str, None, or a dict or list for JSON, not {type(data).__name__}"
    )


def _check(code: ErrorCode, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(code, message or "")
