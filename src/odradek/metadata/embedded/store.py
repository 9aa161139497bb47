"""`EmbeddedMetadataStore`: one broker's session on the shared memory of its process.

It asks for changes in the name of its broker, and is told of everybody's. A broker that stands
alone has the memory to itself, on a journal; the brokers of a cluster within one process share
it, and there a session can be lost: `expire` is what the loss of its session is to a broker
that keeps its metadata in ZooKeeper.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import changes
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import Change
from odradek.metadata.embedded import schema
from odradek.metadata.embedded.journal import Statement
from odradek.metadata.embedded.shared import SharedMetadata
from odradek.metadata.image import (
    BrokerRegistration,
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
    with_replicas,
    without_replicas,
)
from odradek.metadata.store import (
    ListenerStage,
    MetadataListener,
    MetadataStore,
    NewPartitions,
    NewTopic,
    OnDone,
    PartitionChange,
)
from odradek.model import EndPoint, TopicPartition

T = TypeVar("T")
_UNREGISTERED: Final = -1


class EmbeddedMetadataStore(MetadataStore):
    """A broker's view of `shared`, published into `cache`."""

    def __init__(self, cache: MetadataCache, shared: SharedMetadata) -> None:
        self.broker_id = _UNREGISTERED
        self._broker_epoch = _UNREGISTERED
        self._cache: Final = cache
        self._shared: Final = shared
        self._listeners: Final[dict[ListenerStage, list[MetadataListener]]] = {
            stage: [] for stage in ListenerStage
        }
        self._session_listeners: Final[list[Callable[[], None]]] = []
        self._closed = False

    def load(self) -> MetadataImage:
        """Publishes what the memory holds; before a controller has elected, nobody leads."""
        delta = self._shared.open(self)
        self._cache.publish(delta)
        return delta.image

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """As of the first `load`."""
        return self._shared.deleted_topics

    def forget_deleted_topics(self) -> None:
        """Forgets those of the first `load`; what has been deleted since stays noted."""
        if self._shared.deleted_topics:
            statement = schema.forget_deleted(self._shared.deleted_topics)
            self._shared.deleted_topics = frozenset()
            self._submit(lambda: Change(None), _ignore, lambda: [statement])

    def close(self) -> None:
        """Ends the session, and with the last one the use of the journal."""
        self._closed = True
        if self._shared.close(self):
            self._end_session()

    def expire(self) -> None:
        """Ends the session as if the broker had fallen silent; it hears of it first."""
        for listener in tuple(self._session_listeners):
            listener()
        self._end_session()

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._listeners[stage].append(listener)

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """See `MetadataStore`."""
        self._session_listeners.append(listener)

    def act(self, stage: ListenerStage, delta: MetadataDelta) -> Collection[TopicPartition]:
        """See `Follower`."""
        unserved: list[TopicPartition] = []
        for listener in tuple(self._listeners[stage]):
            unserved += listener(delta)
        return unserved

    def publish(self, delta: MetadataDelta) -> None:
        """See `Follower`."""
        self._cache.publish(delta)

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins the session; see `MetadataStore`."""

        def prepare() -> Change[BrokerRegistration]:
            live = self._shared.image.brokers.get(broker_id)
            if live is not None and live.epoch != self._broker_epoch:
                raise BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            epoch = self._shared.next_broker_epoch()
            broker = BrokerRegistration(broker_id, tuple(endpoints), rack, epoch)
            self.broker_id, self._broker_epoch = broker_id, epoch
            return changes.register_broker(self._shared.image, broker)

        self._submit(
            prepare,
            on_done,
            lambda: [schema.put_property(schema.BROKER_EPOCH, self._broker_epoch)],
        )

    def sync(self, on_done: OnDone[None]) -> None:
        """Answers when its turn has come."""
        self._submit(lambda: Change(None), on_done)

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Creates topics in one transaction."""
        shared = self._shared
        self._submit_registered(
            lambda: changes.create_topics(shared.image, topics, shared.new_id), on_done
        )

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Deletes topics in one transaction."""
        self._submit_registered(
            lambda: changes.delete_topics(self._shared.image, topic_ids), on_done
        )

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Adds partitions in one transaction."""
        self._submit_registered(
            lambda: changes.create_partitions(self._shared.image, additions), on_done
        )

    def change_partitions(
        self,
        changed: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Changes leaders and in-sync replicas in one transaction."""
        self._submit(
            lambda: changes.change_partitions(self._shared.image, changed, self.broker_id), on_done
        )

    def alter_configs(
        self, altered: Mapping[ConfigResource, Mapping[str, str | None]], on_done: OnDone[None]
    ) -> None:
        """Sets and deletes settings in one transaction."""
        self._submit(lambda: changes.alter_configs(self._shared.image, altered), on_done)

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """Writes all levels down, also those of a new cluster that nobody has changed."""
        self._submit(lambda: changes.update_features(self._shared.image, levels), on_done)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes the next block; ids of a block that was not used up are lost, never reused."""

        self._submit(
            lambda: Change(self._shared.next_producer_ids(count)),
            on_done,
            lambda: [schema.put_property(schema.NEXT_PRODUCER_ID, self._shared.next_producer_id)],
        )

    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as offline, without writing it down."""
        self._publish(partitions, lambda image: without_replicas(image, partitions, broker_id))

    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as online; nothing was ever written of their being offline."""
        self._publish(partitions, lambda image: with_replicas(image, partitions, broker_id))

    def _publish(
        self,
        partitions: Sequence[TopicPartition],
        change: Callable[[MetadataImage], MetadataImage],
    ) -> None:
        """Changes the image only."""

        def prepare() -> Change[None]:
            before = self._shared.image
            after = change(before)
            names = {partition.topic for partition in partitions} & set(after.topics)
            changed = [after.topics[name] for name in names]
            return Change(None, MetadataDelta(before, after, changed=changed))

        self._submit(prepare, _ignore)

    def _end_session(self) -> None:
        """Whoever is in the image under this session's epoch is there no longer."""
        broker_id, epoch = self.broker_id, self._broker_epoch
        self._broker_epoch = _UNREGISTERED
        if epoch != _UNREGISTERED:
            self._shared.submit(
                lambda: True,
                lambda: changes.unregister_broker(self._shared.image, broker_id, epoch),
                _ignore,
            )

    def _submit_registered(self, prepare: Callable[[], Change[T]], on_done: OnDone[T]) -> None:
        """Has the controller do it, which is in the same memory: only a live broker may ask."""

        def prepare_registered() -> Change[T]:
            if self._broker_epoch == _UNREGISTERED:
                raise BrokerError(ErrorCode.NOT_CONTROLLER)
            return prepare()

        self._submit(prepare_registered, on_done)

    def _submit(
        self,
        prepare: Callable[[], Change[T]],
        on_done: OnDone[T],
        also: Callable[[], Sequence[Statement]] = tuple,
    ) -> None:
        self._shared.submit(lambda: not self._closed, prepare, on_done, also)


def _ignore(outcome: object) -> None:
    """For steps that nobody waits for."""
