"""What a test asks of an `odradek.Broker`: records in and out, topics, groups, lag.

All of it goes to the floors of the running broker, on its loop, without a client or a socket.
Records take the way to the log that a client's take, so what a client would be refused is
refused here with the same error. Who waits is woken by a fetch that is parked as a client's is,
and by changes of the metadata. Life and the blocking faces are `in_process`'s.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.client.core.fetched import ConsumerRecord, FetchedChunk
from odradek.client.core.partitioner import partition_for_key
from odradek.clock import Clock
from odradek.controller import (
    AlterOperation,
    ConfigAlteration,
    CreateTopicResult,
    DeleteTopicResult,
    ResourceResult,
    TopicReference,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataDelta, ResourceType, TopicImage
from odradek.metadata.store import ListenerStage
from odradek.model import GROUP_METADATA_TOPIC, AppendOrigin, TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.replication.append import ACKS_ALL, AppendRequest, AppendResult
from odradek.replication.delayed_fetch import DelayedFetch
from odradek.replication.fetch import CONSUMER_REPLICA_ID, FetchInfo, FetchParams
from odradek.server.broker import CREATE_TOPIC_TIMEOUT_MS, BrokerServer, outcome

Data = bytes | str | None
Headers = Mapping[str, Data] | Sequence[tuple[str, Data]]

READ_BYTES: Final = 1 << 20
NEVER_MS: Final = 2**31 - 1


class BrokerHelpers:
    """The questions to one running broker. All calls are its loop's."""

    def __init__(self, server: BrokerServer, clock: Clock) -> None:
        self._server: Final = server
        self._clock: Final = clock
        self._changes: Final[set[asyncio.Future[None]]] = set()
        server.store.subscribe(ListenerStage.CONTROLLER, self._on_metadata)

    def close(self) -> None:
        """The broker stops: whoever waits is told."""
        for change in tuple(self._changes):
            if not change.done():
                change.set_exception(RuntimeError("the broker was stopped meanwhile"))

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
        """See `Broker.produce`."""
        batch = _one_record(
            _bytes("key", key),
            _bytes("value", value),
            headers,
            self._clock.wall_ms() if timestamp is None else timestamp,
        )
        image = await self._topic_to_write(topic)
        index = self._choose(image, _bytes("key", key)) if partition is None else partition
        entries = [(TopicPartition(topic, index), memoryview(batch))]

        def append(on_done: Callable[[list[AppendResult] | BrokerError], None]) -> None:
            self._server.replicas.append_records(
                [AppendRequest(ACKS_ALL, NEVER_MS, AppendOrigin.CLIENT, entries, on_done)]
            )

        results = await outcome(append)
        _check(results[0].error_code, results[0].error_message)
        return index, results[0].base_offset

    async def records(
        self, topic: str, partition: int | None, read_committed: bool
    ) -> list[ConsumerRecord]:
        """See `Broker.records`."""
        self._topic(topic)
        reader = TopicReader(self._server, topic, partition, read_committed)
        await reader.read_on()
        return reader.records()

    async def wait_for(
        self, topic: str, count: int, timeout_s: float, read_committed: bool
    ) -> list[ConsumerRecord]:
        """See `Broker.wait_for`."""
        reader = TopicReader(self._server, topic, None, read_committed)
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._has(reader, count):
                    pass
        except TimeoutError:
            raise TimeoutError(
                f"{topic} has {reader.count} of {count} records after {timeout_s:g} s"
            ) from None
        return reader.records()

    async def _has(self, reader: "TopicReader", count: int) -> bool:
        """Whether there are as many; if not, this returns when something has changed."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Before the look, so that no change goes by between the two.
        self._changes.add(change)
        fetch: DelayedFetch | None = None
        try:
            await reader.read_on()
            if reader.count >= count:
                return True
            fetch = reader.park(lambda: _wake(change))
            await change
            return False
        finally:
            self._changes.discard(change)
            if fetch is not None:
                fetch.abandon()

    def _on_metadata(self, _delta: MetadataDelta) -> tuple[()]:
        for change in tuple(self._changes):
            _wake(change)
        return ()

    async def _topic_to_write(self, name: str) -> TopicImage:
        """The topic, which comes into being as for a client that asks for its metadata."""
        found = self._server.metadata.image.topic(name)
        if found is None and self._server.config.auto_create_topics_enable:
            controller = self._server.controller

            def create(on_done: Callable[[list[CreateTopicResult] | BrokerError], None]) -> None:
                controller.auto_create_topics([name], CREATE_TOPIC_TIMEOUT_MS, on_done)

            result = (await outcome(create))[0]
            if result.error_code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                _check(result.error_code, result.message)
        return self._topic(name)

    def _choose(self, topic: TopicImage, key: bytes | None) -> int:
        """By the key as every client does; without one the partition that has had the least."""
        if key is not None:
            return partition_for_key(key, len(topic.partitions))
        return min(
            range(len(topic.partitions)),
            key=lambda index: (
                self._server.replicas.partition(TopicPartition(topic.name, index))
                .leader_log()
                .log_end_offset
            ),
        )

    # --- topics ---------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """See `Broker.topics`."""
        topics = self._server.metadata.image.topics
        return {
            name: len(topic.partitions)
            for name, topic in sorted(topics.items())
            if not topic.is_internal
        }

    async def delete_topic(self, name: str) -> None:
        """See `Broker.delete_topic`."""
        results: list[DeleteTopicResult] = await outcome(
            lambda on_done: self._server.controller.delete_topics([TopicReference(name)], on_done)
        )
        _check(results[0].error_code, results[0].message)

    async def configure(self, topic: str, settings: Mapping[str, str | None]) -> None:
        """See `Broker.configure`."""
        steps = [
            ConfigAlteration(
                name, AlterOperation.DELETE if text is None else AlterOperation.SET, text
            )
            for name, text in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic)
        results: list[ResourceResult] = await outcome(
            lambda on_done: self._server.controller.incremental_alter_configs(
                [(resource, steps)], on_done
            )
        )
        _check(results[0].error_code, results[0].message)

    def _topic(self, name: str) -> TopicImage:
        topic = self._server.metadata.image.topic(name)
        if topic is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic called {name!r}"
            )
        return topic

    # --- groups ---------------------------------------------------------------------------------

    def groups(self) -> dict[str, str]:
        """See `Broker.groups`."""
        listed = self._server.groups.coordinator.list_groups((), ())
        return {group.group_id: group.state for group in sorted(listed)}

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """See `Broker.lag`."""
        if self._server.metadata.image.topic(GROUP_METADATA_TOPIC) is None:
            raise _no_group(group)
        offsets = self._server.groups.coordinator.fetch_offsets(group, None, -1).committed
        if not offsets and group not in self.groups():
            raise _no_group(group)
        return {
            TopicPartition(topic, index): self._end(TopicPartition(topic, index)) - found.offset
            for topic, partitions in sorted(offsets.items())
            if self._server.metadata.image.topic(topic) is not None
            for index, found in sorted(partitions.items())
        }

    def _end(self, topic_partition: TopicPartition) -> int:
        return self._server.replicas.partition(topic_partition).leader_log().high_watermark


class TopicReader:
    """Reads a topic on and on, and keeps what it has read."""

    def __init__(
        self, server: BrokerServer, topic: str, partition: int | None, read_committed: bool
    ) -> None:
        self._server = server
        self._topic = topic
        self._partition = partition
        self._params = FetchParams(CONSUMER_REPLICA_ID, NEVER_MS, 1, READ_BYTES, read_committed)
        self._positions: dict[int, int] = {}
        self._records: list[ConsumerRecord] = []

    @property
    def count(self) -> int:
        """How many records it has read."""
        return len(self._records)

    def records(self) -> list[ConsumerRecord]:
        """What it has read, by partition and offset."""
        return sorted(self._records, key=lambda record: (record.partition, record.offset))

    async def read_on(self) -> None:
        """Reads every partition that there is to its end.

        Raises:
            BrokerError: a partition cannot be read.
        """
        for index in self._indexes():
            while self._read_chunk(index):
                await asyncio.sleep(0)  # others are served between two chunks

    def park(self, wake: Callable[[], None]) -> DelayedFetch | None:
        """Calls `wake` when there is more to read; returns the wait, unless there is already."""
        infos = [
            FetchInfo(TopicPartition(self._topic, index), position, READ_BYTES)
            for index, position in self._positions.items()
        ]
        if not infos:
            return None
        return self._server.replicas.fetch_messages(self._params, infos, lambda _results: wake())

    def _indexes(self) -> Sequence[int]:
        if self._partition is not None:
            return (self._partition,)
        topic = self._server.metadata.image.topic(self._topic)
        return () if topic is None else range(len(topic.partitions))

    def _read_chunk(self, index: int) -> bool:
        """Reads what comes next in a partition; whether there was anything."""
        where = TopicPartition(self._topic, index)
        start = self._server.replicas.partition(where).leader_log().log_start_offset
        position = max(self._positions.get(index, start), start)
        self._positions[index] = position
        info = FetchInfo(where, position, READ_BYTES)
        result = self._server.replicas.read(self._params, [info])[0]
        _check(result.error_code, f"{where} at offset {position}: {result.error_code.text}")
        chunk = FetchedChunk(where, position, memoryview(b"".join(result.records)), result.aborted)
        while taken := chunk.take(1000, None, None):
            self._records += taken
        self._positions[index] = chunk.position
        return chunk.position > position


def _one_record(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
) -> bytearray:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    builder = RecordBatchBuilder()
    builder.append(timestamp, key, value, [(name, _bytes("header", data)) for name, data in pairs])
    return bytearray(builder.build())


def _bytes(what: str, data: Data) -> bytes | None:
    if isinstance(data, str):
        return data.encode()
    if data is None or isinstance(data, bytes):
        return data
    raise TypeError(f"a {what} is bytes, str or None, not {type(data).__name__}")


def _wake(change: "asyncio.Future[None]") -> None:
    if not change.done():
        change.set_result(None)


def _check(code: ErrorCode, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise BrokerError(code, message or "")


def _no_group(group: str) -> BrokerError:
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group called {group!r}")
