"""The bounds of partitions, from a broker or from its files.

Both have the same interface, so that planning does not know which of them it uses. With a `path`
and `kafka.bootstrap.servers` the broker gives the ends, up to the last committed record, and only
the records come from the files.
"""

import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from odradek.client.sync import Cluster
from odradek.clock import SystemClock
from odradek.errors import BrokerError, ErrorCode
from odradek.model import INTERNAL_TOPICS, TopicPartition
from odradek.protocol.direct.list_offsets import RENEWED_LEASE, LeaseTerms
from odradek.suggestions import did_you_mean
from odradek.tables.errors import MissingData, WrongPath
from odradek.tables.plan.identity import Identity, check_cluster, describe_log_dirs, topic_id_of
from odradek.tables.plan.offsets import EARLIEST, LATEST, PartitionOffsets
from odradek.tables.plan.options import ReadOptions, TopicSelection
from odradek.tables.scan.directory import DataDirectory

_log = logging.getLogger(__name__)


class Bounds:
    """The partitions of a topic selection, and offsets in them."""

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """The selected partitions, in order.

        Raises:
            BrokerError, MissingData: a named topic does not exist.
        """
        raise NotImplementedError

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """The first offset of each."""
        raise NotImplementedError

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """The offset after the last one that may be read."""
        raise NotImplementedError

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time; `None` where there is none."""
        raise NotImplementedError

    def identity(self, topics: Iterable[str], /) -> Identity:
        """The ids of these topics and of their cluster.

        Raises:
            WrongPath: a directory is not there, or not of the cluster.
        """
        raise NotImplementedError

    def hold(
        self,
        lease_id: str,
        owner: str,
        duration_ms: int,
        offsets: Mapping[TopicPartition, int],
    ) -> bool:
        """Takes a lease on the records from these offsets on; for 0 ms, gives it back.

        `RENEWED_LEASE` renews an existing one.

        False if the source gives no leases.

        Raises:
            BrokerError, MissingData, OSError: it was refused.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Closes the source."""
        raise NotImplementedError


def open_bounds(options: ReadOptions, *, patiently: bool = False) -> Bounds:
    """Opens the bounds for these options: the broker's, unless only a path is given."""
    if options.client.bootstrap_servers is None:
        return SegmentBounds(DataDirectory(options.log_dirs))
    cluster = open_cluster(options, patiently=patiently)
    return BrokerBounds(cluster, options.read_committed, options.log_dirs)


def open_cluster(options: ReadOptions, *, patiently: bool) -> Cluster:
    """A cluster by the client options.

    `patiently` is for a running read, which waits until brokers are back; a new one may have the
    wrong address, and gets an error sooner.
    """
    client = options.client
    assert client.bootstrap_servers is not None, "checked with the options"
    patience_ms = client.patience_ms if patiently else 0
    return Cluster(
        client.bootstrap_servers,
        client_id=client.client_id,
        request_timeout_ms=client.request_timeout_ms,
        api_timeout_ms=max(patience_ms, client.request_timeout_ms),
        limited_by=(
            client.patience_named
            if patience_ms > client.request_timeout_ms
            else client.request_timeout_named
        ),
        security=client.security.security(),
    )


class BrokerBounds(Bounds):
    """Asks the leaders of the partitions."""

    def __init__(
        self, cluster: Cluster, read_committed: bool, log_dirs: tuple[str, ...] = ()
    ) -> None:
        self._cluster = cluster
        self._read_committed = read_committed
        self._log_dirs = log_dirs

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """Asks for metadata; a pattern does not match internal topics."""
        if selection.pattern is None:
            names = selection.names or {wanted.topic for wanted in selection.assignment}
            topics = self._cluster.topics(names)
        else:
            everything = self._cluster.topics()
            topics = {
                name: topic
                for name, topic in everything.items()
                if selection.takes(name) and not topic.is_internal
            }
        existing = [part for name in sorted(topics) for part in topics[name].partitions]
        return _select(existing, selection)

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Log start offsets."""
        return self._ends(partitions, EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """High watermarks, or last stable offsets for committed reads."""
        return self._ends(partitions, LATEST)

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Looked up by the leaders."""
        return self._cluster.list_offsets(times_ms, read_committed=self._read_committed)

    def identity(self, topics: Iterable[str]) -> Identity:
        """The ids in the cluster's metadata; the directories have to belong to this cluster."""
        found = {name: self._topic_id(name) for name in topics}
        log_dirs = describe_log_dirs(self._log_dirs)
        check_cluster(log_dirs, self._cluster.cluster_id)
        ids = {name: topic_id for name, topic_id in found.items() if topic_id is not None}
        return Identity(self._cluster.cluster_id, ids, log_dirs)

    def hold(
        self,
        lease_id: str,
        owner: str,
        duration_ms: int,
        offsets: Mapping[TopicPartition, int],
    ) -> bool:
        """Asks the in-sync replicas, so the next leader holds the records too."""
        self._cluster.hold(LeaseTerms(lease_id, owner, duration_ms), offsets)
        return True

    def close(self) -> None:
        """Closes the connections."""
        self._cluster.close()

    def _topic_id(self, name: str) -> UUID | None:
        """The topic's id; None for a deleted topic, about which the reader decides."""
        try:
            return self._cluster.retrying(lambda: self._cluster.topic(name)).topic_id
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    def _ends(self, partitions: Iterable[TopicPartition], end: int) -> PartitionOffsets:
        questions = dict.fromkeys(partitions, end)
        found = self._cluster.list_offsets(questions, read_committed=self._read_committed)
        return {partition: offset or 0 for partition, offset in found.items()}


