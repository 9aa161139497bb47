"""A share fetch that found nothing to hand out, waiting for that or for its time-out.

It waits under the name of every share partition, where records come back, and of every partition,
where new ones come.
"""

from collections.abc import Callable

from odradek.purgatory import DelayedOperation
from odradek.replication.share.fetch import (
    OnShareFetched,
    ShareFetchParams,
    ShareFetchPartition,
    ShareFetchResult,
)


class DelayedShareFetch(DelayedOperation):
    """`has_enough` looks, `collect` hands out."""

    def __init__(
        self,
        params: ShareFetchParams,
        partitions: list[ShareFetchPartition],
        has_enough: Callable[[ShareFetchParams, list[ShareFetchPartition]], bool],
        collect: Callable[[ShareFetchParams, list[ShareFetchPartition]], list[ShareFetchResult]],
        on_done: OnShareFetched,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self.params = params
        self._partitions = partitions
        self._has_enough = has_enough
        self._collect = collect
        self._on_done: OnShareFetched | None = on_done

    def try_complete(self) -> bool:
        """Completes when there are enough records, or an error."""
        return self._has_enough(self.params, self._partitions) and self.force_complete()

    def give_up(self) -> None:
        """Answers without handing anything out: the session has ended, or the connection."""
        self._partitions = []
        self.force_complete()

    def on_complete(self) -> None:
        """Hands out the available records and answers."""
        on_done, self._on_done = self._on_done, None
        partitions, self._partitions = self._partitions, []
        if on_done is not None:
            on_done(self._collect(self.params, partitions))

    def on_expiration(self) -> None:
        """Does nothing: `on_complete` has answered."""

    def missing(self) -> str:
        """Names what it waits for, in words."""
        return f"records for {self.params.member_id} of share group {self.params.group_id}"
