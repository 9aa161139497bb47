"""`Beans`: the metrics of a broker under the names that Kafka gives them.

The values come from the parts that own them; costly ones were counted where they happened. Series
of single partitions come only while the broker hosts no more than `metrics.max.partitions`: eleven
each would be most of a scrape otherwise. Their sums are always there.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.coordinator.group import GroupType
from odradek.handlers.request_metrics import RequestMetrics
from odradek.metrics import Meter, Sample, Value
from odradek.replication.partition import Partition
from odradek.server.monitoring.cluster_counts import CountedImage
from odradek.server.monitoring.idleness import Idleness
from odradek.storage.log.log import Log

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer

_SERVER: Final = "kafka.server"
_NETWORK: Final = "kafka.network"
_CONTROLLER: Final = "kafka.controller"
_GROUPS: Final = "kafka.coordinator.group"
_CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
MOST_SOFTWARE: Final = 200
OTHER: Final = "other"

# For these Kafka shows the rate of expired operations.
_EXPIRING: Final = {
    "Produce": "DelayedProduceMetrics",
    "Fetch": "DelayedFetchMetrics",
    "ShareFetch": "DelayedShareFetchMetrics",
}


class Beans:
    """Reads the parts of `server`; made before requests are served."""

    def __init__(self, server: "BrokerServer", requests: RequestMetrics) -> None:
        self._server: Final = server
        self._requests: Final = requests
        self._image: Final = CountedImage()
        self._followed: Final[dict[str, Meter]] = {}
        self._idleness: Final = Idleness(server.clock)

    @property
    def shows_partitions(self) -> bool:
        """Whether there are few enough for separate series."""
        server = self._server
        most: int = server.config["metrics.max.partitions"]
        return len(server.replicas.partitions) <= most

    def samples(self) -> Iterator[Sample | None]:
        """All of them; others may run between two, and where None takes the place of one."""
        yield from self._requests.samples()
        yield from self._server.replicas.traffic.samples()
        yield from self._server.replicas.isr_meters.samples()
        yield from self._of_broker()
        yield from self._of_network()
        yield from self._of_purgatories()
        yield from self._of_fetch_sessions()
        yield from self._of_controller()
        yield from self._of_groups()
        yield from self._of_transactions()
        yield from self._of_storage()
        yield from self._of_partitions()

    def _of_broker(self) -> Iterator[Sample]:
        server = self._server
        yield Sample(_SERVER, "KafkaServer", "BrokerState", int(server.lifecycle.state))
        idle = self._idleness.read()
        yield Sample(_SERVER, "KafkaRequestHandlerPool", "RequestHandlerAvgIdlePercent", idle)
        yield Sample(_NETWORK, "SocketServer", "NetworkProcessorAvgIdlePercent", idle)
        telemetry = server.client_metrics
        for name, value in (
            ("instance-count", len(telemetry)),
            ("unknown-subscription-request-count", telemetry.unknown_subscriptions),
        ):
            yield Sample(_SERVER, "client-metrics", name, value, is_attribute=True)

    def _of_network(self) -> Iterator[Sample]:
        sockets = self._server.sockets
        for name, open_now, accepted in sockets.connection_counts():
            tags = (("listener", name), ("networkProcessor", "0"))
            for what, value in (
                ("connection-count", open_now),
                ("connection-creation-total", accepted),
                ("connection-close-total", accepted - open_now),
            ):
                yield Sample(_SERVER, "socket-server-metrics", what, value, tags, True)
        software = self._server.client_metrics.software_counts()
        for (name, version), count in _bounded(software).items():
            tags = (("clientSoftwareName", name), ("clientSoftwareVersion", version))
            yield Sample(_SERVER, "socket-server-metrics", "connections", count, tags, True)
        memory = sockets.request_memory
        if memory.limited:
            yield Sample(_NETWORK, "SocketServer", "MemoryPoolAvailable", memory.left_bytes)
        # A request is handled when its turn comes; nothing queues.
        yield Sample(_NETWORK, "RequestChannel", "RequestQueueSize", 0)
        yield Sample(_NETWORK, "RequestChannel", "ResponseQueueSize", 0)

    def _of_purgatories(self) -> Iterator[Sample]:
        for each in self._server.purgatories():
            tags = (("delayedOperation", each.name),)
            kind = "DelayedOperationPurgatory"
            yield Sample(_SERVER, kind, "PurgatorySize", each.watched, tags)
            yield Sample(_SERVER, kind, "NumDelayedOperations", each.delayed, tags)
            type_of_expiries = _EXPIRING.get(each.name)
            if type_of_expiries is not None:
                meter = self._follow(each.name, each.stats.expired)
                yield Sample(_SERVER, type_of_expiries, "ExpiresPerSec", meter)

    def _of_fetch_sessions(self) -> Iterator[Sample]:
        sessions = self._server.fetch_sessions
        kind = "FetchSessionCache"
        yield Sample(_SERVER, kind, "NumIncrementalFetchSessions", len(sessions))
        cached = sessions.partition_count
        yield Sample(_SERVER, kind, "NumIncrementalFetchPartitionsCached", cached)
        evictions = self._follow(kind, sessions.evictions)
        yield Sample(_SERVER, kind, "IncrementalFetchSessionEvictionsPerSec", evictions)

    def _of_controller(self) -> Iterator[Sample]:
        server = self._server
        image = server.metadata.image
        counts = self._image.counts(image)
        is_controller = image.controller_id == server.config.broker_id
        values: list[tuple[str, Value]] = [
            ("ActiveControllerCount", int(is_controller)),
            ("GlobalTopicCount", counts.topics),
            ("GlobalPartitionCount", counts.partitions),
            ("OfflinePartitionsCount", counts.offline_partitions),
            ("PreferredReplicaImbalanceCount", counts.imbalanced_partitions),
            ("ActiveBrokerCount", len(image.brokers)),
            ("FencedBrokerCount", 0),
        ]
        for name, value in values:
            yield Sample(_CONTROLLER, "KafkaController", name, value)

    def _of_groups(self) -> Iterator[Sample]:
        kinds: Counter[str] = Counter()
        classic: Counter[str] = Counter()
        consumer: Counter[str] = Counter()
        offsets = 0
        for shard in self._server.coordinators.groups.coordinator.runtime.shards():
            offsets += shard.offset_store.count
            for group in shard.registry:
                kinds[group.type] += 1
                if group.type is GroupType.CLASSIC:
                    classic[group.state_name] += 1
                elif group.type is GroupType.CONSUMER:
                    consumer[group.state_name.lower()] += 1
        manager = "GroupMetadataManager"
        yield Sample(_GROUPS, manager, "NumGroups", kinds[GroupType.CLASSIC])
        yield Sample(_GROUPS, manager, "NumOffsets", offsets)
        for state in _CLASSIC_STATES:
            yield Sample(_GROUPS, manager, f"NumGroups{state}", classic[state])
        coordinator = "group-coordinator-metrics"
        for kind in GroupType:
            tags = (("protocol", str(kind)),)
            yield Sample(_SERVER, coordinator, "group-count", kinds[kind], tags, True)
        for state in ("empty", "assigning", "reconciling", "stable", "dead"):
            tags = (("state", state),)
            value = consumer[state]
            yield Sample(_SERVER, coordinator, "consumer-group-count", value, tags, True)

    def _of_transactions(self) -> Iterator[Sample | None]:
        late = producers = 0
        for partition in self._server.replicas.partitions:
            yield None
            if partition.log is not None:
                producers += len(partition.log.producers)
        now_ms = self._server.clock.wall_ms()
        longest_ms = self._server.config["transaction.max.timeout.ms"]
        for shard in self._server.coordinators.transactions.coordinator.shards():
            for transactional_id in tuple(shard.ongoing):
                value = shard.transactions.get(transactional_id)
                if value is not None and now_ms - value.start_timestamp_ms > longest_ms:
                    late += len(value.partitions or ())
        yield Sample(_SERVER, "ReplicaManager", "ProducerIdCount", producers)
        yield Sample(_SERVER, "ReplicaManager", "PartitionsWithLateTransactionsCount", late)

    def _of_storage(self) -> Iterator[Sample]:
        logs = self._server.logs
        offline = set(logs.offline_dirs)
        yield Sample("kafka.log", "LogManager", "OfflineLogDirectoryCount", len(offline))
        for directory in self._server.config.log_dirs:
            tags = (("logDirectory", directory),)
            is_offline = int(directory in offline)
            yield Sample("kafka.log", "LogManager", "LogDirectoryOffline", is_offline, tags)
        cleaner = logs.cleaner
        yield Sample("kafka.log", "LogCleaner", "cleaner-rounds", cleaner.running)
        for directory in self._server.config.log_dirs:
            tags = (("logDirectory", directory),)
            found = [logs.get(each) for each in cleaner.uncleanable]
            count = sum(log is not None and log.log_directory.path == directory for log in found)
            name = "uncleanable-partitions-count"
            yield Sample("kafka.log", "LogCleanerManager", name, count, tags)

    def _of_partitions(self) -> Iterator[Sample | None]:
        counts: Counter[str] = Counter()
        shows_partitions = self.shows_partitions
        partitions = self._server.replicas.partitions
        for partition in partitions:
            states = _states(partition)
            counts.update(states)
            if not shows_partitions:
                yield None
                continue
            where = partition.topic_partition
            tags = (("topic", where.topic), ("partition", str(where.partition)))
            if partition.log is not None:
                for name, value in _log_values(partition.log):
                    yield Sample("kafka.log", "Log", name, value, tags)
            if partition.is_leader:
                for name, value in _leader_values(partition, states):
                    yield Sample("kafka.cluster", "Partition", name, value, tags)
        reassigning = self._image.counts(self._server.metadata.image).reassigning_partitions
        values: list[tuple[str, Value]] = [
            ("PartitionCount", len(partitions)),
            ("LeaderCount", counts["leader"]),
            ("OfflineReplicaCount", counts["offline"]),
            ("UnderReplicatedPartitions", counts["under replicated"]),
            ("UnderMinIsrPartitionCount", counts["under min"]),
            ("AtMinIsrPartitionCount", counts["at min"]),
            ("ReassigningPartitions", reassigning),
        ]
        for name, each in values:
            yield Sample(_SERVER, "ReplicaManager", name, each)

    def _follow(self, name: str, count: int) -> Meter:
        """A meter of a part's plain counter; its rates are computed from look to look."""
        now_ms = self._server.clock.monotonic_ms()
        meter = self._followed.get(name)
        if meter is None:
            meter = self._followed[name] = Meter(now_ms)
        meter.mark(now_ms, count - meter.count)
        return meter


