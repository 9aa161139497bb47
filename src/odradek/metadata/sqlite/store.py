"""`EmbeddedMetadataStore`: one broker's session on the shared memory of its process.

It requests changes for its broker, and receives all brokers' changes. A single broker has the
memory to itself, on a journal; the brokers of a cluster within one process share it, and there a
session can be lost: `expire` has the effect of a lost session in ZooKeeper.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.acl import AclBinding
from odradek.background import note_refusal
from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import changes
from odradek.metadata.acl_changes import alter_acls
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import Change
from odradek.metadata.engine import Defer, Plan
from odradek.metadata.fail_stop import OnBroken, fail
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
from odradek.metadata.quota_changes import alter_client_quotas
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.journal import Statement
from odradek.metadata.sqlite.shared import UNREGISTERED, SharedMetadata
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


class EmbeddedMetadataStore(MetadataStore):
    """A broker's view of `shared`, published into `cache`; `on_broken` ends the broker when its
    code raises. The other brokers of the process continue. With `defer` listeners act in slices on
    the changes that this broker requests, one slice at each turn of the loop."""

    def __init__(
        self,
        cache: MetadataCache,
        shared: SharedMetadata,
        on_broken: OnBroken = fail,
        defer: Defer | None = None,
    ) -> None:
        self._broker_epoch = UNREGISTERED
        self._shared: Final = shared
        self._view: Final = shared.view(cache, on_broken, defer)
        self._session_listeners: Final[list[Callable[[], None]]] = []
        self._closed = False

    def load(self) -> MetadataImage:
        """Publishes the metadata; no partition has a leader before the controller elects one."""
        delta = self._shared.open(self._view)
        self._view.cache.publish(delta)
        return delta.image

    @property
    def deleted_topics(self) -> frozenset[UUID]:
        """See `MetadataStore`; those of the first `load`."""
        return self._shared.deleted_topics

    def forget_deleted_topics(self) -> None:
        """Forgets those of the first `load`; topics deleted since then stay recorded."""
        if self._shared.deleted_topics:
            statement = schema.forget_deleted(self._shared.deleted_topics)
            self._shared.deleted_topics = frozenset()
            note = partial(note_refusal, "deleted topics are forgotten with the next start")
            self._submit(lambda _: Change(None), note, lambda: [statement])

    def close(self) -> None:
        """Ends the session, and with the last one the use of the journal."""
        self._closed = True
        if self._shared.close(self._view):
            self._end_session()

    def expire(self) -> None:
        """Ends the session as if the broker had fallen silent; the broker is notified first."""
        self._view.attempt(self._tell_lost)
        self._end_session()

    def _tell_lost(self) -> None:
        for listener in tuple(self._session_listeners):
            listener()

    def subscribe(self, stage: ListenerStage, listener: MetadataListener) -> None:
        """See `MetadataStore`."""
        self._view.subscribe(stage, listener)

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        """See `MetadataStore`."""
        self._session_listeners.append(listener)

    def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[EndPoint],
        rack: str | None,
        on_done: OnDone[BrokerRegistration],
    ) -> None:
        """Begins the session; see `MetadataStore`."""

        def plan(image: MetadataImage) -> Change[BrokerRegistration]:
            live = image.brokers.get(broker_id)
            if live is not None and live.epoch != self._broker_epoch:
                raise BrokerError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            epoch = self._shared.next_broker_epoch()
            broker = BrokerRegistration(broker_id, tuple(endpoints), rack, epoch)
            self._view.broker_id, self._broker_epoch = broker_id, epoch
            return changes.register_broker(image, broker)

        self._submit(
            plan,
            on_done,
            lambda: [schema.put_property(schema.BROKER_EPOCH, self._broker_epoch)],
        )

    def sync(self, on_done: OnDone[None]) -> None:
        """Calls back in its turn in the queue."""
        self._submit(lambda _: Change(None), on_done)

    def create_topics(
        self, topics: Sequence[NewTopic], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Creates topics in one transaction."""
        self._submit_registered(
            lambda image: changes.create_topics(image, topics, self._shared.new_id), on_done
        )

    def delete_topics(
        self, topic_ids: Sequence[UUID], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Deletes topics in one transaction."""
        self._submit_registered(lambda image: changes.delete_topics(image, topic_ids), on_done)

    def create_partitions(
        self, additions: Sequence[NewPartitions], on_done: OnDone[list[TopicImage | BrokerError]]
    ) -> None:
        """Adds partitions in one transaction."""
        self._submit_registered(lambda image: changes.create_partitions(image, additions), on_done)

    def change_partitions(
        self,
        changed: Sequence[PartitionChange],
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Changes leaders and in-sync replicas in one transaction."""
        self._submit(
            lambda image: changes.change_partitions(image, changed, self._view.broker_id), on_done
        )

    def alter_configs(
        self, altered: Mapping[ConfigResource, Mapping[str, str | None]], on_done: OnDone[None]
    ) -> None:
        """Sets and deletes settings in one transaction."""
        self._submit(lambda image: changes.alter_configs(image, altered), on_done)

    def alter_acls(
        self, added: Collection[AclBinding], removed: Collection[AclBinding], on_done: OnDone[None]
    ) -> None:
        """Adds and removes ACLs in one transaction."""
        self._submit(lambda image: alter_acls(image, added, removed), on_done)

    def alter_client_quotas(
        self,
        altered: Mapping[QuotaEntity, Mapping[QuotaKey, float | None]],
        on_done: OnDone[None],
    ) -> None:
        """Changes quotas in one transaction."""
        self._submit(lambda image: alter_client_quotas(image, altered), on_done)

    def update_features(self, levels: Mapping[str, int], on_done: OnDone[None]) -> None:
        """Stores all levels, also the unchanged ones of a new cluster."""
        self._submit(lambda image: changes.update_features(image, levels), on_done)

    def allocate_producer_ids(self, count: int, on_done: OnDone[range]) -> None:
        """Takes the next block; the unused ids of a block are lost, never reused."""

        self._submit(
            lambda _: Change(self._shared.next_producer_ids(count)),
            on_done,
            lambda: [schema.put_property(schema.NEXT_PRODUCER_ID, self._shared.next_producer_id)],
        )

    def report_offline(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as offline, without storing it."""
        self._publish(partitions, lambda image: without_replicas(image, partitions, broker_id))

    def report_online(self, partitions: Sequence[TopicPartition], broker_id: int) -> None:
        """Publishes replicas as online; the offline state was not stored. Replicas of a broker
        whose session is over stay offline until it registers again."""

        def back(image: MetadataImage) -> MetadataImage:
            if broker_id not in image.brokers:
                return image
            return with_replicas(image, partitions, broker_id)

        self._publish(partitions, back)

    def _publish(
        self,
        partitions: Sequence[TopicPartition],
        change: Callable[[MetadataImage], MetadataImage],
    ) -> None:
        """Changes the image only."""

        def plan(image: MetadataImage) -> Change[None]:
            after = change(image)
            names = {partition.topic for partition in partitions} & set(after.topics)
            changed = [after.topics[name] for name in names]
            return Change(None, MetadataDelta(image, after, changed=changed))

        self._submit(plan, partial(note_refusal, "replicas are shown as they were"))

    def _end_session(self) -> None:
        """Removes the registration of this session's epoch from the image."""
        broker_id, epoch = self._view.broker_id, self._broker_epoch
        self._broker_epoch = UNREGISTERED
        if epoch != UNREGISTERED:
            self._view.submit(
                lambda image: changes.unregister_broker(image, broker_id, epoch),
                partial(note_refusal, f"broker {broker_id} stays registered"),
                self._shared.commit(),
            )

    def _submit_registered(self, plan: Plan[T], on_done: OnDone[T]) -> None:
        """Submits a change for the controller, which shares this memory: only live brokers may
        request it."""

        def plan_registered(image: MetadataImage) -> Change[T]:
            if self._broker_epoch == UNREGISTERED:
                raise BrokerError(ErrorCode.NOT_CONTROLLER)
            return plan(image)

        self._submit(plan_registered, on_done)

    def _submit(
        self,
        plan: Plan[T],
        on_done: OnDone[T],
        also: Callable[[], Sequence[Statement]] = tuple,
    ) -> None:
        """Submits a change, which is refused if this store is closed by its turn; the statements of
        `also` are written with it."""

        def plan_open(image: MetadataImage) -> Change[T]:
            if self._closed:
                raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping.")
            return plan(image)

        self._view.submit(plan_open, on_done, self._shared.commit(also))
