"""The two clusters under test: three brokers of ours on a ZooKeeper, three of Apache Kafka."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from tools.kafka_node import kafka_cluster
from tools.zookeeper_node import zookeeper_ensemble

from benchmarks.broker import DELETION_SECONDS, Target
from benchmarks.process_usage import cpu_seconds
from odradek.client.addresses import Address
from odradek.client.apis import ClientApi
from odradek.client.sync.connection import BlockingConnection
from odradek.protocol import messages
from odradek.testing.processes import ClusterProcess, ServerProcess

BROKERS = 3
HEAP = "512m"
PATIENCE_S = 180
POLL_S = 0.02
METADATA_TIMEOUT_S = 10
# A client that asks once more about a deleted topic would make it anew, with one replica.
NO_TOPICS_UNASKED = "auto.create.topics.enable=false"
DESCRIBE_QUORUM = ClientApi(55, "DescribeQuorum", 0, 0, 0)
QUORUM_TOPIC = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}


class Node:
    """A broker of a cluster: its id, its process, which keeps its port, and that port."""

    def __init__(self, node_id: int, process: ServerProcess, port: int) -> None:
        self.id = node_id
        self.process = process
        self.port = port


class ClusterTarget(Target):
    """Brokers under test, and what was measured of them together."""

    zookeeper = ""
    """Where its ZooKeeper is; empty where it has none."""

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        super().__init__(name, ",".join(f"127.0.0.1:{each.port}" for each in nodes), None)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def controller(self) -> int:
        """The id of the broker that decides at the moment."""
        raise NotImplementedError

    def cpu_s(self) -> float:
        """User and system time of all brokers so far."""
        return sum(cpu_seconds(each.process.pid) for each in self.nodes)

    def create(self, partitions: int = 1, replicas: int = BROKERS) -> str:
        """A fresh topic whose replicas are all in sync; `min.insync.replicas` is 2 with three."""
        return self._create(partitions, {"replication_factor": replicas}, min(replicas, 2))

    def create_on(self, node: Node) -> str:
        """A fresh topic of one partition, whose only replica lies there."""
        return self._create(1, {"replica_assignment": [[node.id]]}, 1)

    def _create(self, partitions: int, placing: dict[str, object], in_sync: int) -> str:
        self.topics += 1
        topic = f"benchmark-{os.getpid()}-{self.topics}"
        config = {"file.delete.delay.ms": "0", "min.insync.replicas": str(in_sync)}
        made = self.admin.create_topics(
            [NewTopic(topic, partitions, config=config, **placing)],  # type: ignore[arg-type]
            operation_timeout=60,
            request_timeout=PATIENCE_S,
        )
        made[topic].result(PATIENCE_S)
        self.await_in_sync(topic, partitions)
        return topic

    def delete(self, topic: str) -> None:
        """Gives disk and page cache back, for the next to use."""
        self.admin.delete_topics([topic], request_timeout=PATIENCE_S)[topic].result(PATIENCE_S)
        time.sleep(DELETION_SECONDS)

    def partitions(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of a topic in the cluster's metadata; none while nobody answers."""
        with contextlib.suppress(KafkaException):
            found = self.admin.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]
            return [found.partitions[number] for number in sorted(found.partitions)]
        return []

    def await_in_sync(self, topic: str, count: int | None = None) -> None:
        """Returns when each partition has a leader and all its replicas in sync."""

        def all_in_sync() -> bool:
            found = self.partitions(topic)
            return len(found) >= (count or 1) and all(
                each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in found
            )

        wait_until(all_in_sync, f"the replicas of {topic} are in sync")

    def led_by(self, topic: str, node_id: int) -> list[TopicPartition]:
        """The partitions of a topic that a broker leads."""
        return [
            TopicPartition(topic, each.id)
            for each in self.partitions(topic)
            if each.leader == node_id
        ]

    def node(self, node_id: int) -> Node:
        """The broker with that id."""
        return next(each for each in self.nodes if each.id == node_id)

    def other_than(self, node_id: int) -> Node:
        """A broker that is not the one with that id."""
        return next(each for each in self.nodes if each.id != node_id)


class OurCluster(ClusterTarget):
    """Three processes of ours, which elect a controller in ZooKeeper."""

    def __init__(self, nodes: Sequence[Node], zookeeper: str) -> None:
        super().__init__("odradek", nodes)
        self.zookeeper = zookeeper

    def controller(self) -> int:
        """The cluster's metadata."""
        return int(self.admin.list_topics(timeout=METADATA_TIMEOUT_S).controller_id)


class KafkaCluster(ClusterTarget):
    """Three processes of Kafka, whose controllers elect one of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__("kafka", nodes)

    def controller(self) -> int:
        """The leader of the quorum: metadata names any broker."""
        values = {"topics": [QUORUM_TOPIC]}
        address = Address("127.0.0.1", self.nodes[0].port)
        connection = BlockingConnection(address, client_id="benchmark", timeout_s=30)
        with contextlib.closing(connection):
            api = DESCRIBE_QUORUM
            body = [messages.encode_request(api.key, api.max_version, values)]
            frame, position = connection.request(api, api.max_version, body)
            answer = messages.decode_response(api.key, api.max_version, frame, position)
            return int(answer.topics[0].partitions[0].leader_id)


@contextlib.contextmanager
def our_cluster(session_ms: int) -> Iterator[ClusterTarget]:
    """Brokers and a ZooKeeper of one node in temporary folders."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-cluster-")))
        zookeeper = stack.enter_context(zookeeper_ensemble(1, home)).connect
        settings = (f"zookeeper.session.timeout.ms={session_ms}", NO_TOPICS_UNASKED)
        flags = [word for each in settings for word in ("--set", each)]
        cluster = stack.enter_context(ClusterProcess(home, zookeeper, *flags, brokers=BROKERS))
        nodes = [Node(number, each, each.port) for number, each in cluster.brokers.items()]
        yield OurCluster(nodes, zookeeper)


@contextlib.contextmanager
def peer_cluster(session_ms: int) -> Iterator[ClusterTarget]:
    """Nodes of Apache Kafka, each a broker and a controller."""
    name, _, value = NO_TOPICS_UNASKED.partition("=")
    settings = {
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(min(2000, session_ms // 4)),
        name: value,
    }
    with kafka_cluster(BROKERS, HEAP, settings) as servers:
        yield KafkaCluster([Node(n, server, server.port) for n, server in enumerate(servers, 1)])


def restart_all(nodes: Sequence[Node]) -> None:
    """Starts brokers that were stopped or killed, side by side."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.process.start(), nodes))


def wait_until(is_so: Callable[[], bool], what: str) -> float:
    """Looks again and again; the moment at which it is so.

    Raises:
        TimeoutError: it does not come to that.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if is_so():
            return time.monotonic()
        time.sleep(POLL_S)
    raise TimeoutError(f"After {PATIENCE_S} s it is not so that {what}")
