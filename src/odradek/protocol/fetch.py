"""Fetch, versions 0 to 18, in both directions.

A response is a list of buffers: the records that the log handed out are passed on as they
are, with what stands between them as `bytes`, so that the network can write them without
copying.

Version notes: 1 adds the throttle time, 3 the size limit of the whole response, 4 the
isolation level, the last stable offset and the aborted transactions, 5 the log start offset,
7 fetch sessions, 9 the leader epoch, 11 racks, 12 is flexible and adds the last fetched epoch
and diverging epochs, 13 names topics by id, 15 moves the replica id to a tag, 16 tells where
current leaders are, 17 the follower's directory, 18 the follower's high watermark.
"""

from typing import Final
from uuid import UUID

from odradek.protocol.primitives import Buffer, NodeEndpoint

UNKNOWN_HIGH_WATERMARK: Final = 9223372036854775807


class FetchPartition:
    """From where, and how much of one partition."""

    def __init__(
        self,
        index: int,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        replica_directory_id: UUID | None = None,
        high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    ) -> None:
        self.index = index
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


class FetchTopic:
    """A topic by name (versions 0-12) or by id (from 13); the other one is `None`."""

    def __init__(
        self, name: str | None, topic_id: UUID | None, partitions: list[FetchPartition]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class ForgottenTopic:
    """Partitions to drop from a fetch session; the topic is named as in `FetchTopic`."""

    def __init__(self, name: str | None, topic_id: UUID | None, partitions: list[int]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchRequest:
    """A whole Fetch request; `session_epoch` -1 asks for no session."""

    def __init__(
        self,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        topics: list[FetchTopic],
        max_bytes: int = 0x7FFFFFFF,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: list[ForgottenTopic] | None = None,
        rack_id: str = "",
        cluster_id: str | None = None,
        replica_epoch: int = -1,
    ) -> None:
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.topics = topics
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.forgotten: list[ForgottenTopic] = forgotten if forgotten is not None else []
        self.rack_id = rack_id
        self.cluster_id = cluster_id
        self.replica_epoch = replica_epoch


class FetchPartitionResponse:
    """What one partition had to give.

    `records` are buffers that follow one another; none means no records. `aborted` is
    (producer id, first offset) pairs, or `None` for a reader of uncommitted records.
    """

    def __init__(
        self,
        index: int,
        error_code: int,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        aborted: list[tuple[int, int]] | None = None,
        preferred_read_replica: int = -1,
        records: list[Buffer] | None = None,
        diverging_epoch: int = -1,
        diverging_end_offset: int = -1,
        current_leader_id: int = -1,
        current_leader_epoch: int = -1,
        snapshot_end_offset: int = -1,
        snapshot_epoch: int = -1,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.aborted = aborted
        self.preferred_read_replica = preferred_read_replica
        self.records: list[Buffer] = records if records is not None else []
        self.diverging_epoch = diverging_epoch
        self.diverging_end_offset = diverging_end_offset
        self.current_leader_id = current_leader_id
        self.current_leader_epoch = current_leader_epoch
        self.snapshot_end_offset = snapshot_end_offset
        self.snapshot_epoch = snapshot_epoch


class FetchTopicResponse:
    """The answers for a topic, named as the request named it."""

    def __init__(
        self,
        name: str | None,
        topic_id: UUID | None,
        partitions: list[FetchPartitionResponse],
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = partitions


class FetchResponse:
    """A whole Fetch response."""

    def __init__(
        self,
        topics: list[FetchTopicResponse],
        error_code: int = 0,
        session_id: int = 0,
        throttle_time_ms: int = 0,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.topics = topics
        self.error_code = error_code
        self.session_id = session_id
        self.throttle_time_ms = throttle_time_ms
        self.node_endpoints: list[NodeEndpoint] = (
            node_endpoints if node_endpoints is not None else []
        )
