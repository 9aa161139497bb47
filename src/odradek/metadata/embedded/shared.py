"""`SharedMetadata`: the one memory behind the stores of all brokers of a process.

What a ZooKeeper ensemble is to a cluster, this is to the brokers that live in one process, most
often just one: it keeps the image, lets operations take effect one by one, and tells every
store. Each operation waits in a queue for its turn, is worked out on the image that its
predecessor left (`changes`), written by the journal off the event loop, handed to the listeners,
published, and answered. Without a journal the same happens at once and in memory: creating a
topic costs no hop between threads. A step that starts another from its callback does not nest;
the other waits its turn.
"""

import base64
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

from odradek.background import Background
from odradek.config.features import DEFAULT_LEVELS
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.changes import Change
from odradek.metadata.embedded import schema
from odradek.metadata.embedded.journal import Journal, Statement, StoredMetadata
from odradek.metadata.embedded.statements import statements_of
from odradek.metadata.image import MetadataDelta, MetadataImage, TopicImage
from odradek.metadata.store import ListenerStage, OnDone
from odradek.model import NO_LEADER, TopicPartition

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_EMPTY: Final = StoredMetadata("", 0, 0, (), {})


class Follower(Protocol):
    """A broker's store, as the shared memory sees it."""

    broker_id: int

    def act(self, stage: ListenerStage, delta: MetadataDelta) -> Collection[TopicPartition]:
        """Lets the listeners of one stage act; answers the replicas that cannot be served."""
        ...

    def publish(self, delta: MetadataDelta) -> None:
        """Shows the outcome to the broker's clients."""
        ...


class SharedMetadata:
    """The metadata of the brokers of this process; ephemeral without a `journal`.

    `random_bytes(n)` supplies the randomness of topic ids and of the cluster id. Without a journal
    it goes on from what is `stored`, where that is given.
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
        self.image = MetadataImage("")
        self.deleted_topics: frozenset[UUID] = frozenset()
        self._broker_epoch = 0
        self.next_producer_id = 0
        self._followers: Final[list[Follower]] = []
        self._queue: Final[deque[Callable[[], None]]] = deque()
        # While the journal writes a step.
        self._writing = False
        # While steps are carried out: one that is begun from a callback waits its turn.
        self._draining = False

    def open(self, follower: Follower) -> MetadataDelta:
        """Takes a store in; the first one reads the journal, and names the cluster when it is new.

        Raises:
            MetadataStoreError: the journal cannot be used.
        """
        if not self.image.cluster_id:
            self._read()
        if follower not in self._followers:
            self._followers.append(follower)
        empty = MetadataImage(self.image.cluster_id)
        return MetadataDelta(
            empty,
            self.image,
            added=self.image.topics.values(),
            configs=self.image.configs,
            brokers_changed=True,
        )

    def close(self, follower: Follower) -> bool:
        """Lets a store go; with the last one the journal, after the step that is being written.
        Answers whether the memory lives on: for other stores, or because it has no journal."""
        if follower in self._followers:
            self._followers.remove(follower)
        self._drain()
        self._maybe_close_journal()
        return bool(self._followers) or self._journal is None

    def submit(
        self,
        is_open: Callable[[], bool],
        prepare: Callable[[], Change[T]],
        on_done: OnDone[T],
        also: Callable[[], Sequence[Statement]] = tuple,
    ) -> None:
        """Carries out what `prepare` works out when its turn has come, if the asker is still
        open then; `also` says what else is to be written down with it.

        `prepare` may raise a `BrokerError`, which is the answer then.
        """
        self._queue.append(partial(self._begin, is_open, prepare, on_done, also))
        self._drain()

    def next_broker_epoch(self) -> int:
        """The epoch of the next registration; for use while an operation is worked out."""
        self._broker_epoch += 1
        return self._broker_epoch

    def next_producer_ids(self, count: int) -> range:
        """A block of producer ids; for use while an operation is worked out."""
        first = self.next_producer_id
        self.next_producer_id += count
        return range(first, first + count)

    def new_id(self) -> UUID:
        """A random id that is neither reserved nor taken, nor prints with a leading dash,
        which command lines would read as an option."""
        while True:
            candidate = UUID(bytes=self._random_bytes(16), version=4)
            taken = self.image.topic_by_id(candidate) is not None
            if not taken and not _encoded(candidate).startswith("-"):
                return candidate

    def stored(self) -> StoredMetadata:
        """What a journal would hold now; nothing may be under way."""
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
        )

    def _read(self) -> None:
        """No broker lives yet, so no partition has a leader until a controller elects one."""
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
        self.image = image.with_topics(topics).with_configs(stored.configs)

    def _drain(self) -> None:
        """Carries out waiting steps until one has to wait for the journal."""
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue and not self._writing:
                self._queue.popleft()()
        finally:
            self._draining = False

    def _begin(
        self,
        is_open: Callable[[], bool],
        prepare: Callable[[], Change[T]],
        on_done: OnDone[T],
        also: Callable[[], Sequence[Statement]],
    ) -> None:
        if not is_open():
            on_done(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "The broker is stopping."))
            return
        try:
            change = prepare()
        except BrokerError as error:
            on_done(error)
            return
        statements = [] if self._journal is None else self._statements(change, also())
        if self._journal is None or not statements:
            self._finish(change, on_done)
            return
        self._writing = True
        self._background.submit(
            partial(self._journal.write, statements),
            lambda _: self._on_written(lambda: self._finish(change, on_done)),
            lambda error: self._on_written(lambda: _refuse(error, on_done)),
        )

    @staticmethod
    def _statements(change: Change[T], also: Sequence[Statement]) -> list[Statement]:
        changed = [] if change.delta is None else statements_of(change.delta)
        return [*changed, *also]

    def _on_written(self, finish: Callable[[], None]) -> None:
        """Ends the step that was written, and goes on with those that wait."""
        self._queue.appendleft(finish)
        self._writing = False
        self._drain()
        self._maybe_close_journal()

    def _finish(self, change: Change[T], on_done: OnDone[T]) -> None:
        """Listeners first, clients after them, and then the one who asked."""
        if change.delta is not None:
            self.image = change.delta.image
            delta = self._act(change.delta)
            self.image = delta.image
            for follower in tuple(self._followers):
                follower.publish(delta)
        on_done(change.result)

    def _act(self, delta: MetadataDelta) -> MetadataDelta:
        for stage in ListenerStage:
            for follower in tuple(self._followers):
                unserved = follower.act(stage, delta)
                delta = delta.without_replicas(unserved, follower.broker_id)
        return delta

    def _maybe_close_journal(self) -> None:
        if self._journal is not None and not self._followers and not self._writing:
            self._journal.close()

    def _name_cluster(self) -> str:
        cluster_id = _encoded(self.new_id())
        if self._journal is not None:
            self._journal.write([schema.put_property(schema.CLUSTER_ID, cluster_id)])
        return cluster_id


def _refuse(error: BaseException, on_done: OnDone[T]) -> None:
    _LOG.error("metadata could not be written: %s", error)
    on_done(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"Metadata was not written: {error}"))


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
