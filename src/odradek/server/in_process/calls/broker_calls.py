"""The calls that `odradek.Broker` and `odradek.Cluster` offer a test, blocking and to await.

A call that blocks is for any thread but the brokers' own; its twin with `_async`, of which it is
made, is for any loop, the brokers' own and those of other threads. `broker_helpers` and
`group_helpers` answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.config import TOPIC_SETTINGS
from odradek.event_loop import waits_for
from odradek.model import TopicPartition
from odradek.replication.schedule.listing import Schedule
from odradek.server.in_process.arguments.settings import (
    check_topic_settings,
    refuse_arguments,
    setting_text,
)
from odradek.server.in_process.calls.broker_helpers import Data, Headers
from odradek.server.in_process.calls.group_helpers import STABLE, GroupState, Lag, Target
from odradek.server.in_process.calls.share_helpers import ShareGroupState
from odradek.server.in_process.loop_calls import LoopCalls

if TYPE_CHECKING:
    from odradek.tables.arrow import Table
    from odradek.tables.plan.moments import Moment

WAIT_S: Final = 10.0


class Pause:
    """A broker that stands still, until the end of the `with` block."""

    def __init__(self, resume: Callable[[], None]) -> None:
        self._resume: Final = resume

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self._resume()


class BrokerCalls(LoopCalls):
    """The calls about records, topics and groups."""

    # --- standing still -------------------------------------------------------------------------

    def pause(self) -> "Pause":
        """Makes the broker stand still: connections and requests are taken, none is answered, until
        `resume` or the end of `with broker.pause():`. A restart ends it too."""
        self._now(self._asked().pause)
        return Pause(self.resume)

    def resume(self) -> None:
        """Ends `pause`: requests that have come meanwhile are answered, in their order."""
        self._now(self._asked().resume)

    # --- records --------------------------------------------------------------------------------

    async def produce_async(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Appends a record; returns its partition and offset. Text becomes UTF-8, a dictionary
        or a list JSON.

        `timestamp` is in ms, by default the clock's time. Without a partition the key decides as
        in every client; without a key the shortest partition gets it. A topic that is missing is
        created where the broker's settings allow it.

        Raises:
            BrokerError: a client's record would be refused the same.
        """
        return await self._there(
            self._asked().produce(topic, value, key, headers, timestamp, partition)
        )

    produce = waits_for(produce_async)

    async def produce_many_async(
        self,
        topic: str,
        records: Iterable[Data | tuple[Data, Data]],
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """Appends values, or pairs of key and value, a batch for each partition; returns where
        each has gone. Otherwise as `produce`."""
        return await self._there(self._asked().produce_many(topic, records, partition))

    produce_many = waits_for(produce_many_async)

    async def records_async(
        self, topic: str, partition: int | None = None, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """All records of a topic or of one partition of it, by partition and offset.

        With `read_committed` without those of transactions that are open or were aborted.

        Raises:
            BrokerError: there is no such topic or partition.
        """
        return await self._there(self._asked().records(topic, partition, read_committed))

    records = waits_for(records_async)

    async def schedules_async(self, topic: str) -> list[Schedule]:
        """Everything that is pending in a schedule topic, in the order of the times at which it is
        due.

        Raises:
            BrokerError: there is no such topic.
            ValueError: it is no schedule topic.
        """
        return await self._there(self._asked().schedules(topic))

    schedules = waits_for(schedules_async)

    async def to_arrow_async(
        self,
        topic: str,
        partition: int | None = None,
        read_committed: bool = False,
        *,
        start: "Moment | None" = None,
        end: "Moment | None" = None,
        as_of: "Moment | None" = None,
        columns: Sequence[str] | None = None,
    ) -> "Table":
        """Returns `records` as an Arrow table with the columns of Spark's Kafka source: key, value,
        topic, partition, offset, timestamp, timestampType, headers; only some of them if `columns`
        names these.

        `start` and `end`, which is left out itself, are `earliest`, `latest`, a time (the first
        record that is not older), or offsets by partition: one that is not named is read from
        its beginning, or to its end. `as_of` is an end too, of the topic as it was: a partition
        that is not named was not there yet.

        Raises:
            ImportError: pyarrow is not installed.
            BrokerError: there is no such topic or partition.
            ValueError: there is no such column or moment, or both `end` and `as_of` are given.
        """
        from odradek.tables.plan.moments import Stretch

        return await self._there(
            self._asked().to_arrow(
                topic, partition, read_committed, Stretch(start, end, as_of), columns
            )
        )

    to_arrow = waits_for(to_arrow_async)

    async def to_pandas_async(
        self,
        topic: str,
        partition: int | None = None,
        read_committed: bool = False,
        *,
        start: "Moment | None" = None,
        end: "Moment | None" = None,
        as_of: "Moment | None" = None,
        columns: Sequence[str] | None = None,
        json: bool = False,
    ) -> Any:
        """Returns `to_arrow` as a data frame; raises as it does, and without pandas. With `json`
        the values are read as JSON objects, and there is a column for each of their names.

        Raises:
            ValueError: a value is no JSON object.
        """
        from odradek.tables.arrow import pandas_frame
        from odradek.tables.json_columns import check_has_values, with_json_columns

        if json:
            check_has_values(columns)
        table = await self.to_arrow_async(
            topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
        )
        frame = pandas_frame(table)
        return with_json_columns(frame) if json else frame

    to_pandas = waits_for(to_pandas_async)

    async def to_polars_async(
        self,
        topic: str,
        partition: int | None = None,
        read_committed: bool = False,
        *,
        start: "Moment | None" = None,
        end: "Moment | None" = None,
        as_of: "Moment | None" = None,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Returns `to_arrow` as a data frame of Polars; raises as it does, and without it."""
        from odradek.tables.polars_frames import polars_frame

        return polars_frame(
            await self.to_arrow_async(
                topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
            )
        )

    to_polars = waits_for(to_polars_async)

    async def wait_for_async(
        self, topic: str, n: int, timeout: float = WAIT_S, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """Returns all records of a topic as soon as there are `n`; the topic may come later, and a
        partition have no leader for a while.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            TimeoutError: there are fewer when the time is over.
            RuntimeError: the broker was stopped meanwhile.
        """
        return await self._there(self._asked().wait_for(topic, n, timeout, read_committed))

    wait_for = waits_for(wait_for_async)

    # --- topics ---------------------------------------------------------------------------------

    async def topics_async(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without Kafka's internal ones."""
        return await self._seen(self._asked().topics)

    topics = waits_for(topics_async)

    async def end_offsets_async(self) -> dict[TopicPartition, int]:
        """The end offset of each partition with a leader, without those of Kafka's internal
        topics."""
        return await self._seen(self._asked().end_offsets)

    end_offsets = waits_for(end_offsets_async)

    async def delete_topic_async(self, name: str) -> None:
        """Deletes a topic with its records.

        Raises:
            BrokerError: there is no such topic.
        """
        await self._there(self._asked().delete_topic(name))

    delete_topic = waits_for(delete_topic_async)

    async def configure_async(
        self, /, topic: str, config: Mapping[str, object] = {}, **mistyped: Never
    ) -> None:
        """Sets settings of a topic under Kafka's names; None takes one back to its default.

        Raises:
            BrokerError: there is no such topic, or a setting is illegal.
        """
        refuse_arguments(BrokerCalls.configure_async, mistyped, TOPIC_SETTINGS)
        check_topic_settings(config)
        settings = {
            name: None if value is None else setting_text(value)
            for name, value in (config or {}).items()
        }
        await self._there(self._asked().configure(topic, settings))

    configure = waits_for(configure_async)

    # --- groups ---------------------------------------------------------------------------------

    async def groups_async(self) -> dict[str, str]:
        """The groups with their states, as `kafka-consumer-groups.sh` shows them."""
        return await self._seen(self._asked().groups.states)

    groups = waits_for(groups_async)

    async def group_async(self, group: str) -> GroupState:
        """State and members of a group, with the partitions that each has been given; `Dead` and
        without members when there is no such group."""
        return await self._seen(lambda: self._asked().groups.describe(group))

    group = waits_for(group_async)

    async def share_group_async(self, group: str) -> ShareGroupState:
        """State and members of a share group, and for each partition that it has begun to read
        where it begins and which records are held: by whom, until when, delivered how often.
        `Dead` when there is no such group."""
        return await self._seen(lambda: self._asked().groups.shared.describe(group))

    share_group = waits_for(share_group_async)

    async def wait_for_group_async(
        self,
        group: str,
        state: str = STABLE,
        members: int | None = None,
        timeout: float = WAIT_S,
    ) -> GroupState:
        """Returns the group as soon as it is `Stable`, `Empty` or `Dead` as asked, and has as
        many members as asked; it may come into being later.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            ValueError: the state is one that a group only passes through.
            TimeoutError: the group is another one when the time is over.
            RuntimeError: the broker was stopped meanwhile.
        """
        return await self._there(self._asked().groups.wait_for(group, state, members, timeout))

    wait_for_group = waits_for(wait_for_group_async)

    async def lag_async(self, group: str) -> dict[TopicPartition, Lag]:
        """How many offsets a group is behind the end, for each partition that it has committed, and
        each of the topics that its members subscribe to: without a commit it is behind by all
        records, and its `is_committed` is False. A broker does not know what a consumer without a
        group reads, or one that `assign`s itself partitions and commits nothing.

        Raises:
            BrokerError: there is no such group, or nothing is known of how far it is: it has
                committed nothing and subscribes to no topic that exists.
        """
        return await self._seen(lambda: self._asked().groups.lag(group))

    lag = waits_for(lag_async)

    async def wait_for_lag_async(
        self, group: str, at_most: int = 0, timeout: float = WAIT_S
    ) -> dict[TopicPartition, Lag]:
        """Returns the lag as soon as the group is behind by at most so many offsets, in all its
        partitions together; it may come into being later.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            TimeoutError: it is behind by more when the time is over; the text says where.
            RuntimeError: the broker was stopped meanwhile.
        """
        return await self._there(self._asked().groups.wait_for_lag(group, at_most, timeout))

    wait_for_lag = waits_for(wait_for_lag_async)

    async def reset_async(
        self, group: str, to: Target, topics: Iterable[str] = ()
    ) -> dict[TopicPartition, int]:
        """Sets the committed offsets of a group without members; returns the new ones.

        `to` is `"earliest"`, `"latest"`, an offset (the nearest one that there is), a `datetime`
        (the first record from then on) or offsets by partition. Without topics it is done for the
        partitions that have a committed offset; with topics, or the name of one, for all of theirs,
        which makes the group if need be.

        Raises:
            BrokerError: the group has members, or no offsets and no topics were named.
        """
        return await self._there(self._asked().groups.reset(group, to, topics))

    reset = waits_for(reset_async)
