"""Topics whose nodes have no id, but had one: a tool of Kafka before 2.8 has written them, maybe
while no broker lived. A starting broker knows the ids of its logs, and writes them back before the
controller can see its registration."""

from collections.abc import Callable, Mapping
from uuid import UUID

from odradek.metadata.zookeeper import znodes
from odradek.metadata.zookeeper.client import (
    Created,
    Failure,
    Node,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.reads import gather
from odradek.metadata.zookeeper.znodes import ZnodeError


def write_ids_back(
    zookeeper: ZooKeeperClient,
    broker_id: int,
    ids: Mapping[str, UUID],
    then: Callable[[], None],
    on_lost: Callable[[], None],
) -> None:
    """Calls `then` when the topics of `ids` that were ever led and have replicas at the broker have
    an id; `on_lost` instead when the session has ended meanwhile."""
    paths = [path for name in ids for path in _paths(name)]

    def on_nodes(nodes: Mapping[str, Node | None]) -> None:
        writes = [
            write
            for name, topic_id in ids.items()
            if (write := _write(name, topic_id, broker_id, *(nodes[path] for path in _paths(name))))
        ]
        left, is_lost = len(writes), False

        def on_committed(outcome: Created | Refusal) -> None:
            # Any other refusal: the node has been written meanwhile, and the controller handles it.
            nonlocal left, is_lost
            left -= 1
            is_lost |= isinstance(outcome, Refusal) and outcome.failure is Failure.SESSION_LOST
            if not left:
                (on_lost if is_lost else then)()

        if not writes:
            then()
        for write in writes:
            zookeeper.commit([write], on_committed)

    gather(zookeeper, paths, on_nodes, on_lost=on_lost)


def _paths(topic: str) -> tuple[str, str]:
    return znodes.topic_path(topic), znodes.partitions_path(topic)


def _write(
    topic: str, topic_id: UUID, broker_id: int, node: Node | None, folder: Node | None
) -> SetData | None:
    """Writes an id. A topic that was never led is new, so a log here belongs to an earlier one, and
    so does the log of a broker that is no replica."""
    if node is None or folder is None:
        return None
    try:
        content = znodes.read_topic(topic, node.data)
    except ZnodeError:
        return None
    is_replica = any(broker_id in each.replicas for each in content.assignments)
    if content.topic_id is not None or not is_replica:
        return None
    data = znodes.topic_json(topic_id, content.assignments)
    return SetData(znodes.topic_path(topic), data, node.version)
