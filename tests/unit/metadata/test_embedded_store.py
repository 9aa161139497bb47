"""The embedded store: what it answered is durable, ordered, and published in the right order."""

import itertools
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.late_background import LateBackground

from odradek.background import InlineBackground
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import (
    ConfigResource,
    ListenerStage,
    MetadataCache,
    MetadataDelta,
    MetadataStoreError,
    NewPartitions,
    NewTopic,
    PartitionChange,
    TopicImage,
)
from odradek.metadata.engine import SLICE_PARTITIONS
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata, schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.sqlite.journal import Journal
from odradek.model import ConfigResourceType, EndPoint, TopicPartition

T = TypeVar("T")
ENDPOINTS = [EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)]


class FailingJournal:
    """A full disk: reading works, writing does not once `fails` is set."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.fails = False

    def read(self) -> Any:
        return self.journal.read()

    def write(self, statements: Any) -> None:
        if self.fails:
            raise MetadataStoreError("disk full")
        self.journal.write(statements)

    def close(self) -> None:
        self.journal.close()


def counting_bytes() -> Callable[[int], bytes]:
    numbers = itertools.count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


def make_store(
    journal: Journal | None = None, background: Any = None
) -> tuple[EmbeddedMetadataStore, MetadataCache]:
    cache = MetadataCache()
    background = background or InlineBackground()
    shared = SharedMetadata(background, counting_bytes(), journal)
    store = EmbeddedMetadataStore(cache, shared, defer=background.defer)
    ReplicationControl(store, 1, lambda image, topic: False)
    store.load()
    return store, cache


def registered(
    journal: Journal | None = None,
) -> tuple[EmbeddedMetadataStore, MetadataCache]:
    store, cache = make_store(journal)
    store.register_broker(1, ENDPOINTS, None, must)
    return store, cache


def must(outcome: object) -> None:
    assert not isinstance(outcome, BrokerError), outcome


def new_topic(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return NewTopic(name, ((1,),) * partitions, settings)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(str(tmp_path))) as opened:
        yield opened


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Topics, ids, settings, epochs and producer ids are the cluster's memory."""
    store, cache = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a", 3, retention_ms="5"), new_topic("b")], must)
    store.create_partitions([NewPartitions("b", 1, ((1,), (1,)))], must)
    broker = ConfigResource(ConfigResourceType.BROKER, "")
    store.alter_configs({broker: {"max.connections": "9"}}, must)
    blocks: list[Any] = []
    store.allocate_producer_ids(1000, blocks.append)
    store.update_features({"group.version": 0, "transaction.version": 1}, must)
    before = cache.image
    store.close()

    store, cache = make_store(Database(str(tmp_path)))
    assert all(
        partition.leader == -1
        for topic in cache.image.topics.values()
        for partition in topic.partitions
    )
    store.register_broker(1, ENDPOINTS, None, must)
    after = cache.image
    assert after.cluster_id == before.cluster_id
    assert after.brokers[1].epoch == before.brokers[1].epoch + 1
    assert {name: topic.topic_id for name, topic in after.topics.items()} == {
        name: topic.topic_id for name, topic in before.topics.items()
    }
    assert [len(after.topics[name].partitions) for name in "ab"] == [3, 3]
    assert after.topics["a"].partitions[2].leader == 1
    assert after.topics["a"].partitions[2].leader_epoch == 1
    assert after.topic_config("a") == {"retention.ms": "5"}
    assert after.config(broker) == {"max.connections": "9"}
    assert after.features == {"metadata.version": 30, "share.version": 1, "transaction.version": 1}
    assert after.features_epoch == 1
    store.allocate_producer_ids(1000, blocks.append)
    assert blocks == [range(1000), range(1000, 2000)]
    store.close()


def test_deleting_a_topic_leaves_nothing_behind(tmp_path: Path) -> None:
    """A topic of the same name later must not inherit settings or partitions."""
    store, cache = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a", 3, retention_ms="5")], must)
    store.delete_topics([cache.image.topics["a"].topic_id], must)
    store.create_topics([new_topic("a")], must)
    store.close()
    store, cache = make_store(Database(str(tmp_path)))
    assert len(cache.image.topics["a"].partitions) == 1
    assert cache.image.topic_config("a") == {}
    store.close()


def test_cluster_id_is_like_kafkas() -> None:
    """Tools print and compare it: 22 characters of URL-safe base64, no leading dash."""
    _, cache = make_store()
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", cache.image.cluster_id)


