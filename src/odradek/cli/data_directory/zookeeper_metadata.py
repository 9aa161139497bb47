"""Reads an Apache Kafka's metadata from ZooKeeper: topics, settings, producer ids, and what its
clients may do.

`odradek import` uses it while Kafka is stopped and its ZooKeeper runs. Nothing is written. A topic
whose deletion Kafka has not yet carried out counts as deleted.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from odradek.cli.data_directory.zookeeper_access import read_access
from odradek.kafka_files.kraft_image import KafkaMetadata, KafkaTopic
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.connection import require_kazoo
from odradek.protocol.uuids import uuid_of

if TYPE_CHECKING:
    from odradek.metadata.zookeeper import ZooKeeperSettings

_TOPICS = "/brokers/topics"
# A node's value as JSON, None where there is no such node.
_Ask = Callable[[str], Any]


def read_zookeeper(settings: "ZooKeeperSettings", cluster_id: str | None) -> KafkaMetadata:
    """The metadata of a cluster. Without `cluster_id` it cannot be checked whether ZooKeeper serves
    the right cluster.

    Raises:
        MetadataStoreError: no server answers, it is another cluster's, or not Kafka's.
    """
    require_kazoo()
    from kazoo.exceptions import KazooException, NoNodeError

    from odradek.metadata.zookeeper.connection.connecting import connect, new_client

    def read(path: str) -> bytes | None:
        try:
            return bytes(client.get(path)[0] or b"")
        except NoNodeError:
            return None

    def ask(path: str) -> Any:
        data = read(path)
        return json.loads(data) if data else None

    def names_in(path: str) -> list[str]:
        try:
            return sorted(client.get_children(path))
        except NoNodeError:
            return []

    with ExitStack() as stack:
        client = new_client(settings)
        connect(client, settings)
        stack.callback(client.close)
        stack.callback(client.stop)
        try:
            if cluster_id is not None:
                _check_cluster(ask("/cluster/id"), cluster_id)
            topics = sorted(set(names_in(_TOPICS)) - set(names_in("/admin/delete_topics")))
            kafka = _read(ask, topics)
            kafka.access = read_access(read, names_in)
            return kafka
        except (KazooException, ValueError, KeyError, TypeError) as error:
            raise MetadataStoreError(f"ZooKeeper {settings.connect}: {error!r}") from error


def _check_cluster(found: Any, cluster_id: str) -> None:
    held = None if found is None else found["id"]
    if held != cluster_id:
        raise MetadataStoreError(
            f"the directories belong to the cluster {cluster_id}, ZooKeeper's is {held}"
        )


def _read(ask: _Ask, topics: list[str]) -> KafkaMetadata:
    kafka = KafkaMetadata()
    for name in topics:
        held = ask(f"{_TOPICS}/{name}")
        topic = KafkaTopic(name, _topic_id(held))
        for partition in held["partitions"]:
            state = ask(f"{_TOPICS}/{name}/partitions/{partition}/state")
            topic.leader_epochs[int(partition)] = 0 if state is None else state["leader_epoch"]
        kafka.topics[topic.topic_id] = topic
        settings = ask(f"/config/topics/{name}")
        kafka.configs[name] = {} if settings is None else settings["config"]
    block = ask("/latest_producer_id_block")
    kafka.next_producer_id = 0 if block is None else int(block["block_end"]) + 1
    return kafka


def _topic_id(held: Any) -> UUID:
    """The topic's id; Kafka before 2.8 gave none."""
    return uuid_of(held["topic_id"]) if "topic_id" in held else uuid4()
