"""The purgatories of replication, and the events that wake their operations.

One purgatory for each kind of waiting, all under partitions' keys:

* an append wakes the fetches of its partition;
* a change of the high watermark, the ISR, a follower's log end or the leadership wakes everything
  that waits for the partition, and so does its deletion.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.delayed.keys import TopicPartitionOperationKey
from odradek.timer import Timer

# Why operations are tried again.
APPEND: Final = "append"
COMMITTED: Final = "high watermark"
FOLLOWER_FETCH: Final = "follower fetch"
ROLE: Final = "role"


class ReplicationPurgatories:
    """The purgatories of produces, fetches, share fetches and deletions of records."""

    def __init__(
        self,
        timer: Timer,
        broker_id: int,
        *,
        produce_purge_interval: int = 1000,
        fetch_purge_interval: int = 1000,
        delete_records_purge_interval: int = 1,
        share_fetch_purge_interval: int = 1000,
    ) -> None:
        self.produce = DelayedOperationPurgatory(
            "Produce", timer, broker_id, produce_purge_interval
        )
        self.fetch = DelayedOperationPurgatory("Fetch", timer, broker_id, fetch_purge_interval)
        self.delete_records = DelayedOperationPurgatory(
            "DeleteRecords", timer, broker_id, delete_records_purge_interval
        )

        self.share_fetch = DelayedOperationPurgatory(
            "ShareFetch", timer, broker_id, share_fetch_purge_interval
        )

    def __iter__(self) -> Iterator[DelayedOperationPurgatory]:
        """All of them."""
        return iter((self.fetch, self.share_fetch, self.produce, self.delete_records))

    def wake_fetches(self, key: TopicPartitionOperationKey, reason: str) -> None:
        """Tries the partition's fetches again; `reason` is for the statistics."""
        self.fetch.check_and_complete(key, reason)
        self.share_fetch.check_and_complete(key, reason)

    def wake_all(self, key: TopicPartitionOperationKey, reason: str) -> None:
        """Tries everything that waits for the partition again."""
        self.fetch.check_and_complete(key, reason)
        self.share_fetch.check_and_complete(key, reason)
        self.produce.check_and_complete(key, reason)
        self.delete_records.check_and_complete(key, reason)

    def wake_each(self, keys: Sequence[TopicPartitionOperationKey], reason: str) -> None:
        """Tries everything that waits for any of these partitions again, once."""
        if not keys:
            return
        for purgatory in self:
            purgatory.check_all_and_complete(keys, reason)

    def shutdown(self) -> None:
        """Ends all waiting; nothing is answered any more."""
        for purgatory in self:
            purgatory.shutdown()
