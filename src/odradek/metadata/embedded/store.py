"""`EmbeddedMetadataStore`: the rules of one node's metadata over a journal.

Operations wait in a queue and take their turn one by one: each is worked out on the image
that its predecessor left (`changes`), written by the journal off the event loop, handed to
the listeners, published, and answered. Without a journal the same happens at once and in
memory: creating a topic costs no hop between threads. A step that starts another from its
callback does not nest; the other waits its turn.
"""

import base64
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.background import Background
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.embedded import changes, schema
from odradek.metadata.embedded.changes import Change
from odradek.metadata.embedded.journal import Journal, StoredMetadata
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_replica,
    without_replica,
)
from odradek.metadata.store import (
    MetadataStore,
    NewPartitions,
    NewTopic,
    OnDone,
    PartitionChange,
)
from odradek.model import NO_LEADER, EndPoint, TopicPartition

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_EMPTY: Final = StoredMetadata("", 0, 0, (), {})


class EmbeddedMetadataStore(MetadataStore):
    """Metadata of a broker that stands alone; ephemeral without a `journal`.

    `random_bytes(n)` supplies the randomness of topic ids and of the cluster id.
    """

    def __init__(
        self,
        cache: MetadataCache,
        background: Background,
        random_bytes: Callable[[int], bytes],
        journal: Journal | None = None,
    ) -> None:
        self._cache: Final = cache
        self._background: Final = background
        self._random_bytes: Final = random_bytes
        self._journal: Final = journal
        self._image = cache.image
        self._broker_epoch = 0
        self._next_producer_id = 0
        self._deleted_topics: frozenset[UUID] = frozenset()
        self._listeners: Final[list[Callable[[MetadataDelta], None]]] = []
        self._queue: Final[deque[Callable[[], None]]] = deque()
        self._busy = False
        self._draining = False
        self._closed = False

    def load(self) -> MetadataImage:
        """Reads the journal, names the cluster when it is new, and publishes the image.

        No broker lives yet, so no partition has a leader until one registers.
        """
        stored = self._journal.read() if self._journal is not None else _EMPTY
        self._broker_epoch = stored.broker_epoch
        self._next_producer_id = stored.next_producer_id
        self._deleted_topics = stored.deleted_topics
        image = MetadataImage(stored.cluster_id or self._name_cluster())
        topics = [_leaderless(topic) for topic in stored.topics]
        loaded = image.with_topics(topics).with_configs(stored.configs)
        self._image = loaded
        self._cache.publish(MetadataDelta(image, loaded, added=topics, configs=stored.configs))
        return loaded

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """As of the last `load`."""
        return self._deleted_topics

    def forget_deleted_topics(self) -> None:
        """Forgets those of the last `load`; what has been deleted since stays noted."""
        if self._deleted_topics:
            statement = schema.forget_deleted(self._deleted_topics)
            self._deleted_topics = frozenset()
            self._submit(lambda: Change(None, [statement]), _ignore)

    def close(self) -> None:
        """Lets go of the journal, after the step that is being written."""
        self._closed = True
        self._drain()
        if not self._busy:
            self._close_journal()

    def subscribe(self, listener: Callable[[MetadataDelta], None]) -> None:
        """Calls `listener` with every committed change, in the order of subscription."""
        self._listeners.append(listener)

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Makes the broker the live one, the controller, and leader where it is in sync."""

        def prepare() -> Change[BrokerRegistration]:
            self._broker_epoch += 1
            broker = BrokerRegistration(broker_id, tuple(endpoints), rack, self._broker_epoch)
            return changes.register_broker(self._image, broker)

        self._submit(prepare, on_done)

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Creates topics in one transaction."""
        self._submit(lambda: changes.create_topics(self._image, topics, self._new_id), on_done)

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Deletes topics in one transaction."""
        self._submit(lambda: changes.delete_topics(self._image, topic_ids), on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Adds partitions in one transaction."""
        self._submit(lambda: changes.create_partitions(self._image, additions), on_done)

    def change_partitions(
        self,
        changed: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Changes leaders and in-sync replicas in one transaction."""
        self._submit(lambda: changes.change_partitions(self._image, changed), on_done)

    def alter_configs(
        self, altered: Mapping[ConfigResource, Mapping[str, str | None]], on_done: OnDone[None]
    ) -> None:
        """Sets and deletes settings in one transaction."""
        self._submit(lambda: changes.alter_configs(self._image, altered), on_done)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes the next block; ids of a block that was not used up are lost, never reused."""

        def prepare() -> Change[range]:
            first = self._next_producer_id
            self._next_producer_id += count
            statement = schema.put_property(schema.NEXT_PRODUCER_ID, self._next_producer_id)
            return Change(range(first, first + count), [statement])

        self._submit(prepare, on_done)

    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as offline, without writing it down."""
        self._publish(partitions, lambda image: without_replica(image, partitions, broker_id))

    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as online; nothing was ever written of their being offline."""
        self._publish(partitions, lambda image: with_replica(image, partitions, broker_id))

    def _publish(
        self,
        partitions: Sequence[TopicPartition],
        change: Callable[[MetadataImage], MetadataImage],
    ) -> None:
        """Changes the image only."""

        def prepare() -> Change[None]:
            after = change(self._image)
            names = {partition.topic for partition in partitions} & set(after.topics)
            changed = [after.topics[name] for name in names]
            return Change(None, (), MetadataDelta(self._image, after, changed=changed))

        self._submit(prepare, _ignore)

    def _submit(self, prepare: Callable[[], Change[T]], on_done: OnDone[T]) -> None:
        self._queue.append(partial(self._begin, prepare, on_done))
        self._drain()

    def _drain(self) -> None:
        """Begins waiting steps until one has to wait for the journal."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue and not self._busy:
                self._queue.popleft()()
        finally:
            self._draining = False

    def _begin(self, prepare: Callable[[], Change[T]], on_done: OnDone[T]) -> None:
        if self._closed:
            on_done(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping."))
            return
        change = prepare()
        if self._journal is None or not change.statements:
            self._finish(change, on_done)
            return
        self._busy = True
        self._background.submit(
            partial(self._journal.write, change.statements),
            lambda _: self._on_written(change, on_done),
            lambda error: self._on_failed(error, on_done),
        )

    def _on_written(self, change: Change[T], on_done: OnDone[T]) -> None:
        self._busy = False
        self._finish(change, on_done)
        self._after_step()

    def _on_failed(self, error: BaseException, on_done: OnDone[T]) -> None:
        self._busy = False
        _LOG.error("metadata could not be written: %s", error)
        on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"Metadata was not written: {error}"))
        self._after_step()

    def _after_step(self) -> None:
        self._drain()
        if self._closed:
            self._close_journal()

    def _finish(self, change: Change[T], on_done: OnDone[T]) -> None:
        """Listeners first, clients after them, and then the one who asked."""
        delta = change.delta
        if delta is not None:
            self._image = delta.image
            for listener in tuple(self._listeners):
                listener(delta)
            self._image = delta.image
            self._cache.publish(delta)
        on_done(change.result)

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _name_cluster(self) -> str:
        cluster_id = _encoded(self._new_id())
        if self._journal is not None:
            self._journal.write([schema.put_property(schema.CLUSTER_ID, cluster_id)])
        return cluster_id

    def _new_id(self) -> UUID:
        """A random id that is neither reserved nor taken, nor prints with a leading dash,
        which command lines would read as an option."""
        while True:
            candidate = UUID(bytes=self._random_bytes(16), version=4)
            taken = self._image.topic_by_id(candidate) is not None
            if not taken and not _encoded(candidate).startswith("-"):
                return candidate


def _encoded(id: UUID) -> str:
    """The id as Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(id.bytes).decode().rstrip("=")


def _leaderless(topic: TopicImage) -> TopicImage:
    return topic._replace(
        partitions=tuple(
            partition._replace(leader=NO_LEADER, offline=partition.replicas)
            for partition in topic.partitions
        )
    )


def _ignore(outcome: object) -> None:
    """For steps that nobody waits for."""
