"""Share groups on three brokers: their states are stored by another one than leads their topic."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from tests.deadlines import deadline_s
from tests.unit.server.in_process.cluster.slow_replicas import (
    VERY_LONG_MS,
    create,
    slow_replica,
    wait_for,
)

import odradek
from odradek.client import ConfigChange, ConfigResource
from odradek.client.sync import Admin, Producer, ShareConsumer
from odradek.coordinator.runtime.partitioning import partition_for
from odradek.coordinator.share.share_coordinator import coordinator_key
from odradek.model import SHARE_GROUP_STATE_TOPIC, TopicPartition
from odradek.replication.share.persister import SharePartitionKey

WHERE = TopicPartition("jobs", 0)
SLOW, QUICK = 0, 1


def groups_of(cluster: odradek.Cluster, partition: int) -> Iterator[str]:
    """The groups whose state of `WHERE` is stored in that partition."""
    topic = cluster.broker(1).server.metadata.image.topic(WHERE.topic)
    assert topic is not None, "the topic is there"
    for number in count():
        key = SharePartitionKey(f"group-{number}", topic.topic_id, WHERE.partition)
        if partition_for(coordinator_key(key), 2) == partition:
            yield key.group_id


def worker(cluster: odradek.Cluster, group: str) -> ShareConsumer:
    """A member of a group that begins with the first record."""
    servers = cluster.bootstrap_servers
    with Admin(servers) as admin:
        early = ConfigChange("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource.group(group): [early]})
    return ShareConsumer(
        servers, group_id=group, topics=[WHERE.topic], share_acknowledgement_mode="explicit"
    )


def test_a_state_with_a_slow_replica_holds_up_no_other() -> None:
    """Fails when one slow replica of the topic of states keeps every share group from its work."""
    with slow_replica(**{"share.coordinator.write.timeout.ms": VERY_LONG_MS}) as cluster:
        create(
            cluster, SHARE_GROUP_STATE_TOPIC, [2, 3], [2, 1], config={"min.insync.replicas": "1"}
        )
        create(cluster, WHERE.topic, [1])
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(WHERE.topic, b"job")
        groups = [next(groups_of(cluster, each)) for each in (SLOW, QUICK)]
        with (
            worker(cluster, groups[SLOW]) as slow,
            worker(cluster, groups[QUICK]) as quick,
            ThreadPoolExecutor() as threads,
        ):
            for each in (slow, quick):
                each.acknowledge(next(each))
            cluster.partition(2, 3)
            waiting = threads.submit(slow.commit)
            wait_for(cluster, 2, "DelayedWrite")
            assert quick.commit() == {WHERE: None}
            assert not waiting.done()
            cluster.heal()
            assert waiting.result(deadline_s(60)) == {WHERE: None}
