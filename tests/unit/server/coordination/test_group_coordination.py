"""The group coordinator in a broker: its topic, its log and its upkeep, by their settings."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource
from tests.deadlines import deadline_s

import odradek
from odradek.client import CommittedOffset, GroupMetadata
from odradek.client.sync import Producer
from odradek.clock import ManualClock
from odradek.metadata import MetadataDelta, MetadataImage
from odradek.model import TopicPartition as PartitionOfTopic

TIMEOUT_S = deadline_s(60)
MINUTE_MS = 60_000
INTERNAL = "__consumer_offsets"


def commit(broker: odradek.Broker, group_id: str, topic: str, offset: int) -> None:
    """Commits as a consumer that only assigns itself partitions does."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def offsets(broker: odradek.Broker, group_id: str) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    found = asked[group_id].result(TIMEOUT_S).topic_partitions
    return {each.topic: each.offset for each in found}


def test_offsets_expire_when_the_clock_says_so() -> None:
    """Fails when nobody looks for expired offsets, or looks at other times than was set."""
    clock = ManualClock(wall_ms=1_700_000_000_000)
    config = {
        "offsets.retention.minutes": 10,
        "offsets.retention.check.interval.ms": 4 * MINUTE_MS,
    }
    with odradek.Broker(clock=clock, config=config) as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        clock.advance(8 * MINUTE_MS)
        assert offsets(broker, "g") == {"t": 5}
        clock.advance(4 * MINUTE_MS - 1)  # expired, but nobody has looked
        assert offsets(broker, "g") == {"t": 5}
        clock.advance(1)
        assert offsets(broker, "g") == {}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.list_consumer_groups().result(TIMEOUT_S).valid == []