def test_topic_ids_are_never_reserved_ones() -> None:
    """Ids 0 and 1 mean "none" and "the metadata topic" to clients."""
    store, cache = registered()
    store.create_topics([new_topic(f"t{number}") for number in range(50)], must)
    ids = [topic.topic_id for topic in cache.image.topics.values()]
    assert len(set(ids)) == 50
    assert not {UUID(int=0), UUID(int=1)} & set(ids)


def test_listeners_act_before_clients_see_and_the_asker_hears_last() -> None:
    """A partition is listed only when it can be appended to; the answer comes after that."""
    store, cache = registered()
    order: list[str] = []

    def listener(stage: ListenerStage, delta: MetadataDelta) -> tuple[()]:
        assert cache.image.topic("a") is None
        order.append(stage.name)
        return ()

    for stage in (ListenerStage.COORDINATORS, ListenerStage.SETTINGS, ListenerStage.REPLICAS):
        store.subscribe(stage, partial(listener, stage))
    cache.on_published(lambda delta: order.append("published"))
    store.create_topics([new_topic("a")], lambda outcome: order.append("answered"))
    assert order == ["SETTINGS", "REPLICAS", "COORDINATORS", "published", "answered"]


def test_listeners_act_on_many_partitions_in_slices() -> None:
    """No other request is served while the logs of 500 new topics are opened."""
    background = LateBackground()
    store, cache = make_store(background=background)
    store.register_broker(1, ENDPOINTS, None, must)
    opened: list[int] = []

    def listener(delta: MetadataDelta) -> tuple[()]:
        opened.append(len(delta.topics_added))
        return ()

    store.subscribe(ListenerStage.REPLICAS, listener)
    answers: list[object] = []
    topics = [new_topic(f"t{number}") for number in range(2 * SLICE_PARTITIONS + 1)]
    store.create_topics(topics, answers.append)
    counts = []
    while not answers:
        assert not cache.image.topics, "clients see all or nothing of it"
        counts.append(len(opened))
        background.step()
    assert opened == [SLICE_PARTITIONS, SLICE_PARTITIONS, 1]
    assert counts == [1, 2, 3], "a slice a turn"
    background.run()
    assert len(answers) == 1
    assert len(cache.image.topics) == len(topics)


def test_what_is_written_down_is_there_after_an_end_between_two_slices(tmp_path: Path) -> None:
    """Of topics that were promised to nobody yet half would be there, or the end would hang."""
    background = LateBackground()
    store, _ = make_store(Database(str(tmp_path)), background)
    store.register_broker(1, ENDPOINTS, None, must)
    background.step()
    store.create_topics([new_topic(f"t{n}") for n in range(2 * SLICE_PARTITIONS)], lambda _: None)
    background.step()
    assert background.work, "another slice is left"
    store.close()
    background.run()
    store, cache = registered(Database(str(tmp_path)))
    assert len(cache.image.topics) == 2 * SLICE_PARTITIONS
    store.close()


def test_a_partition_that_did_not_open_is_published_offline_and_stays_so() -> None:
    """The next change must not bring it back by accident."""
    store, cache = registered()
    store.subscribe(
        ListenerStage.REPLICAS,
        lambda delta: [TopicPartition(topic.name, 0) for topic in delta.topics_added],
    )
    store.create_topics([new_topic("a", 2)], must)
    assert [p.leader for p in cache.image.topics["a"].partitions] == [-1, 1]
    store.alter_configs({ConfigResource.topic("a"): {"retention.ms": "1"}}, must)
    assert [p.leader for p in cache.image.topics["a"].partitions] == [-1, 1]


def test_a_failed_directory_takes_its_partitions_offline_until_the_restart(tmp_path: Path) -> None:
    """It is not written down: the next start tries the disk again."""
    store, cache = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a", 2)], must)
    store.report_offline([TopicPartition("a", 1), TopicPartition("gone", 0)], 1)
    assert cache.image.topics["a"].partitions[1].leader == -1
    store.close()
    store, cache = registered(Database(str(tmp_path)))
    assert cache.image.topics["a"].partitions[1].leader == 1
    store.close()


