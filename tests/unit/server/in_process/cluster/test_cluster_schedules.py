"""Schedules on three brokers: into a target that another one leads, and by a leader that is new."""

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.unit.server.in_process.cluster.slow_replicas import create, slow_replica, wait_for

import odradek

FOREVER_S = 60


def read(cluster, count, topic="orders"):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, FOREVER_S)]
    finally:
        consumer.close()


def schedule(cluster, values, target=None):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    headers = [("deliver-after", b"300ms")]
    if target is not None:
        headers.append(("deliver-to", target))
    for value in values:
        producer.produce("later", value, headers=headers)
    assert producer.flush(FOREVER_S) == 0


def test_a_new_leader_goes_on():
    """Fails when schedules die with the broker that led them, or go to its own topics only."""
    with odradek.Cluster(brokers=3) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("later", config={"schedule.target.topic": "orders"})
        leader = cluster.leader("later").id
        other = 1 + leader % 3
        if cluster.leader("orders").id == leader:
            cluster.move_leader("orders", to=other)
        schedule(cluster, [b"1", b"2"])
        assert read(cluster, 2) == [b"1", b"2"]
        schedule(cluster, [b"3", b"4"])
        cluster.kill(leader)
        assert read(cluster, 4) == [b"1", b"2", b"3", b"4"]


def test_a_target_with_a_slow_replica_holds_up_no_other():
    """Fails when one slow replica keeps everything that is due on its leader from delivery."""
    with slow_replica() as cluster:
        create(cluster, "slow", [2, 3])
        create(cluster, "quick", [2])
        create(cluster, "later", [1], config={"schedule.enable": "true"})
        cluster.partition(2, 3)
        schedule(cluster, [b"1"], "slow")
        wait_for(cluster, 2, "DelayedProduce")
        schedule(cluster, [b"2"], "quick")
        assert read(cluster, 1, "quick") == [b"2"]
        cluster.heal()
        assert read(cluster, 1, "slow") == [b"1"]
