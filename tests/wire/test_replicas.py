"""Tests wait on a cluster for what its brokers do behind their answers."""

import pytest
from tests.wire import replicas
from tests.wire.libraries.test_transactions import (
    TIMEOUT_S,
    read_all,
    read_committed,
    transactional,
)

from odradek import Cluster


def test_a_commit_is_read_once_its_markers_are_written() -> None:
    """Tests of transactions would look for records that are not shown yet: `commit_transaction`
    returns when the coordinator has decided."""
    with Cluster(2, config={"transaction.state.log.num.partitions": 1}) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=1)
        servers = cluster.bootstrap_servers
        producer = transactional(servers, "id")
        with cluster.fail("WriteTxnMarkers", "NOT_LEADER_OR_FOLLOWER"):
            producer.begin_transaction()
            for index in range(2):
                producer.produce("t", b"%d" % index, partition=index)
            producer.commit_transaction(TIMEOUT_S)
            assert len(read_all(servers, "t", "read_committed")) < 2
        assert sorted(read_committed(servers, "t")) == ["0", "1"]


def test_every_broker_knows_a_topic_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests would ask a broker that has not heard of it, and hear that there is none."""
    monkeypatch.setattr(replicas, "REPLICAS", 2)
    with Cluster(2) as cluster:
        cluster.create_topic("t", partitions=2)
        addresses = cluster.bootstrap_servers.split(",")
        replicas.await_known(cluster.bootstrap_servers, "t", 2)
        assert [replicas._led(each, "t") for each in addresses] == [[0, 1], [0, 1]]
        cluster.delete_topic("t")
        replicas.await_forgotten(cluster.bootstrap_servers, "t")
        assert [replicas._led(each, "t") for each in addresses] == [[], []]
