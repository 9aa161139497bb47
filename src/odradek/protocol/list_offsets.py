"""ListOffsets, versions 0 to 11, in both directions.

Version notes: 0 asks for a number of segment starts before a timestamp and gets a list; 1
gets one offset with its timestamp; 2 adds the isolation level and the throttle time, 4 the
leader epoch, 6 is flexible, 7-9 and 11 give meaning to more negative timestamps (`-3` largest
timestamp, `-4` local start, `-5` last tiered, `-6` earliest pending upload), 10 adds the
time-out.
"""


class ListOffsetsPartition:
    """A question about one partition; `max_num_offsets` is asked by version 0 only."""

    def __init__(
        self,
        index: int,
        timestamp: int,
        current_leader_epoch: int = -1,
        max_num_offsets: int = 1,
    ) -> None:
        self.index = index
        self.timestamp = timestamp
        self.current_leader_epoch = current_leader_epoch
        self.max_num_offsets = max_num_offsets


class ListOffsetsTopic:
    """The questions about a topic."""

    def __init__(self, name: str, partitions: list[ListOffsetsPartition]) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsRequest:
    """A whole ListOffsets request."""

    def __init__(
        self,
        replica_id: int,
        topics: list[ListOffsetsTopic],
        isolation_level: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        self.replica_id = replica_id
        self.topics = topics
        self.isolation_level = isolation_level
        self.timeout_ms = timeout_ms


class ListOffsetsPartitionResponse:
    """The answer for one partition; `old_style_offsets` is sent in version 0 only."""

    def __init__(
        self,
        index: int,
        error_code: int,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
        old_style_offsets: list[int] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.old_style_offsets = old_style_offsets


class ListOffsetsTopicResponse:
    """The answers for a topic."""

    def __init__(self, name: str, partitions: list[ListOffsetsPartitionResponse]) -> None:
        self.name = name
        self.partitions = partitions


class ListOffsetsResponse:
    """A whole ListOffsets response."""

    def __init__(self, topics: list[ListOffsetsTopicResponse], throttle_time_ms: int = 0) -> None:
        self.topics = topics
        self.throttle_time_ms = throttle_time_ms
