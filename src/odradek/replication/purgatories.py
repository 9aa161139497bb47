"""The purgatories of replication, and who is woken by what.

One purgatory for each kind of waiting, all under partitions' keys:

* an append wakes the fetches of its partition;
* what moves the high watermark, the ISR or a follower's log end wakes everything that waits
  for the partition, and so does a change of its leadership or its end.
"""

from odradek.purgatory import DelayedOperationPurgatory
from odradek.replication.keys import TopicPartitionOperationKey
from odradek.timer import Timer


class ReplicationPurgatories:
    """Where produces, fetches and deletions of records wait."""

    def __init__(
        self,
        timer: Timer,
        broker_id: int,
        *,
        produce_purge_interval: int = 1000,
        fetch_purge_interval: int = 1000,
        delete_records_purge_interval: int = 1,
    ) -> None:
        self.produce = DelayedOperationPurgatory("Produce", timer, broker_id, produce_purge_interval)
        self.fetch = DelayedOperationPurgatory("Fetch", timer, broker_id, fetch_purge_interval)
        self.delete_records = DelayedOperationPurgatory(
            "DeleteRecords", timer, broker_id, delete_records_purge_interval
        )

    def wake_fetches(self, key: TopicPartitionOperationKey) -> None:
        """Records have been appended."""
        self.fetch.check_and_complete(key)

    def wake_all(self, key: TopicPartitionOperationKey) -> None:
        """What is committed, or who leads, has changed."""
        self.fetch.check_and_complete(key)
        self.produce.check_and_complete(key)
        self.delete_records.check_and_complete(key)

    def shutdown(self) -> None:
        """Ends all waiting; nothing is answered any more."""
        self.fetch.shutdown()
        self.produce.shutdown()
        self.delete_records.shutdown()
