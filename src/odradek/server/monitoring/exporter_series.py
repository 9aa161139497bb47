"""The series of kafka_exporter: offsets of partitions, and groups' committed offsets.

That program is one for a cluster, and asks it from outside. Here every broker serves the partitions
that it leads and the groups that it coordinates, and the controller the cluster-wide series, so the
brokers of a cluster together serve what one exporter would.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.coordinator.group_shard import GroupShard
from odradek.model import TopicPartition
from odradek.network import format_host_port
from odradek.server.monitoring.exposition import GAUGE, Exposition

if TYPE_CHECKING:
    from odradek.replication.partition import Partition
    from odradek.server.broker import BrokerServer

_PARTITION: Final = "kafka_topic_partition_"
_GROUP: Final = "kafka_consumergroup_"


def add_exporter_series(
    out: Exposition, server: "BrokerServer", *, shows_partitions: bool
) -> Iterator[None]:
    """Adds them; others may run whenever it yields."""
    image = server.metadata.image
    if image.controller_id == server.config.broker_id:
        out.add("kafka_brokers", GAUGE, (), len(image.brokers))
        for broker in image.brokers.values():
            endpoint = broker.endpoints[0]
            address = format_host_port(endpoint.host, endpoint.port)
            tags = (("address", address), ("id", str(broker.id)))
            out.add("kafka_broker_info", GAUGE, tags, 1)
        for name, topic in image.topics.items():
            out.add("kafka_topic_partitions", GAUGE, (("topic", name),), len(topic.partitions))
            yield
    if shows_partitions:
        for partition in server.replicas.partitions:
            _add_partition(out, server, partition)
            yield
    for shard in server.coordinators.groups.coordinator.runtime.shards():
        for group_id in shard.offset_store.group_ids():
            yield from _add_group(out, server, shard, group_id, shows_partitions)


def _add_partition(out: Exposition, server: "BrokerServer", partition: "Partition") -> None:
    log, in_sync = partition.log, partition.in_sync_replicas
    image = server.metadata.image.partition(partition.topic_partition)
    if log is None or in_sync is None or image is None:
        return
    where = partition.topic_partition
    tags = (("partition", str(where.partition)), ("topic", where.topic))
    for name, value in (
        ("current_offset", log.high_watermark),
        ("oldest_offset", log.log_start_offset),
        ("in_sync_replica", len(in_sync.committed)),
        ("leader", partition.leader_id),
        ("leader_is_preferred", int(partition.leader_id == image.preferred_leader)),
        ("replicas", in_sync.replica_count),
        ("under_replicated_partition", int(len(in_sync.committed) < in_sync.replica_count)),
    ):
        out.add(f"{_PARTITION}{name}", GAUGE, tags, value)


def _add_group(
    out: Exposition,
    server: "BrokerServer",
    shard: GroupShard,
    group_id: str,
    shows_partitions: bool,
) -> Iterator[None]:
    """Lags are of partitions that are led here: nobody else knows where they end."""
    group = shard.registry.get(group_id)
    of_group = ("consumergroup", group_id)
    if group is not None:
        out.add(f"{_GROUP}members", GAUGE, (of_group,), group.member_count)
    for topic, offsets in list(shard.offset_store.of_group(group_id).items()):
        lag_sum = offset_sum = 0
        is_lag_known = False
        for index, committed in list(offsets.items()):
            tags = (of_group, ("partition", str(index)), ("topic", topic))
            offset_sum += committed.offset
            if shows_partitions:
                out.add(f"{_GROUP}current_offset", GAUGE, tags, committed.offset)
            end_offset = end_offset_of(server, TopicPartition(topic, index))
            if end_offset is not None:
                is_lag_known = True
                lag = max(end_offset - committed.offset, 0)
                lag_sum += lag
                if shows_partitions:
                    out.add(f"{_GROUP}lag", GAUGE, tags, lag)
        yield
        of_topic = (of_group, ("topic", topic))
        out.add(f"{_GROUP}current_offset_sum", GAUGE, of_topic, offset_sum)
        if is_lag_known:
            out.add(f"{_GROUP}lag_sum", GAUGE, of_topic, lag_sum)


def end_offset_of(server: "BrokerServer", where: TopicPartition) -> int | None:
    """How far consumers can read a partition; None where it is not led here."""
    partition = server.replicas.partitions.find(where)
    if partition is None or partition.log is None or not partition.is_leader:
        return None
    return partition.log.high_watermark
