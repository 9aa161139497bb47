"""`Topic`: a topic as a table in this process, without Spark.

    orders = Topic("orders", bootstrap_servers="127.0.0.1:9092")
    orders.to_arrow(start=datetime(2026, 11, 22, tzinfo=UTC), columns=["key", "value"])
    now = orders.offsets()                # an offset for every partition: a moment to keep
    orders.to_pandas(as_of=now)           # the same records, whenever it is asked

With `path`, a broker's data directory on this machine, records are read from its segments, and
with `bootstrap_servers` beside it the broker says where they end.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from odradek.tables.columns import check_columns
from odradek.tables.json_columns import check_has_values, with_json_columns
from odradek.tables.plan.bounds import open_bounds
from odradek.tables.plan.moments import Moment, Stretch, plan_stretch
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection

if TYPE_CHECKING:
    from odradek.tables.arrow import RecordBatch, Table

_CLIENT_ID: Final = "odradek-tables"


class Topic:
    """A topic to read; every call opens and closes its own connections."""

    def __init__(
        self,
        name: str,
        *,
        bootstrap_servers: str | None = None,
        path: str | Sequence[str] | None = None,
        read_committed: bool = False,
        allow_loss: bool = False,
    ) -> None:
        """`allow_loss` skips records that are gone before they are read, with a warning.

        Raises:
            ValueError: neither servers nor a path are given, or a path alone for committed reads.
        """
        if bootstrap_servers is None and path is None:
            raise ValueError("say where the topic is: bootstrap_servers, path or both")
        if read_committed and path is not None:
            raise ValueError("read_committed needs the broker to read from: leave out path")
        log_dirs = (path,) if isinstance(path, str) else tuple(path or ())
        self._options: Final = ReadOptions(
            TopicSelection(names=(name,)),
            ClientOptions(bootstrap_servers, client_id=_CLIENT_ID),
            log_dirs=log_dirs,
            fail_without_match=False,
            fail_on_data_loss=not allow_loss,
            read_committed=read_committed,
        )

    def offsets(self, at: Moment = "latest") -> dict[int, int]:
        """The offset of every partition at a moment, to be used as a moment itself.

        Raises:
            BrokerError, MissingData: there is no such topic, or nobody to ask.
        """
        with closing(open_bounds(self._options)) as bounds:
            plan = plan_stretch(bounds, self._options, Stretch(start="earliest", end=at))
        return {part.partition: offset for part, offset in plan.ends.items()}

    def batches(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        as_of: Moment | None = None,
        columns: Sequence[str] | None = None,
    ) -> "Iterator[RecordBatch]":
        """The records from `start` up to, and without, `end`, by partition and offset.

        A moment is `earliest`, `latest`, a time, or an offset for partitions by their numbers. In
        `start` and `end` a partition that has no offset is read from its beginning, or to its end;
        `as_of` is an end, and a partition without an offset did not exist yet. A time means the
        first record that is not older.

        Raises:
            ImportError: pyarrow is not installed.
            ValueError: there is no such column, or the moments do not go together.
            BrokerError, MissingData: there is no such topic, or nobody to ask.
            DataLoss, DamagedRecords, WrongPath: records cannot be read.
        """
        from odradek.tables.arrow import arrow_schema
        from odradek.tables.scan.reading import read_ranges

        schema = arrow_schema(check_columns(columns))
        with closing(open_bounds(self._options)) as bounds:
            plan = plan_stretch(bounds, self._options, Stretch(start, end, as_of))
        return read_ranges(self._options, plan.identity, schema, plan.ranges)

    def to_arrow(
        self,
        *,
        start: Moment | None = None,
        end: Moment | None = None,
        as_of: Moment | None = None,
        columns: Sequence[str] | None = None,
    ) -> "Table":
        """Returns `batches` as one table; raises as it does."""
        from odradek.tables.arrow import arrow_schema, arrow_table

        found = self.batches(start=start, end=end, as_of=as_of, columns=columns)
        return arrow_table(list(found), arrow_schema(check_columns(columns)))

    def to_pandas(self, *, json: bool = False, **wanted: Any) -> Any:
        """Returns `to_arrow` as a data frame; raises as it does, and without pandas. With `json`
        the values are read as JSON objects, and there is a column for each of their names.

        Raises:
            ValueError: a value is no JSON object.
        """
        from odradek.tables.arrow import pandas_frame

        if json:
            check_has_values(wanted.get("columns"))
        frame = pandas_frame(self.to_arrow(**wanted))
        return with_json_columns(frame) if json else frame

    def to_polars(self, **wanted: Any) -> Any:
        """Returns `to_arrow` as a data frame of Polars; raises as it does, and without it."""
        from odradek.tables.polars_frames import polars_frame

        return polars_frame(self.to_arrow(**wanted))
