"""A broker with a seed: the same ids in every run."""

import odradek


def ids(broker: odradek.Broker) -> tuple[str, ...]:
    """The ids that a broker made up, of the cluster and of a topic."""
    with broker:
        broker.create_topic("orders")
        topic = broker._running().metadata.image.topic("orders")
        assert topic is not None
        return broker.cluster_id, str(topic.topic_id)


def test_the_same_seed_gives_the_same_ids() -> None:
    """A failure that a test has seen could not be looked at again."""
    assert ids(odradek.Broker(seed=7)) == ids(odradek.Broker(seed=7))


def test_other_seeds_and_none_give_others() -> None:
    """Brokers of one test would take each other's topics for their own."""
    assert len({ids(odradek.Broker(seed=seed)) for seed in (7, 8, None, None)}) == 4


def test_a_cluster_with_a_seed_places_replicas_the_same() -> None:
    """Which broker leads decides what a test of failures sees."""

    def layout() -> tuple[object, ...]:
        with odradek.Cluster(brokers=3, seed=5) as cluster:
            cluster.create_topic("orders", partitions=4, replication_factor=2)
            return tuple(cluster.partition_state("orders", each).replicas for each in range(4))

    assert layout() == layout()
