"""What `odradek.Broker` and `odradek.Cluster` offer a test, blocking and to await.

A call that blocks is for any thread but the brokers' own; its twin with `_async` is for any loop,
the brokers' own and those of other threads. `broker_helpers` and `group_helpers` answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.model import TopicPartition
from odradek.server.in_process.calls.broker_helpers import Data, Headers
from odradek.server.in_process.calls.group_helpers import STABLE, GroupState, Target
from odradek.server.in_process.loop_calls import LoopCalls
from odradek.server.in_process.settings import setting_text

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
        """Has the broker stand still: connections and requests are taken, none is answered, until
        `resume` or the end of `with broker.pause():`. A restart ends it too."""
        self._now(self._asked().pause)
        return Pause(self.resume)

    def resume(self) -> None:
        """Ends `pause`: what has come meanwhile is answered, in its order."""
        self._now(self._asked().resume)

    # --- records --------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Appends a record; returns its partition and offset. Text becomes UTF-8.

        `timestamp` is in ms, by default the clock's time. Without a partition the key decides as
        in every client; without a key the shortest partition gets it. A topic that is missing is
        created where the broker's settings allow it.

        Raises:
            BrokerError: a client's record would be refused the same.
        """
        work = self.produce_async(topic, value, key, headers, timestamp, partition)
        return self._run(work, "produce_async")

    async def produce_async(
        self,
        topic: str,
        value: Data,
        key: Data = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """`produce` to await."""
        return await self._there(
            self._asked().produce(topic, value, key, headers, timestamp, partition)
        )

    def produce_many(
        self,
        topic: str,
        records: Iterable[Data | tuple[Data, Data]],
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """Appends values, or pairs of key and value, a batch for each partition; returns where
        each has gone. Otherwise as `produce`."""
        return self._run(self.produce_many_async(topic, records, partition), "produce_many_async")

    async def produce_many_async(
        self,
        topic: str,
        records: Iterable[Data | tuple[Data, Data]],
        partition: int | None = None,
    ) -> list[tuple[int, int]]:
        """`produce_many` to await."""
        return await self._there(self._asked().produce_many(topic, records, partition))

    def records(
        self, topic: str, partition: int | None = None, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """All records of a topic or of one partition of it, by partition and offset.

        With `read_committed` without those of transactions that are open or were aborted.

        Raises:
            BrokerError: there is no such topic or partition.
        """
        return self._run(self.records_async(topic, partition, read_committed), "records_async")

    async def records_async(
        self, topic: str, partition: int | None = None, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """`records` to await."""
        return await self._there(self._asked().records(topic, partition, read_committed))

    def to_arrow(
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
        """What `records` gives, as an Arrow table with the columns of Spark's Kafka source: key,
        value, topic, partition, offset, timestamp, timestampType, headers; only some of them if
        `columns` names these.

        `start` and `end`, which is left out itself, are `earliest`, `latest`, a time (the first
        record that is not older), or offsets by partition: one that is not named is read from
        its beginning, or to its end. `as_of` is an end too, of the topic as it was: a partition
        that is not named was not there yet.

        Raises:
            ImportError: pyarrow is not installed.
            BrokerError: there is no such topic or partition.
            ValueError: there is no such column or moment, or both `end` and `as_of` are given.
        """
        work = self.to_arrow_async(
            topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
        )
        return self._run(work, "to_arrow_async")

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
        """`to_arrow` to await."""
        from odradek.tables.plan.moments import Stretch

        return await self._there(
            self._asked().to_arrow(
                topic, partition, read_committed, Stretch(start, end, as_of), columns
            )
        )

    def to_pandas(
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
        """What `to_arrow` gives, as a data frame; raises as it does, and without pandas."""
        work = self.to_pandas_async(
            topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
        )
        return self._run(work, "to_pandas_async")

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
    ) -> Any:
        """`to_pandas` to await."""
        table = await self.to_arrow_async(
            topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
        )
        return table.to_pandas()

    def to_polars(
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
        """What `to_arrow` gives, as a data frame of Polars; raises as it does, and without it."""
        work = self.to_polars_async(
            topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
        )
        return self._run(work, "to_polars_async")

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
        """`to_polars` to await."""
        from odradek.tables.arrow import polars_frame

        return polars_frame(
            await self.to_arrow_async(
                topic, partition, read_committed, start=start, end=end, as_of=as_of, columns=columns
            )
        )

    def wait_for(
        self, topic: str, n: int, timeout: float = WAIT_S, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """Returns all records of a topic as soon as there are `n`; the topic may come later.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            TimeoutError: there are fewer when the time is over.
            RuntimeError: the broker was stopped meanwhile.
        """
        return self._run(self.wait_for_async(topic, n, timeout, read_committed), "wait_for_async")

    async def wait_for_async(
        self, topic: str, n: int, timeout: float = WAIT_S, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """`wait_for` to await."""
        return await self._there(self._asked().wait_for(topic, n, timeout, read_committed))

    # --- topics ---------------------------------------------------------------------------------

    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without Kafka's internal ones."""
        return self._run(self.topics_async(), "topics_async")

    async def topics_async(self) -> dict[str, int]:
        """`topics` to await."""
        return await self._seen(self._asked().topics)

    def end_offsets(self) -> dict[TopicPartition, int]:
        """Where each partition that has a leader ends, without those of Kafka's internal topics."""
        return self._run(self.end_offsets_async(), "end_offsets_async")

    async def end_offsets_async(self) -> dict[TopicPartition, int]:
        """`end_offsets` to await."""
        return await self._seen(self._asked().end_offsets)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records.

        Raises:
            BrokerError: there is no such topic.
        """
        self._run(self.delete_topic_async(name), "delete_topic_async")

    async def delete_topic_async(self, name: str) -> None:
        """`delete_topic` to await."""
        await self._there(self._asked().delete_topic(name))

    def configure(self, topic: str, config: Mapping[str, object]) -> None:
        """Sets settings of a topic under Kafka's names; None takes one back to its default.

        Raises:
            BrokerError: there is no such topic, or a setting is illegal.
        """
        self._run(self.configure_async(topic, config), "configure_async")

    async def configure_async(self, topic: str, config: Mapping[str, object]) -> None:
        """`configure` to await."""
        settings = {
            name: None if value is None else setting_text(value) for name, value in config.items()
        }
        await self._there(self._asked().configure(topic, settings))

    # --- groups ---------------------------------------------------------------------------------

    def groups(self) -> dict[str, str]:
        """The groups with their states, as `kafka-consumer-groups.sh` shows them."""
        return self._run(self.groups_async(), "groups_async")

    async def groups_async(self) -> dict[str, str]:
        """`groups` to await."""
        return await self._seen(self._asked().groups.states)

    def group(self, group: str) -> GroupState:
        """State and members of a group, with the partitions that each has been given; `Dead` and
        without members when there is no such group."""
        return self._run(self.group_async(group), "group_async")

    async def group_async(self, group: str) -> GroupState:
        """`group` to await."""
        return await self._seen(lambda: self._asked().groups.describe(group))

    def wait_for_group(
        self,
        group: str,
        state: str = STABLE,
        members: int | None = None,
        timeout: float = WAIT_S,
    ) -> GroupState:
        """Returns the group as soon as it is `Stable`, `Empty` or `Dead` as wished, and has as
        many members as wished; it may come into being later.

        `timeout` is in seconds of real time, whatever the broker's clock.

        Raises:
            ValueError: the state is one that a group only passes through.
            TimeoutError: the group is another one when the time is over.
            RuntimeError: the broker was stopped meanwhile.
        """
        work = self.wait_for_group_async(group, state, members, timeout)
        return self._run(work, "wait_for_group_async")

    async def wait_for_group_async(
        self,
        group: str,
        state: str = STABLE,
        members: int | None = None,
        timeout: float = WAIT_S,
    ) -> GroupState:
        """`wait_for_group` to await."""
        return await self._there(self._asked().groups.wait_for(group, state, members, timeout))

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group is behind the end, for each partition with a committed one.

        Raises:
            BrokerError: there is no such group.
        """
        return self._run(self.lag_async(group), "lag_async")

    async def lag_async(self, group: str) -> dict[TopicPartition, int]:
        """`lag` to await."""
        return await self._seen(lambda: self._asked().groups.lag(group))

    def reset(
        self, group: str, to: Target, topics: Iterable[str] = ()
    ) -> dict[TopicPartition, int]:
        """Sets the committed offsets of a group without members; returns the new ones.

        `to` is `"earliest"`, `"latest"`, an offset (the nearest one that there is), a `datetime`
        (the first record from then on) or offsets by partition. Without topics it is done for the
        partitions that have a committed offset; with topics for all of theirs, which makes the
        group if need be.

        Raises:
            BrokerError: the group has members, or no offsets and no topics were named.
        """
        return self._run(self.reset_async(group, to, topics), "reset_async")

    async def reset_async(
        self, group: str, to: Target, topics: Iterable[str] = ()
    ) -> dict[TopicPartition, int]:
        """`reset` to await."""
        return await self._there(self._asked().groups.reset(group, to, topics))