def _states(partition: Partition) -> list[str]:
    """The counts that a partition is part of."""
    in_sync, log = partition.in_sync_replicas, partition.log
    if log is None:
        return ["offline"]
    if in_sync is None:
        return []
    states = ["leader"]
    size = len(in_sync.committed)
    least = in_sync.effective_min_in_sync(log.config.min_insync_replicas)
    if size < in_sync.replica_count:
        states.append("under replicated")
    if size < least:
        states.append("under min")
    if size == least:
        states.append("at min")
    return states


def _log_values(log: Log) -> Iterator[tuple[str, int]]:
    yield "Size", log.segments.size_bytes
    yield "LogStartOffset", log.log_start_offset
    yield "LogEndOffset", log.log_end_offset
    yield "NumLogSegments", len(log.segments)


def _leader_values(partition: Partition, states: list[str]) -> Iterator[tuple[str, int]]:
    in_sync, log = partition.in_sync_replicas, partition.log
    assert in_sync is not None, f"{partition.topic_partition} is led here"
    assert log is not None, f"{partition.topic_partition} has a log, as it is led here"
    yield "UnderReplicated", int("under replicated" in states)
    yield "UnderMinIsr", int("under min" in states)
    yield "AtMinIsr", int("at min" in states)
    yield "InSyncReplicasCount", len(in_sync.committed)
    yield "ReplicasCount", in_sync.replica_count
    yield "LastStableOffsetLag", max(log.high_watermark - log.last_stable_offset, 0)


def _bounded(counts: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The commonest, and the sum of the others. Clients choose these words, so there may be as many
    as connections, and a client may also choose the name of that sum."""
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    bounded = dict(ordered[:MOST_SOFTWARE])
    rest = sum(count for _, count in ordered[MOST_SOFTWARE:])
    if rest:
        others = (OTHER, OTHER)
        bounded[others] = bounded.get(others, 0) + rest
    return bounded
