"""Members of consumer groups that do as they are told, over a coordinator in memory."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from tests.unit.coordinator.fakes import World

from odradek.coordinator.assignors import Partitions
from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.consumer.requests import HeartbeatRequest, HeartbeatResult
from odradek.errors import BrokerError
from odradek.metadata.image import MetadataDelta, PartitionImage, TopicImage

Named = dict[str, list[int]]


class ConsumerWorld(World):
    """A coordinator with topics. Assignments follow one another without a rest."""

    def __init__(self, topics: Mapping[str, int] = {"t": 4}, **settings: object) -> None:
        super().__init__(**{"group_consumer_assignment_interval_ms": 0, **settings})
        self._topic_ids = 0
        self.set_topics(**topics)

    def set_topics(self, **counts: int) -> None:
        """Creates, grows and deletes topics, so that there are exactly these."""
        before = self.metadata.image
        wanted = {}
        for name, count in counts.items():
            known = before.topic(name)
            if known is None:
                self._topic_ids += 1
            topic_id = UUID(int=self._topic_ids) if known is None else known.topic_id
            partitions = [PartitionImage(n, 1, 0, 0, (1,), (1,)) for n in range(count)]
            wanted[name] = TopicImage(name, topic_id, tuple(partitions))
        added = [topic for name, topic in wanted.items() if name not in before.topics]
        changed = [topic for name, topic in wanted.items() if name in before.topics]
        removed = [topic for name, topic in before.topics.items() if name not in wanted]
        image = before.with_topics(wanted.values(), removed)
        self.metadata.publish(
            MetadataDelta(before, image, added=added, removed=removed, changed=changed)
        )

    def topic_id(self, name: str) -> UUID:
        topic = self.metadata.image.topic(name)
        assert topic is not None
        return topic.topic_id

    def named(self, partitions: Partitions) -> Named:
        """Partitions by the names of their topics."""
        found = {}
        for topic_id, indexes in partitions.items():
            topic = self.metadata.image.topic_by_id(topic_id)
            found["?" if topic is None else topic.name] = sorted(indexes)
        return dict(sorted(found.items()))

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.runtime.shard(group_id).registry.get(group_id)
        assert isinstance(group, ConsumerGroup), group
        return group


class Consumer:
    """A consumer as a client library keeps it. It gives back what it is told to with its
    next heartbeat, unless it `clings` to it."""

    def __init__(
        self,
        world: ConsumerWorld,
        name: str,
        topics: Iterable[str] | None = ("t",),
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        group_id: str = "g",
    ) -> None:
        self.world = world
        self.name = name
        self.topics = None if topics is None else frozenset(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.group_id = group_id
        self.member_id = name
        self.epoch = -1
        self.owned: Partitions = {}
        self.assigned: Partitions = {}
        self.clings = False
        self.error: BrokerError | None = None

    def send(self, **fields: object) -> HeartbeatResult | BrokerError | None:
        """One heartbeat with given fields; the answer, or None when it has not come yet."""
        request = HeartbeatRequest(
            self.group_id, self.member_id, self.epoch, client_id=self.name, client_host="/::1"
        )._replace(**fields)
        answers: list[HeartbeatResult | BrokerError] = []
        self.world.groups.consumer_heartbeat(request, 1, answers.append)
        return answers[0] if answers else None

    def _take(self, answer: HeartbeatResult | BrokerError | None) -> None:
        if isinstance(answer, BrokerError):
            self.error = answer
        elif answer is not None:
            self.error = None
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = answer.assignment

    def join(self) -> None:
        self.owned = self.assigned = {}
        self.epoch = 0
        self._take(
            self.send(
                instance_id=self.instance_id,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                subscribed_topic_names=self.topics,
                subscribed_topic_regex=self.regex,
                server_assignor=self.assignor,
                owned={},
            )
        )
        self._own()

    def _own(self) -> None:
        if not self.clings:
            self.owned = self.assigned

    def beat(self, **fields: object) -> None:
        """A heartbeat that says what it owns, where that is not what it was told to own."""
        self._take(self.send(owned=self.owned, **fields))
        self._own()

    def leave(self, epoch: int = -1) -> None:
        self._take(self.send(member_epoch=epoch, instance_id=self.instance_id))

    @property
    def has(self) -> Named:
        return self.world.named(self.owned)


def settle(*consumers: Consumer, rounds: int = 6) -> None:
    """Everybody sends heartbeats until nothing can change any more."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
