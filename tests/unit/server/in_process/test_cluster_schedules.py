"""Schedules on three brokers: into a target that another one leads, and by a leader that is new."""

from confluent_kafka import Consumer, Producer, TopicPartition

import odradek

FOREVER_S = 60


def read(cluster, count):
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        return [message.value() for message in consumer.consume(count, FOREVER_S)]
    finally:
        consumer.close()


def schedule(cluster, values):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce("later", value, headers=[("deliver-after", b"300ms")])
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
