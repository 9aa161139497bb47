"""Faults on command, as `odradek.Broker` and `odradek.Cluster` offer them to a test.

Each call puts a fault into force at once and returns it. It ends with its `with` block, by `end`,
or when it has struck as often as it was to. From any thread, and from the brokers' own loop.
"""

from collections.abc import Collection
from typing import Final

from odradek.errors import ErrorCode
from odradek.event_loop import waits_for
from odradek.server.faults import Effect, Fault, Filter
from odradek.server.faults.fault import api_keys, error_code
from odradek.server.in_process.arguments.kinds import seconds, text_or_none, whole, whole_or_none
from odradek.server.in_process.loop_calls import LoopCalls

Apis = str | Collection[str] | None

WAIT_S: Final = 10.0
LED_APIS: Final = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords")
"""The errors that a broker answers only for partitions that it leads."""
WRITING_APIS: Final = (
    "Produce",
    "OffsetCommit",
    "TxnOffsetCommit",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "InitProducerId",
    "WriteTxnMarkers",
    "JoinGroup",
    "SyncGroup",
    "ConsumerGroupHeartbeat",
    "CreateTopics",
    "CreatePartitions",
)
"""The errors that are answered after a write."""


class FaultCalls(LoopCalls):
    """The calls. `broker_id` selects a broker, None all of them."""

    def fail(
        self,
        api: str | Collection[str],
        error: str | ErrorCode,
        times: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> Fault:
        """Answers requests of an API with an error of Kafka's, and does nothing of them.

        For Produce and Fetch only the selected partitions are refused, for all other APIs the whole
        request. The names are Kafka's: `"Produce"`, `"NOT_ENOUGH_REPLICAS"`.

        Raises:
            ValueError: there is no such API or error.
        """
        which = Filter(api_keys(api), topic, partition, group, client_id, broker_id)
        return self._put(Effect.REFUSE, which, times=times, error=error_code(error))

    def delay(
        self,
        ms: int,
        api: Apis = None,
        times: int | None = None,
        *,
        after: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> Fault:
        """Takes up requests `ms` later, or with `after` does them at once and answers later.

        The milliseconds are the broker's: on a manual clock they go by when it is moved.

        Raises:
            ValueError: there is no such API, or the delay is negative.
        """
        which = Filter(api_keys(api), topic, partition, group, client_id, broker_id)
        effect = Effect.DELAY_ANSWER if after else Effect.DELAY_REQUEST
        return self._put(effect, which, times=times, delay_ms=ms)

    def drop(
        self,
        api: Apis = None,
        times: int | None = None,
        *,
        after: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> Fault:
        """Closes the connection instead of answering: before anything is done, or with `after`
        when it is done and only the answer is missing.

        Raises:
            ValueError: there is no such API.
        """
        which = Filter(api_keys(api), topic, partition, group, client_id, broker_id)
        return self._put(Effect.DROP_ANSWER if after else Effect.DROP_REQUEST, which, times=times)

    def cut(
        self,
        api: Apis = None,
        times: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        broker_id: int | None = None,
    ) -> Fault:
        """Does what is asked, answers with the first half of the response, and closes.

        Raises:
            ValueError: there is no such API.
        """
        which = Filter(api_keys(api), topic, partition, group, client_id, broker_id)
        return self._put(Effect.CUT_ANSWER, which, times=times)

    def full_disk(self, *, broker_id: int | None = None) -> Fault:
        """Lets nothing more be written, as a full disk does: producers are answered
        KAFKA_STORAGE_ERROR, consumers are served. With the end of the fault there is room."""
        return self._put(Effect.FULL_DISK, Filter(broker_id=broker_id))

    def slow_disk(self, ms: int, *, broker_id: int | None = None) -> Fault:
        """Takes up what has to be written `ms` later, in the broker's time; see `delay`."""
        which = Filter(api_keys(WRITING_APIS), broker_id=broker_id)
        return self._put(
            Effect.DELAY_REQUEST, which, delay_ms=ms, name=f"slow disk, {ms} ms for a write"
        )

    def lose_leadership(self, topic: str, partition: int = 0) -> Fault:
        """Makes a partition's leader deny that it leads, while the metadata still names it: as when
        another broker has taken over and not everybody knows yet."""
        which = Filter(api_keys(LED_APIS), topic, partition)
        name = f"lost leadership of {topic}-{partition}"
        return self._put(Effect.REFUSE, which, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, name=name)

    @property
    def faults(self) -> "Faults":
        """The same calls in one place; called itself, it returns the faults in force."""
        return Faults(self)

    def end_faults(self) -> None:
        """Takes every fault out of force."""
        self._now(self._faults.end_all)

    async def wait_for_fault_async(
        self, fault: Fault, times: int = 1, timeout: float = WAIT_S
    ) -> None:
        """Returns when a fault has struck so often; `timeout` is in seconds of real time.

        Raises:
            TimeoutError: it has not by then.
        """
        count, limit_s = whole("times", times), seconds(timeout)
        await self._there(self._faults.struck(fault, count, limit_s))

    wait_for_fault = waits_for(wait_for_fault_async)

    def _put(
        self,
        effect: Effect,
        filter: Filter,
        *,
        times: int | None = None,
        error: ErrorCode = ErrorCode.NONE,
        delay_ms: int = 0,
        name: str = "",
    ) -> Fault:
        which = _checked(filter)
        count, wait_ms = whole_or_none("times", times), whole("ms", delay_ms)
        return self._now(
            lambda: self._faults.put(
                effect,
                which,
                self._end_fault,
                times=count,
                error=error,
                delay_ms=wait_ms,
                name=name,
            )
        )

    def _end_fault(self, fault: Fault) -> None:
        self._now(lambda: self._faults.end(fault))

    def _active_faults(self) -> tuple[Fault, ...]:
        return self._now(lambda: self._faults.active)


def _checked(filter: Filter) -> Filter:
    """The filter; one that no request could meet would be waited for in vain."""
    for argument in ("topic", "group", "client_id"):
        text_or_none(argument, getattr(filter, argument))
    if filter.partition is not None and filter.topic is None:
        raise ValueError("a partition is one of a topic: give topic, too")
    return filter._replace(
        partition=whole_or_none("partition", filter.partition),
        broker_id=whole_or_none("broker_id", filter.broker_id),
    )


class Faults:
    """`broker.faults`: `refuse`, `delay`, `drop`, `cut`, `disk_full`, `slow_disk`."""

    def __init__(self, calls: FaultCalls) -> None:
        self.refuse: Final = calls.fail
        self.delay: Final = calls.delay
        self.drop: Final = calls.drop
        self.cut: Final = calls.cut
        self.disk_full: Final = calls.full_disk
        self.slow_disk: Final = calls.slow_disk
        self._active: Final = calls._active_faults

    def __call__(self) -> tuple[Fault, ...]:
        """The faults in force, the oldest first; each says in words what it does."""
        return self._active()
