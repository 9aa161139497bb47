"""A produce with acks=all, waiting for the in-sync replicas to have its records.

Each partition is satisfied on its own: when every in-sync replica has reached the required
offset, when they have but too few are left, or when the question can no longer be asked here
(leadership moved, partition deleted, directory failed). The answer goes out once none is
pending, or at the time-out, and always carries every partition.

Until a partition is satisfied its error is REQUEST_TIMED_OUT, so that a time-out needs no further
work: pending partitions already have the right answer then.
"""

from typing import Final

from odradek.errors import BrokerError, ErrorCode
from odradek.purgatory import DelayedOperation
from odradek.replication.append import AppendResult, OnAppended
from odradek.replication.delayed.replica_states import ReplicaStates

_TIMED_OUT: Final = BrokerError(
    ErrorCode.REQUEST_TIMED_OUT, "not all in-sync replicas had the records in time"
)


class _AwaitedAppend:
    """One partition's append that replicas have yet to reach."""

    def __init__(self, result: AppendResult) -> None:
        self.result = result
        self.required_offset = result.last_offset + 1
        self.acks_pending = True

    def is_satisfied(self, replicas: ReplicaStates) -> bool:
        """Asks once; True when the partition's answer is known."""
        try:
            if not replicas.has_enough_replicas(self.result.topic_partition, self.required_offset):
                return False
            self.result.error_code = ErrorCode.NONE
            self.result.error_message = None
        except BrokerError as error:
            self.result.fail(error)
        self.acks_pending = False
        return True


class DelayedProduce(DelayedOperation):
    """Waits under the key of every partition whose append succeeded."""

    def __init__(
        self,
        timeout_ms: int,
        results: list[AppendResult],
        replicas: ReplicaStates,
        on_done: OnAppended,
    ) -> None:
        super().__init__(timeout_ms)
        self._results = results
        self._replicas = replicas
        self._on_done = on_done
        self._awaited = [
            _AwaitedAppend(result) for result in results if result.error_code == ErrorCode.NONE
        ]
        for awaited in self._awaited:
            awaited.result.fail(_TIMED_OUT)

    def try_complete(self) -> bool:
        """Checks the pending partitions; completes when there is none."""
        pending = False
        for awaited in self._awaited:
            if awaited.acks_pending and not awaited.is_satisfied(self._replicas):
                pending = True
        return not pending and self.force_complete()

    def on_complete(self) -> None:
        """Answers with every partition."""
        self._on_done(self._results)

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""

    def missing(self) -> str:
        """Names what it waits for, in words."""
        pending = [awaited for awaited in self._awaited if awaited.acks_pending]
        partitions = ", ".join(
            f"{awaited.result.topic_partition} to {awaited.required_offset}" for awaited in pending
        )
        return f"acks of {len(pending)} partitions: {partitions}"
