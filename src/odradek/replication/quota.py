"""Whether replication traffic may flow now: the port that followers' fetches are held to.

A quota names the throttled partitions and says whether their rate has been used up. Only
followers outside the ISR are ever held back, so that a throttle cannot shrink the ISR.
What counts and over which window is the business of the floor that owns the quota.
"""

from mypy_extensions import mypyc_attr

from odradek.model import TopicPartition


@mypyc_attr(allow_interpreted_subclasses=True)
class ReplicationQuota:
    """Without limits; subclasses throttle."""

    def is_throttled(self, topic_partition: TopicPartition) -> bool:  # noqa: ARG002 - a port
        """Whether the partition is among those that the quota covers."""
        return False

    def is_exceeded(self) -> bool:
        """Whether covered partitions must wait."""
        return False

    def record(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Counts bytes sent to a follower of the partition."""
