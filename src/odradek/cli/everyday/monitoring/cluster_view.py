"""The data behind `odradek top`: a cluster at one moment, and the rates between two.

All of it comes through Kafka's protocol, so any Kafka can be watched. "Waiting" lists what keeps
clients waiting: groups that rebalance, open transactions, missing replicas and leaders.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.cli.everyday.group_lags import GroupLag, group_lags
from odradek.cli.everyday.words import counted, duration_words
from odradek.client import Admin
from odradek.client.core.admin_types import TransactionDescription
from odradek.client.core.consuming.list_offsets import LATEST
from odradek.client.core.metadata import Node, TopicMetadata
from odradek.client.errors import KafkaError
from odradek.model import NO_LEADER, TopicPartition

_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_UNSETTLED_STATES = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True)
class Sample:
    """A cluster at one moment; `sizes` has bytes by partition and broker."""

    at_ms: int
    wall_ms: int
    cluster_id: str
    controller_id: int
    nodes: tuple[Node, ...]
    topics: Mapping[str, TopicMetadata]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[tuple[int, TopicPartition], int]
    groups: tuple[GroupLag, ...]
    transactions: tuple[TransactionDescription, ...]


@dataclass(frozen=True)
class BrokerRow:
    """A broker; `records_per_s` counts the partitions that it leads."""

    node: Node
    is_controller: bool
    leads: int
    replicas: int
    size_bytes: int | None
    records_per_s: float | None


@dataclass(frozen=True)
class TopicRow:
    """A topic; the size counts one copy of each partition, the leader's."""

    name: str
    is_internal: bool
    partitions: int
    records_per_s: float | None
    bytes_per_s: float | None
    size_bytes: int | None


@dataclass(frozen=True)
class GroupRow:
    """A group; `records_per_s` is what it commits."""

    name: str
    state: str
    members: int
    lag: int | None
    records_per_s: float | None


@dataclass(frozen=True)
class View:
    """The rows to show, the busiest first. A size that no broker reports is None."""

    cluster_id: str
    wall_ms: int
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    waiting: tuple[str, ...]


async def take_sample(admin: Admin, at_ms: int, wall_ms: int) -> Sample:
    """Samples a cluster.

    Raises:
        KafkaError: it does not answer.
    """
    cluster = await admin.describe_cluster()
    topics = await admin.list_topics()
    led = [
        TopicPartition(name, index)
        for name, topic in topics.items()
        for index in topic.led_partitions
    ]
    answers = await admin.list_offsets(dict.fromkeys(led, LATEST))
    directories = await admin.describe_log_dirs()
    sizes = {
        (broker_id, partition): replica.size_bytes
        for broker_id, found in directories.items()
        if not isinstance(found, KafkaError)
        for directory in found
        for partition, replica in directory.replicas.items()
    }
    groups = await group_lags(admin, [each.group_id for each in await admin.list_groups()])
    return Sample(
        at_ms,
        wall_ms,
        cluster.cluster_id,
        cluster.controller_id,
        cluster.nodes,
        topics,
        {
            each: answer.offset
            for each, answer in answers.items()
            if not isinstance(answer, KafkaError)
        },
        sizes,
        tuple(groups),
        tuple(await _open_transactions(admin)),
    )


async def _open_transactions(admin: Admin) -> list[TransactionDescription]:
    """Lists open transactions; none where a broker does not know of transactions."""
    try:
        listed = await admin.list_transactions(states=_OPEN_STATES)
        ids = [each.transactional_id for found in listed.values() for each in found]
        described = await admin.describe_transactions(ids)
    except KafkaError:
        return []
    return [each for each in described.values() if not isinstance(each, KafkaError)]


def view_of(sample: Sample, before: Sample | None) -> View:
    """The view of a sample, with rates since the one before."""
    rates = _Rates(sample, before)
    topics = [_topic_row(each, sample, rates) for each in sample.topics.values()]
    groups = [_group_row(each, rates) for each in sample.groups]
    return View(
        sample.cluster_id,
        sample.wall_ms,
        tuple(_broker_row(node, sample, rates) for node in sorted(sample.nodes, key=_id)),
        tuple(sorted(topics, key=_busy)),
        tuple(sorted(groups, key=_behind)),
        tuple(_waiting(sample)),
    )


