"""`ShareConsumer`, blocking."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from odradek.client.aio import share_consumer as aio
from odradek.client.aio.consuming.handout import Records
from odradek.client.aio.share_consumer import AcknowledgementCallback
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.deserializers import Deserializer
from odradek.client.sync.callbacks import CallingBack
from odradek.client.sync.shell import asks
from odradek.event_loop import waits_for


class ShareConsumer(CallingBack[aio.ShareConsumer]):
    """Reads records of a share group, for one thread.

        with ShareConsumer("localhost:9092", group_id="workers", topics=["jobs"],
                           share_acknowledgement_mode="explicit") as consumer:
            for record in consumer:
                with consumer.process(record):
                    ...

    A record of the iteration is a call to the loop's thread; `poll` brings many by one. With
    explicit acknowledgement records of `getone` may be dealt with at the same time. The callback of
    acknowledgements is called inside of this consumer's calls.
    """

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        topics: Iterable[str] = (),
        **settings: Any,
    ) -> None:
        """Does not connect yet.

        Raises:
            ValueError: a setting is illegal.
            UsageError: there is no group.
        """
        super().__init__(
            lambda: aio.ShareConsumer(
                bootstrap_servers,
                config,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                topics=topics,
                **settings,
            )
        )

    def close(self, timeout_ms: int = 30_000) -> None:
        """Sends acknowledgements, releases the other records, leaves the group, disconnects.

        Without an answer within `timeout_ms` brokers and group notice by themselves.
        """
        self._close(lambda: self._client.close(timeout_ms))

    subscribe = asks(aio.ShareConsumer.subscribe)
    unsubscribe = waits_for(aio.ShareConsumer.unsubscribe)
    subscription = asks(aio.ShareConsumer.subscription)

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """Returns the records at hand, by partition; waits for them up to a time.

        Raises:
            KafkaError: as `getmany`.
        """
        return self._read(
            lambda: self._client.getmany(timeout_ms=timeout_ms, max_records=max_records)
        )

    def getmany(self, *, timeout_ms: int = 0, max_records: int | None = None) -> Records:
        """As `poll`.

        Raises:
            UsageError: with explicit acknowledgement, records of the last call were not answered.
                BadRecord: a record cannot be read; it has been released or rejected. KafkaError:
                reading cannot continue as it is.
        """
        return self.poll(timeout_ms, max_records)

    acknowledge = asks(aio.ShareConsumer.acknowledge)
    commit = waits_for(aio.ShareConsumer.commit)
    commit_async = asks(aio.ShareConsumer.commit_async)

    def process(self, record: ConsumerRecord) -> AbstractContextManager[ConsumerRecord]:
        """Accepts the record at the end of a `with` block; releases it, for another attempt, when
        the block raises. Explicit acknowledgements of the block stay.

        Raises:
            UsageError: acknowledgement is implicit.
        """
        return self._within(self._client.process(record))

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """The callback gets, inside a later read, commit or close, the offsets of each partition
        that a broker has accepted, or the error."""

        async def told() -> None:
            later = None if callback is None else partial(self._call_later, callback)
            self._client.set_acknowledgement_commit_callback(later)

        self._wait(told())

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The lock duration by the last response of a broker; None before."""

        async def asked() -> int | None:
            return self._client.acquisition_lock_timeout_ms

        return self._wait(asked())

    def _put_back(self, found: Records) -> None:
        self._client._put_back(found)