def test_the_internal_topic_is_made_as_it_was_set() -> None:
    """Fails when the topic that everybody's offsets are in is not compacted, or of another size."""
    config = {"offsets.topic.num.partitions": 7, "offsets.topic.segment.bytes": 1_000_000}
    with odradek.Broker(config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert INTERNAL not in admin.list_topics(timeout=TIMEOUT_S).topics
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        topic = admin.list_topics(timeout=TIMEOUT_S).topics[INTERNAL]
        assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (7, 1)
        resource = ConfigResource(ConfigResource.Type.TOPIC, INTERNAL)
        described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert described["cleanup.policy"].value == "compact"
        assert described["compression.type"].value == "producer"
        assert described["segment.bytes"].value == "1000000"


@pytest.mark.parametrize("codec", range(5))
def test_the_internal_log_is_compressed_as_it_was_set(codec: int, tmp_path: Path) -> None:
    """Fails when `offsets.topic.compression.codec` is passed over, or cannot be read back."""
    config = {"offsets.topic.compression.codec": codec, "offsets.topic.num.partitions": 1}
    with odradek.Broker(str(tmp_path), config=config) as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "looks",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        consumer.assign([TopicPartition(INTERNAL, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.key() == b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\0"
        consumer.close()
    attributes = batch_attributes(tmp_path)
    assert attributes & 7 == codec
    with odradek.Broker(str(tmp_path), config=config) as broker:
        assert offsets(broker, "g") == {"t": 5}


def batch_attributes(data_dir: Path) -> int:
    """The attributes of the first batch of the internal topic."""
    path = data_dir / f"{INTERNAL}-0" / f"{0:020d}.log"
    with path.open("rb") as log:
        header = log.read(23)
    return int.from_bytes(header[21:23], "big")


def test_an_aborted_commit_leaves_the_one_before_to_compaction() -> None:
    """Fails when a group begins anew since its offset was compacted for the sake of one that a
    transaction took back; the end of that is in the segment that is not compacted yet."""
    clock = ManualClock(wall_ms=1_700_000_000_000)
    config = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 400,
        "log.cleaner.min.cleanable.ratio": 0.01,
    }
    with odradek.Broker(clock=clock, config=config) as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 1)
        with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            taken_back = {PartitionOfTopic("t", 0): CommittedOffset(7)}
            producer.send_offsets_to_transaction(taken_back, GroupMetadata("g"))
            for offset in range(6):
                commit(broker, "other", "t", offset)
            producer.abort_transaction()
        clock.advance(MINUTE_MS)
        log = broker._running().logs.get(PartitionOfTopic(INTERNAL, 0))
        assert log is not None
        assert log.cleaned_offset > 0
        broker.restart()
        assert offsets(broker, "g") == {"t": 1}


@pytest.mark.parametrize("how", ["delete", "again"])
def test_offsets_of_deleted_topics_go(how: str) -> None:
    """Fails when a topic that is made anew inherits the offsets of the one before."""
    with odradek.Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for name in ("t", "u"):
            broker.create_topic(name)
            commit(broker, "g", name, 5)
        admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
        if how == "again":
            broker.create_topic("t")
        assert offsets(broker, "g") == {"u": 5}


Change = Callable[[MetadataImage], MetadataDelta]


def followed(broker: odradek.Broker, change: Change) -> int:
    """Makes the group coordinator follow a change; returns of how many partitions it is in charge
    then."""
    server = broker._running()

    async def follow() -> int:
        server.coordinators.groups.apply_delta(change(server.metadata.image))
        return len(list(server.coordinators.groups.coordinator.runtime.shards()))

    assert broker._thread is not None
    return broker._thread.run(follow())


def published(broker: odradek.Broker, *changes: Change) -> None:
    """Shows changes, one behind the other, before anybody has his turn."""
    server = broker._running()

    async def publish() -> None:
        for change in changes:
            server.metadata.publish(change(server.metadata.image))

    assert broker._thread is not None
    broker._thread.run(publish())


@pytest.mark.parametrize("is_named_again", [False, True])
def test_offsets_stay_unless_the_topic_is_known_to_be_deleted(is_named_again: bool) -> None:
    """Fails when a controller that names a topic no more, or again under its id, has groups begin
    anew: their offsets are gone for good."""
    with odradek.Broker() as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        topic = broker._running().metadata.image.topics["t"]

        def unnamed(image: MetadataImage) -> MetadataDelta:
            after = image.with_topics(removed=[topic])
            return MetadataDelta(image, after, removed=[topic], are_deleted=is_named_again)

        def named(image: MetadataImage) -> MetadataDelta:
            return MetadataDelta(image, image.with_topics([topic]), added=[topic])

        published(broker, *([unnamed, named] if is_named_again else [unnamed]))
        assert offsets(broker, "g") == {"t": 5}


def test_offsets_go_with_a_topic_that_goes_slice_by_slice() -> None:
    """Fails when a change that takes several turns of the loop leaves the offsets of topics that it
    has deleted, since clients are shown them to its end."""

    def gone(image: MetadataImage) -> MetadataDelta:
        topic = image.topics["t"]
        return MetadataDelta(image, image.with_topics(removed=[topic]), removed=[topic])

    with odradek.Broker() as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        followed(broker, gone)
        assert offsets(broker, "g") == {"t": 5}
        published(broker, gone)
        assert offsets(broker, "g") == {}


@pytest.mark.parametrize("leader_epoch", [0, 1])
def test_an_internal_topic_that_is_made_anew_is_coordinated(leader_epoch: int) -> None:
    """Fails when one change takes a topic away and brings another of its name, and the end of the
    one ends the other: nobody answers for its groups then; or when the groups of the one go on."""

    def anew(image: MetadataImage) -> MetadataDelta:
        topic = image.topics[INTERNAL]
        led = [each._replace(leader_epoch=leader_epoch) for each in topic.partitions]
        other = topic._replace(topic_id=UUID(int=7), partitions=tuple(led))
        after = image.with_topics([other], removed=[topic])
        return MetadataDelta(image, after, added=[other], removed=[topic])

    with odradek.Broker(config={"offsets.topic.num.partitions": 3}) as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        before = list(broker._running().coordinators.groups.coordinator.runtime.shards())
        assert followed(broker, anew) == 3
        after = list(broker._running().coordinators.groups.coordinator.runtime.shards())
        assert not {id(each) for each in before} & {id(each) for each in after}


def test_a_group_outlives_its_broker(tmp_path: Path) -> None:
    """Fails when a restart forgets offsets, or the groups that stored them."""

    def groups(broker: odradek.Broker) -> list[str]:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        listed = admin.list_consumer_groups().result(TIMEOUT_S)
        return sorted(each.group_id for each in listed.valid)

    looks: list[Callable[[odradek.Broker], object]] = [groups, lambda each: offsets(each, "g")]
    with odradek.Broker(str(tmp_path)) as broker:
        broker.create_topic("t")
        commit(broker, "g", "t", 5)
        commit(broker, "h", "t", 6)
        before = [look(broker) for look in looks]
    with odradek.Broker(str(tmp_path)) as broker:
        assert [look(broker) for look in looks] == before == [["g", "h"], {"t": 5}]