def test_a_replica_that_is_back_leads_again_unless_its_log_does_not_open() -> None:
    """A partition would stay without a leader after its disk got room, or get one in vain."""
    store, cache = registered()
    store.create_topics([new_topic("a", 2)], must)
    everything = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("gone", 0)]
    store.report_offline(everything, 1)
    assert [p.leader for p in cache.image.topics["a"].partitions] == [-1, -1]
    store.subscribe(ListenerStage.REPLICAS, lambda delta: [TopicPartition("a", 0)])
    store.report_online(everything, 1)
    assert [p.leader for p in cache.image.topics["a"].partitions] == [-1, 1]
    assert [p.offline for p in cache.image.topics["a"].partitions] == [(1,), ()]


def test_a_replica_of_a_broker_that_is_not_registered_stays_offline() -> None:
    """Registering anew would change nothing then, and the broker never hear that it has to follow.
    Found by seeds 8 536 and 9 143 of the replication simulation."""
    store, cache = registered()
    store.create_topics([new_topic("a")], must)
    store.expire()
    store.report_online([TopicPartition("a", 0)], 1)
    assert cache.image.topics["a"].partitions[0].offline == (1,)
    heard: list[tuple[int, ...]] = []

    def hear(delta: MetadataDelta) -> tuple[TopicPartition, ...]:
        heard.extend(each.offline for _, each in delta.partitions())
        return ()

    store.subscribe(ListenerStage.REPLICAS, hear)
    store.register_broker(1, ENDPOINTS, None, must)
    assert heard[0] == ()
    store.close()


def test_operations_wait_their_turn_and_see_what_came_before(database: Database) -> None:
    """Two requests for one name at the same time: exactly one creates it."""
    background = LateBackground()
    store, cache = make_store(database, background)
    outcomes: list[Any] = []
    store.register_broker(1, ENDPOINTS, None, must)
    store.create_topics([new_topic("a")], outcomes.append)
    store.create_topics([new_topic("a"), new_topic("b")], outcomes.append)
    assert len(background.work) == 1
    background.run()
    (first,), (second, third) = outcomes
    assert isinstance(first, TopicImage)
    assert isinstance(second, BrokerError)
    assert second.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert isinstance(third, TopicImage)
    assert set(cache.image.topics) == {"a", "b"}


def test_a_chain_of_operations_does_not_nest() -> None:
    """Each step started from the previous one's answer; a thousand must not overflow the stack."""
    store, cache = registered()

    def create(number: int) -> None:
        if number < 3_000:
            store.create_topics([new_topic(f"t{number}")], lambda _: create(number + 1))

    create(0)
    assert len(cache.image.topics) == 3_000


def test_what_could_not_be_written_did_not_happen(database: Database) -> None:
    """An answer without durability would be a lie; the next operation goes on."""
    journal = FailingJournal(database)
    store, cache = registered(journal)
    outcomes: list[Any] = []
    journal.fails = True
    store.create_topics([new_topic("a")], outcomes.append)
    assert outcomes[0].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert cache.image.topic("a") is None
    journal.fails = False
    store.create_topics([new_topic("a")], outcomes.append)
    assert isinstance(outcomes[1][0], TopicImage)


def test_after_close_operations_are_refused(tmp_path: Path) -> None:
    """The one that is being written is finished first, then the file is let go."""
    background = LateBackground()
    store, _ = make_store(Database(str(tmp_path)), background)
    outcomes: list[Any] = []
    store.register_broker(1, ENDPOINTS, None, outcomes.append)
    store.allocate_producer_ids(10, outcomes.append)
    store.close()
    background.step()
    assert outcomes[0].epoch == 1
    assert outcomes[1].code is ErrorCode.BROKER_NOT_AVAILABLE
    Database(str(tmp_path)).close()


def test_stale_and_illegal_partition_changes_are_refused() -> None:
    """Only who saw the current state may change it."""
    store, _ = registered()
    store.create_topics([NewTopic("a", ((1, 2),), {})], must)
    tp = TopicPartition("a", 0)
    outcomes: list[Any] = []
    changes = [
        PartitionChange(tp, 7, 1, (1,)),
        PartitionChange(tp, 0, 2, (1,)),
        PartitionChange(tp, 0, 1, (1, 3)),
        PartitionChange(TopicPartition("b", 0), 0, 1, (1,)),
        PartitionChange(tp, 0, 2, (1, 2)),
        PartitionChange(tp, 0, -1, (1,)),
    ]
    store.change_partitions(changes, outcomes.extend)
    assert [getattr(outcome, "code", None) for outcome in outcomes] == [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INELIGIBLE_REPLICA,
        None,
    ]
    done = outcomes[-1]
    assert (done.leader, done.leader_epoch, done.partition_epoch) == (-1, 1, 1)