def _id(node: Node) -> int:
    return node.id


def _busy(row: TopicRow) -> tuple[float, bool, str]:
    return -(row.records_per_s or 0), row.is_internal, row.name


def _behind(row: GroupRow) -> tuple[float, str]:
    return -(row.lag or 0), row.name


class _Rates:
    """Records and bytes a second between two samples; None without the earlier one."""

    def __init__(self, sample: Sample, before: Sample | None) -> None:
        self._sample = sample
        self._before = before
        self._seconds = 0.0 if before is None else (sample.at_ms - before.at_ms) / 1000
        self._consumed = (
            {} if before is None else {each.group.group_id: each.consumed for each in before.groups}
        )

    def records(self, partitions: list[TopicPartition]) -> float | None:
        """Counts the records appended to these topics."""
        if self._before is None or self._seconds <= 0:
            return None
        ends, earlier = self._sample.ends, self._before.ends
        # A recreated topic starts at zero.
        moved = sum(
            max(0, ends[each] - earlier.get(each, 0)) for each in partitions if each in ends
        )
        return moved / self._seconds

    def bytes(self, now_bytes: int | None, keys: list[tuple[int, TopicPartition]]) -> float | None:
        """How fast these replicas grew, at least 0: retention does not count as negative growth."""
        if now_bytes is None or self._before is None or self._seconds <= 0:
            return None
        return (
            max(0, now_bytes - sum(self._before.sizes.get(key, 0) for key in keys)) / self._seconds
        )

    def consumed(self, group: GroupLag) -> float | None:
        """Counts the records a group committed."""
        earlier = self._consumed.get(group.group.group_id)
        if earlier is None or self._seconds <= 0:
            return None
        return max(0, group.consumed - earlier) / self._seconds


def _broker_row(node: Node, sample: Sample, rates: _Rates) -> BrokerRow:
    leads = [
        TopicPartition(topic.name, index)
        for topic in sample.topics.values()
        for index, each in topic.partition_metadata.items()
        if each.leader == node.id
    ]
    theirs = [size for (broker_id, _), size in sample.sizes.items() if broker_id == node.id]
    replicas = sum(
        node.id in each.replicas
        for topic in sample.topics.values()
        for each in topic.partition_metadata.values()
    )
    return BrokerRow(
        node,
        node.id == sample.controller_id,
        len(leads),
        replicas,
        sum(theirs) if theirs or not replicas else None,
        rates.records(leads),
    )


def _topic_row(topic: TopicMetadata, sample: Sample, rates: _Rates) -> TopicRow:
    keys = [
        (each.leader, TopicPartition(topic.name, index))
        for index, each in topic.partition_metadata.items()
    ]
    known = [sample.sizes[key] for key in keys if key in sample.sizes]
    size_bytes = sum(known) if known else None
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partition_metadata),
        rates.records([partition for _, partition in keys]),
        rates.bytes(size_bytes, keys),
        size_bytes,
    )


def _group_row(group: GroupLag, rates: _Rates) -> GroupRow:
    each = group.group
    return GroupRow(each.group_id, each.state, len(each.members), group.lag, rates.consumed(group))


def _waiting(sample: Sample) -> list[str]:
    """Returns a sentence for each cause that keeps clients waiting."""
    said = [
        f"group {group.group.group_id} waits for its members: {group.group.state}"
        for group in sample.groups
        if group.group.state in _UNSETTLED_STATES
    ]
    for each in sample.transactions:
        age = duration_words(max(0, sample.wall_ms - each.start_ms))
        said.append(
            f"transaction {each.transactional_id} is {each.state} since {age}: "
            f"readers of {counted(len(each.partitions), 'partition')} wait"
        )
    for topic in sample.topics.values():
        for index, partition in sorted(topic.partition_metadata.items()):
            if partition.leader == NO_LEADER:
                said.append(f"{topic.name}-{index} waits for a leader")
            elif len(partition.in_sync_replicas) < len(partition.replicas):
                missing = sorted(set(partition.replicas) - set(partition.in_sync_replicas))
                brokers = ", ".join(map(str, missing))
                said.append(f"{topic.name}-{index} waits for the replicas on {brokers}")
    return said
