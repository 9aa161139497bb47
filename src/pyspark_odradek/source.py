"""`format("odradek")`: topics as tables, for batch and micro-batch reads, and for writes (`sink`).

Light to import, since Spark imports it in a fresh process just to find sources: only workers import
the code that reads and decodes. A reader is made on the driver, plans there, and travels to the
workers with nothing but its options.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.clock import Clock, SystemClock
from odradek.model import TopicPartition
from odradek.tables.errors import DataLoss
from odradek.tables.plan.offsets import (
    OffsetJson,
    PartitionOffsets,
    offsets_from_json,
    offsets_to_json,
    topic_ids_from_json,
    with_reader,
)
from odradek.tables.plan.options import ReadOptions
from odradek.tables.plan.ranges import ranges_between, share_budget
from pyspark_odradek.errors import in_one_sentence, telling_in_one_sentence
from pyspark_odradek.options import parse_columns, parse_options
from pyspark_odradek.schema import check_schema, spark_schema
from pyspark_odradek.tasks import ReadTask, tasks_for
from pyspark_odradek.workers import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.tables.plan.bounds import Bounds
    from odradek.tables.scan.leases import ReadLease

_log = logging.getLogger(__name__)


class DefaultSource(DataSource):
    """The data source; Spark finds it by its name in a module called `pyspark_...`."""

    @classmethod
    def name(cls) -> str:
        """The name to give `format`."""
        return "odradek"

    @in_one_sentence
    def schema(self) -> StructType:
        """The connector's columns, or those that the option `columns` names."""
        columns = spark_schema(parse_columns(self.options))
        freeze_imports()
        return columns

    @in_one_sentence
    def reader(self, schema: StructType) -> "BatchReader":
        """A batch read."""
        options = parse_options(self.options, streaming=False)
        kind = FilteredReader if options.filter_pushdown else BatchReader
        return kind(options, check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A micro-batch stream."""
        try:
            return StreamReader(parse_options(self.options, streaming=True), check_schema(schema))
        except ValueError as error:
            # If creating a reader fails, Spark trips over that and reports that instead.
            return RefusedStream(error)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A table that is written to topics."""
        from pyspark_odradek.sink import BatchWriter

        if overwrite:
            raise ValueError("a topic cannot be overwritten; use the mode append")
        from pyspark_odradek.sink_options import parse_sink_options

        return BatchWriter(parse_sink_options(self.options, streaming=False), schema)

    @in_one_sentence
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A stream that is written to topics."""
        from pyspark_odradek.sink import StreamWriter

        if overwrite:
            raise ValueError("a topic has no output mode complete; use append or update")
        from pyspark_odradek.sink_options import parse_sink_options

        return StreamWriter(parse_sink_options(self.options, streaming=True), schema)


class RefusedStream(DataSourceStreamReader):
    """A stream that these options do not allow: every call raises the reason."""

    def __init__(self, reason: ValueError) -> None:
        self._reason = reason

    @in_one_sentence
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Raises the reason."""
        raise self._reason

    @in_one_sentence
    def latestOffset(self, *_: object) -> OffsetJson:  # noqa: N802
        """Raises the reason, for a query with a checkpoint."""
        raise self._reason

    def read(self, _: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Returns no rows: nothing was planned."""
        raise self._reason


class BatchReader(DataSourceReader):
    """Reads between two bounds that are fixed when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        from odradek.tables.plan.bounds import open_bounds
        from odradek.tables.plan.planning import plan_batch
        from odradek.tables.scan.leases import new_lease_id, take_lease

        bounds = open_bounds(self._options)
        try:
            plan = plan_batch(bounds, self._options)
            lease = take_lease(bounds, self._options, plan.ranges, new_lease_id())
            return tasks_for(plan.ranges, plan.identity, self._options.min_partitions, lease)
        finally:
            bounds.close()
            freeze_imports()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a task, on a worker."""
        return _read(self._options, self._schema, partition)


class FilteredReader(BatchReader):
    """A batch read that gets the filters of its query; only on request.

    Spark 4.3 keeps the plan with the filters of one query for all later queries on the same
    DataFrame, and for the other side of a union or a join with itself: these would lack rows, and
    the source cannot notice. And Spark refuses readers that take filters unless it is configured to
    pass them.
    """

    @in_one_sentence
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Notes which rows need not be read; Spark applies all filters again."""
        from pyspark_odradek.filters import wanted_rows

        self._options = replace(self._options, wanted=wanted_rows(filters))
        return filters


class _Ends(NamedTuple):
    """How far topics go, and their ids."""

    offsets: PartitionOffsets
    topic_ids: Mapping[str, UUID]

    def to_json(self) -> OffsetJson:
        return offsets_to_json(self.offsets, self.topic_ids)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records since the last trigger; Spark keeps the offsets.

    An offset is the JSON of the connector's checkpoint: for every partition one past the last
    record read; with the ids of the topics, which the connector ignores. Lives on the driver as
    long as its query and is used by one thread.
    """

    def __init__(
        self, options: ReadOptions, schema: StructType, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock if clock is not None else SystemClock()
        self._last_batch_ms: int | None = None
        self._opened: Bounds | None = None
        self._target: _Ends | None = None
        self._latest_seen: _Ends | None = None
        # The lease of the last micro-batch.
        self._lease: ReadLease | None = None

    @in_one_sentence
    def initialOffset(self) -> OffsetJson:  # noqa: N802
        """Returns the offsets at which a query without a checkpoint begins."""
        from odradek.tables.plan.planning import starting_offsets

        partitions = self._bounds.partitions(self._options.selection)
        topic_ids = self._bounds.identity(_topics(partitions)).topic_ids
        offsets = starting_offsets(self._bounds, self._options, partitions)
        return offsets_to_json(offsets, topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger` in Spark's terms."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    @in_one_sentence
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fixes the end of a run that reads the available records."""
        self._target = self._latest()

    @in_one_sentence
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802
        """Returns the end of the next micro-batch; `start` again when there is nothing new."""
        end = self._next_end(start, limit)
        if end == start:
            # Spark asks when the last batch is done. A query that ends does not call `stop`: Spark
            # kills the process of its reader.
            self._replace_lease(None)
        return end

    def _next_end(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        ends = self._target if self._target is not None else self._latest()
        self._latest_seen = ends
        latest = ends.offsets
        anew = _made_anew(topic_ids_from_json(start), ends.topic_ids)
        self._report_made_anew(anew)
        begin = _without(anew, offsets_from_json(start))
        self._check_nothing_lost(begin, latest)
        unseen = latest.keys() - begin.keys()
        begin.update(self._first_offsets(unseen))
        # A new partition joins with its first record: without one there is no batch to make.
        end = {
            partition: offset
            for partition, offset in latest.items()
            if partition not in unseen or offset > begin[partition]
        }
        if self._is_too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = share_budget(begin, end, limit.max_rows)
        return offsets_to_json(end, ends.topic_ids)

    def _is_too_little(self, begin: PartitionOffsets, end: PartitionOffsets) -> bool:
        """Whether a batch is delayed until there are `minOffsetsPerTrigger` offsets, or
        `maxTriggerDelay` has passed.
        """
        least, now_ms = self._options.min_offsets_per_trigger, self._clock.monotonic_ms()
        if least is None:
            return False
        waiting = sum(max(0, offset - begin[partition]) for partition, offset in end.items())
        is_due = (
            self._last_batch_ms is None
            or now_ms - self._last_batch_ms >= self._options.max_trigger_delay_ms
        )
        if waiting < least and not is_due:
            return True
        self._last_batch_ms = now_ms
        return False

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802
        """Returns the ends of the topics, as last asked for; shown in Spark's progress."""
        if self._latest_seen is None:
            return None
        report, client = self._latest_seen.to_json(), self._options.client
        # Settings of brokers with other protocols than PLAINTEXT must not be shown.
        if client.bootstrap_servers is None or not client.security.is_plaintext:
            return report
        return with_reader(report, client.bootstrap_servers, self._options.group)

    @in_one_sentence
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: the same again whenever Spark repeats it."""
        from odradek.tables.plan.planning import cut
        from odradek.tables.scan.leases import new_lease_id, take_lease

        until = offsets_from_json(end)
        identity = self._bounds.identity(_topics(until))
        read, planned = topic_ids_from_json(start), topic_ids_from_json(end)
        # The connector may have planned the batch, and knows no ids.
        gone = _made_anew({**read, **planned}, identity.topic_ids)
        self._report_made_anew(gone)
        until = _without(gone, until)
        begin = _without(_made_anew(read, planned), offsets_from_json(start))
        begin.update(self._first_offsets(until.keys() - begin.keys()))
        ranges = cut(ranges_between(begin, until), self._options)
        self._replace_lease(take_lease(self._bounds, self._options, ranges, new_lease_id()))
        return tasks_for(ranges, identity, self._options.min_partitions, self._lease)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The records of a task, on a worker."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: OffsetJson) -> None:
        """Does nothing: a topic keeps its records after they were read."""

    def stop(self) -> None:
        """Releases the lease, and closes the connections of planning."""
        if self._opened is not None:
            self._replace_lease(None)
            self._opened.close()
            self._opened = None

    def _replace_lease(self, lease: "ReadLease | None") -> None:
        """Releases the lease of the last batch, once that of the next one is held."""
        if self._lease is not None:
            from odradek.tables.scan.leases import release_lease

            release_lease(self._bounds, self._lease)
        self._lease = lease

    @property
    def _bounds(self) -> "Bounds":
        from odradek.tables.plan.bounds import open_bounds

        if self._opened is None:
            self._opened = open_bounds(self._options, patiently=True)
        return self._opened

    def _latest(self) -> _Ends:
        partitions = self._bounds.partitions(self._options.selection)
        # Ids first: then no task reads up to offsets of a topic that was recreated since.
        topic_ids = self._bounds.identity(_topics(partitions)).topic_ids
        return _Ends(self._bounds.latest(partitions), topic_ids)

    def _first_offsets(self, partitions: set[TopicPartition]) -> PartitionOffsets:
        """Returns the first offsets of partitions that the stream has not seen before."""
        first = self._bounds.earliest(partitions) if partitions else {}
        late = sorted(partition for partition, offset in first.items() if offset > 0)
        if late:
            self._report_loss(f"{late[0]} is new and begins at {first[late[0]]}")
        return first

    def _check_nothing_lost(self, begin: PartitionOffsets, latest: PartitionOffsets) -> None:
        for partition, offset in begin.items():
            if partition not in latest:
                self._report_loss(f"{partition} is gone, it was read up to {offset}")
            elif latest[partition] < offset:
                self._report_loss(
                    f"{partition} was read up to {offset}, ends at {latest[partition]}"
                )

    def _report_made_anew(self, topics: Iterable[str]) -> None:
        for topic in sorted(topics):
            self._report_loss(f"{topic} was deleted and recreated")

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(what)
        _log.warning("%s; continuing with the records that are left", what)


def _topics(partitions: Iterable[TopicPartition]) -> set[str]:
    return {partition.topic for partition in partitions}


def _made_anew(known: Mapping[str, UUID], now: Mapping[str, UUID]) -> set[str]:
    """Returns the topics with another id than before; without ids there are none."""
    return {topic for topic, topic_id in known.items() if now.get(topic, topic_id) != topic_id}


def _without(topics: set[str], offsets: PartitionOffsets) -> PartitionOffsets:
    return {part: offset for part, offset in offsets.items() if part.topic not in topics}


def _read(
    options: ReadOptions, schema: StructType, partition: InputPartition
) -> "Iterator[pa.RecordBatch]":
    from pyspark.sql.pandas.types import to_arrow_schema

    from odradek.tables.scan.reading import read_ranges

    # Spark creates a partition itself if there is nothing to read.
    if isinstance(partition, ReadTask):
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        with telling_in_one_sentence():
            yield from read_ranges(
                options, partition.identity, arrow_schema, partition.ranges, partition.lease
            )
    # The first records have had the rest imported.
    freeze_imports()