def test_partitions_of_a_topic_change_together_and_each_change_sees_the_one_before() -> None:
    """A start elects thousands of leaders at once: one would be lost, or take time for all."""
    store, cache = registered()
    store.create_topics([NewTopic("a", ((1, 2), (1, 2), (1, 2)), {})], must)
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    outcomes: list[Any] = []
    changes = [
        PartitionChange(first, 0, -1, (1,)),
        PartitionChange(second, 0, -1, (1,)),
        PartitionChange(first, 1, 1, (1,)),
    ]
    store.change_partitions(changes, outcomes.extend)
    assert [(done.leader, done.partition_epoch) for done in outcomes] == [(-1, 1), (-1, 1), (1, 2)]
    first_image, _, third_image = cache.image.topics["a"].partitions
    assert (first_image.leader, first_image.partition_epoch) == (1, 2)
    assert (third_image.leader, third_image.partition_epoch) == (1, 0)


def test_two_brokers_on_one_directory_find_out(database: Database, tmp_path: Path) -> None:
    """Both writing would destroy the cluster's memory."""
    with pytest.raises(MetadataStoreError, match="in use"):
        Database(str(tmp_path))


def test_damaged_files_are_refused_with_one_clear_error(tmp_path: Path) -> None:
    """Starting with an empty store instead would orphan every log."""
    path = tmp_path / schema.FILE_NAME
    path.write_bytes(b"this is not a database, but it is long enough to look at" * 40)
    with pytest.raises(MetadataStoreError, match=re.escape(str(path))):
        Database(str(tmp_path))


def test_foreign_and_newer_files_are_refused(tmp_path: Path) -> None:
    """Another program's data is not ours to change."""
    path = tmp_path / schema.FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    with pytest.raises(MetadataStoreError, match="not a metadata store"):
        Database(str(tmp_path))
    os.remove(path)
    Database(str(tmp_path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(MetadataStoreError, match="newer"):
        Database(str(tmp_path))


def test_deleted_topics_are_known_until_their_logs_are_gone(tmp_path: Path) -> None:
    """A crash between the commit and the removal of the logs would leave them for ever."""
    store, _ = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a"), new_topic("b")], must)
    topic = store.load().topics["a"]
    store.delete_topics([topic.topic_id], must)
    store.close()
    for _ in range(2):
        store, _ = registered(Database(str(tmp_path)))
        assert store.deleted_topics == {topic.topic_id}
        store.close()
    store, _ = registered(Database(str(tmp_path)))
    store.forget_deleted_topics()
    store.close()
    store, _ = registered(Database(str(tmp_path)))
    assert store.deleted_topics == frozenset()
    store.close()


def test_a_file_of_the_first_version_gets_what_it_lacks(tmp_path: Path) -> None:
    """A broker could not start on the directory of an earlier one."""
    store, _ = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a")], must)
    store.close()
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection:
        connection.execute("DROP TABLE deleted_topic")
        connection.execute("ALTER TABLE partition DROP COLUMN adding")
        connection.execute("ALTER TABLE partition DROP COLUMN removing")
        connection.execute("PRAGMA user_version = 1")
    store, _ = registered(Database(str(tmp_path)))
    assert set(store.load().topics) == {"a"}
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE topic SET topic_id = x'00'",
        "UPDATE partition SET replicas = 'x'",
        "DELETE FROM partition",
        "UPDATE partition SET partition = 5",
        "DELETE FROM topic",
        "UPDATE config SET resource_type = 77",
        "UPDATE property SET value = 'x' WHERE name = 'broker_epoch'",
    ],
)
def test_rows_that_make_no_sense_are_refused(tmp_path: Path, damage: str) -> None:
    """Half-understood metadata is worse than a broker that does not start."""
    store, _ = registered(Database(str(tmp_path)))
    store.create_topics([new_topic("a", retention_ms="5")], must)
    store.close()
    with closing(sqlite3.connect(tmp_path / schema.FILE_NAME)) as connection:
        connection.execute(damage)
        connection.commit()
    with closing(Database(str(tmp_path))) as damaged, pytest.raises(MetadataStoreError):
        damaged.read()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The error must say which path, or nobody finds the typing error."""
    with pytest.raises(MetadataStoreError, match="nowhere"):
        Database(str(tmp_path / "nowhere"))
