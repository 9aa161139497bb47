"""`SharedMetadata`: the one memory behind the stores of all brokers of a process.

It does for the brokers of one process, mostly just one, what ZooKeeper does for a cluster: one
engine, whose changes the journal commits off the event loop. Without a journal they are not stored:
creating a topic needs no other thread.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from odradek.background import Background
from odradek.config.features import DEFAULT_LEVELS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import Change, new_topic_id
from odradek.metadata.engine import BrokerView, Commit, Defer, MetadataEngine, OnCommitted
from odradek.metadata.fail_stop import OnBroken
from odradek.metadata.image import MetadataDelta, MetadataImage, TopicImage
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.journal import Journal, Statement, StoredMetadata
from odradek.metadata.sqlite.statements import statements_of
from odradek.model import NO_LEADER
from odradek.protocol.uuids import uuid_text

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
UNREGISTERED: Final = -1
_EMPTY: Final = StoredMetadata("", 0, 0, (), {})


class SharedMetadata:
    """The metadata of the brokers of this process; ephemeral without a `journal`.

    `random_bytes(n)` supplies the randomness of topic ids and of the cluster id. Without a journal
    it starts from `stored`, if that is given.
    """

    def __init__(
        self,
        background: Background,
        random_bytes: Callable[[int], bytes],
        journal: Journal | None = None,
        stored: StoredMetadata = _EMPTY,
    ) -> None:
        self._stored: Final = stored
        self._background: Final = background
        self._random_bytes: Final = random_bytes
        self._journal: Final = journal
        self._engine: Final = MetadataEngine()
        self.deleted_topics: frozenset[UUID] = frozenset()
        self._broker_epoch = 0
        self.next_producer_id = 0

    @property
    def image(self) -> MetadataImage:
        """The image after the last change."""
        return self._engine.image

    def view(
        self, cache: MetadataCache, on_broken: OnBroken, defer: Defer | None = None
    ) -> BrokerView:
        """A new broker's view, which gets changes from `open` on; see `BrokerView`."""
        return BrokerView(self._engine, cache, UNREGISTERED, on_broken, defer)

    def open(self, view: BrokerView) -> MetadataDelta:
        """Adds a view; the first one reads the journal, and makes the id of a new cluster.

        Raises:
            MetadataStoreError: the journal cannot be used.
        """
        self._engine.act_on_rest()
        if not self.image.cluster_id:
            self._read()
        if view not in self._engine.views:
            self._engine.views.append(view)
        empty = MetadataImage(self.image.cluster_id)
        return MetadataDelta(
            empty,
            self.image,
            added=self.image.topics.values(),
            configs=self.image.configs,
            acls=self.image.acls,
            client_quotas=self.image.client_quotas,
            brokers_changed=True,
        )

    def close(self, view: BrokerView) -> bool:
        """Removes a view; with the last one closes the journal, after the write under way. Returns
        whether the memory stays valid: for other brokers, or because it has no journal."""
        if view in self._engine.views:
            self._engine.views.remove(view)
        self._maybe_close_journal()
        return bool(self._engine.views) or self._journal is None

    def commit(self, also: Callable[[], Sequence[Statement]] = tuple) -> Commit | None:
        """The commit of a change by the journal, with the statements of `also`; None without a
        journal."""
        journal = self._journal
        return None if journal is None else partial(self._commit, journal, also)

    def _commit(
        self,
        journal: Journal,
        also: Callable[[], Sequence[Statement]],
        change: Change[T],
        on_done: OnCommitted,
    ) -> None:
        changed = [] if change.delta is None else statements_of(change.delta)
        statements = [*changed, *also()]
        if not statements:
            on_done(change)
            return

        def on_written(outcome: Change[T] | BrokerError) -> None:
            on_done(outcome)
            self._maybe_close_journal()

        self._background.submit(
            partial(journal.write, statements),
            lambda _: on_written(change),
            lambda error: on_written(_not_written(error)),
        )

    def next_broker_epoch(self) -> int:
        """The epoch of the next registration; to be called while a change is planned."""
        self._broker_epoch += 1
        return self._broker_epoch

    def next_producer_ids(self, count: int) -> range:
        """A block of producer ids; to be called while a change is planned."""
        first = self.next_producer_id
        self.next_producer_id += count
        return range(first, first + count)

    def new_id(self) -> UUID:
        """An id for a topic."""
        return new_topic_id(self._random_bytes, self.image)

    def stored(self) -> StoredMetadata:
        """The present content of a journal; no change may be under way."""
        image = self.image
        if not image.cluster_id:
            return self._stored  # no store has been opened yet
        return StoredMetadata(
            cluster_id=image.cluster_id,
            broker_epoch=self._broker_epoch,
            next_producer_id=self.next_producer_id,
            topics=tuple(image.topics.values()),
            configs=image.configs,
            controller_epoch=image.controller_epoch,
            features=image.features,
            features_epoch=image.features_epoch,
            acls=image.acls,
            client_quotas=image.client_quotas,
        )

    def _read(self) -> None:
        """Reads the journal. No broker is alive yet, so no partition has a leader until a
        controller elects one."""
        stored = self._journal.read() if self._journal is not None else self._stored
        self._broker_epoch = stored.broker_epoch
        self.next_producer_id = stored.next_producer_id
        self.deleted_topics = stored.deleted_topics
        image = MetadataImage(
            stored.cluster_id or self._name_cluster(),
            controller_epoch=stored.controller_epoch,
            features=DEFAULT_LEVELS if stored.features is None else stored.features,
            features_epoch=stored.features_epoch,
        )
        topics = [_leaderless(topic) for topic in stored.topics]
        image = image.with_topics(topics).with_configs(stored.configs)
        self._engine.image = image.with_acls(stored.acls).with_client_quotas(stored.client_quotas)

    def _maybe_close_journal(self) -> None:
        if self._journal is not None and not self._engine.views and not self._engine.is_committing:
            self._journal.close()

    def _name_cluster(self) -> str:
        cluster_id = uuid_text(self.new_id())
        if self._journal is not None:
            self._journal.write([schema.put_property(schema.CLUSTER_ID, cluster_id)])
        return cluster_id


def _not_written(error: BaseException) -> BrokerError:
    _LOG.error("metadata could not be written: %s", error)
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"Metadata was not written: {error}")


def _leaderless(topic: TopicImage) -> TopicImage:
    return topic._replace(
        partitions=tuple(
            partition._replace(leader=NO_LEADER, offline=partition.replicas)
            for partition in topic.partitions
        )
    )
