"""Topics whose nodes have no id, but had one: a tool of Kafka before 2.8 has written them. Only
brokers with logs of such a topic may know its id. A broker writes it back when it starts, before
the controller can see its registration, and when a controller's full request does not name the
topic."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
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
from odradek.metadata.zookeeper.reads import gather, gather_children
from odradek.metadata.zookeeper.znodes import TopicNode, ZnodeError
from odradek.model import TopicPartition


class _TopicWithoutId(NamedTuple):
    """A topic whose node has no id, and the version of the node."""

    name: str
    node: TopicNode
    version: int


def write_ids_back(
    zookeeper: ZooKeeperClient,
    broker_id: int,
    ids: Mapping[str, UUID],
    then: Callable[[], None],
    on_lost: Callable[[], None],
) -> None:
    """Calls `then` when the topics of `ids` that were ever led, and of which the broker is a
    replica or in sync, have an id; `on_lost` instead when the session has ended meanwhile."""
    paths = [path for name in ids for path in _paths(name)]
    topics: list[_TopicWithoutId] = []

    def on_nodes(nodes: Mapping[str, Node | None]) -> None:
        for name in ids:
            topics.extend(_without_id(name, *(nodes[path] for path in _paths(name))))
        folders = [znodes.partitions_path(each.name) for each in topics]
        gather_children(zookeeper, folders, on_partitions, on_lost=on_lost)

    def on_partitions(folders: Sequence[str]) -> None:
        gather(zookeeper, [f"{each}/state" for each in folders], on_states, on_lost=on_lost)

    def on_states(states: Mapping[str, Node | None]) -> None:
        writes = [
            _with_id(each, ids[each.name])
            for each in topics
            if _is_replica(broker_id, each.node) or _is_in_sync(broker_id, each.name, states)
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


def _without_id(topic: str, node: Node | None, folder: Node | None) -> list[_TopicWithoutId]:
    """The topic, if its id is missing. A topic that was never led is new, so a log here belongs to
    an earlier one."""
    if node is None or folder is None:
        return []
    try:
        content = znodes.read_topic(topic, node.data)
    except ZnodeError:
        return []
    return [_TopicWithoutId(topic, content, node.version)] if content.topic_id is None else []


def _is_replica(broker_id: int, node: TopicNode) -> bool:
    return any(broker_id in each.replicas for each in node.assignments)


def _is_in_sync(broker_id: int, topic: str, states: Mapping[str, Node | None]) -> bool:
    """Whether a state of the topic names the broker: the tool may have written other replicas."""
    folder = znodes.partitions_path(topic)
    found = [node for path, node in states.items() if path.startswith(f"{folder}/")]
    return any(broker_id in _isr(topic, node) for node in found if node is not None)


def _isr(topic: str, state: Node) -> Sequence[int]:
    try:
        return znodes.read_state(TopicPartition(topic, 0), state.data).isr
    except ZnodeError:
        return ()


def _with_id(topic: _TopicWithoutId, topic_id: UUID) -> SetData:
    data = znodes.topic_json(topic_id, topic.node.assignments)
    return SetData(znodes.topic_path(topic.name), data, topic.version)