class SegmentBounds(Bounds):
    """Looks into a data directory; the end is the high watermark of the checkpoint."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """Lists directories; a pattern does not match internal topics."""
        existing = sorted(
            part for part in self._directory.partitions() if selection.takes(part.topic)
        )
        if not selection.assignment:
            self._check_complete(existing)
        if selection.pattern is not None:
            return [part for part in existing if part.topic not in INTERNAL_TOPICS]
        known = {part.topic for part in self._directory.partitions()}
        missing = [
            f"there is no topic {name!r} in the path{did_you_mean(name, known)}"
            for name in sorted(set(selection.names) - known)
        ]
        if missing:
            raise MissingData("; ".join(missing))
        return _select(existing, selection)

    def _check_complete(self, existing: Iterable[TopicPartition]) -> None:
        """Checks that no partition of a topic lies elsewhere, as far as a directory can tell.

        Raises:
            WrongPath: one does.
        """
        numbers: dict[str, set[int]] = {}
        for topic, number in existing:
            numbers.setdefault(topic, set()).add(number)
        counts = self._directory.partition_counts()
        for topic, found in numbers.items():
            missing = set(range(counts.get(topic, max(found) + 1))) - found
            if missing:
                raise WrongPath(
                    f"path: partition {min(missing)} of {topic} is not there; name all log.dirs of "
                    "the broker, or kafka.bootstrap.servers instead of path if it is one of several"
                )
        if not counts:
            _log.warning(
                "only the partitions that lie in the data directory are read: a broker that runs, "
                "or is one of several, may have others elsewhere; name its brokers as well"
            )

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Log start offsets."""
        return self._directory.log_start_offsets(partitions)

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """High watermarks from the checkpoint."""
        written = self._directory.high_watermarks()
        # A partition too young to be in the checkpoint has nothing that is known to stay.
        starts = self._directory.log_start_offsets(partitions)
        return {part: max(written.get(part, 0), start) for part, start in starts.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Looked up in time indexes and batches."""
        ends = self.latest(times_ms)
        return {
            part: self._directory.partition(part).offset_for_time(time_ms, ends[part])
            for part, time_ms in times_ms.items()
        }

    def identity(self, topics: Iterable[str]) -> Identity:
        """The ids in the directory's files."""
        wanted = set(topics)
        ids = {
            part.topic: topic_id_of(files.directory)
            for part, files in self._directory.partitions().items()
            if part.topic in wanted
        }
        known = {name: topic_id for name, topic_id in ids.items() if topic_id is not None}
        return Identity(None, known, describe_log_dirs(self._directory.log_dirs))

    def hold(
        self,
        lease_id: str,
        owner: str,
        duration_ms: int,
        offsets: Mapping[TopicPartition, int],
    ) -> bool:
        """Writes the lease beside the segments, if their broker heeds leases."""
        from odradek.storage.files import OsFileSystem
        from odradek.storage.leases import Lease, release_lease, renew_lease, write_lease

        if not self._directory.heeds_leases:
            return False
        now_ms = SystemClock().wall_ms()
        file_system = OsFileSystem(max_open_files=1)
        for partition, offset in offsets.items():
            path = self._directory.partition(partition).directory
            if duration_ms <= 0:
                release_lease(file_system, path, lease_id)
            elif offset == RENEWED_LEASE:
                renew_lease(file_system, path, lease_id, now_ms + duration_ms, now_ms)
            else:
                lease = Lease(lease_id, owner, offset, now_ms + duration_ms)
                write_lease(file_system, path, lease, now_ms)
        return True

    def close(self) -> None:
        """Does nothing: nothing is held open."""


def _select(existing: list[TopicPartition], selection: TopicSelection) -> list[TopicPartition]:
    if not selection.assignment:
        return existing
    missing = sorted(set(selection.assignment) - set(existing))
    if missing:
        raise MissingData(f"there is no partition {', '.join(map(str, missing))}")
    return list(selection.assignment)
