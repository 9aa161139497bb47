"""Records that a stream writes to a topic beside its table: each batch of them once.

Spark's sink cannot be used within `foreachBatch`, but its protocol can (`odradek.tables.write`),
with one task for each batch: its records are one transaction, so all or none are written, however
Spark partitions a repeated batch. A repeated task fences the earlier one, and so does a run that
begins while another still writes.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from odradek.model import TopicPartition
from odradek.tables.write.query_run import QueryRun
from odradek.tables.write.transaction import BatchTransaction, Content, Share
from pyspark_odradek.errors import telling_in_one_sentence
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.letter_sizes import CODEC, fitted
from pyspark_odradek.pipelines.running.settings import PipelineSettings
from pyspark_odradek.sink import Prepared, commit_prepared, content_of, write_once
from pyspark_odradek.sink_options import SinkOptions, parse_sink_options

if TYPE_CHECKING:
    import pyarrow as pa

_ONLY_TASK: Final = 0
_ADVICE: Final = (
    "The draft that said which letters were written is gone: remove {}, and start the pipeline "
    "once with the schemas that there were"
)


class Letters:
    """The topic for records that an output does not take, in batches of up to `limit` bytes."""

    def __init__(self, settings: PipelineSettings, topic: str, output: Output, limit: int) -> None:
        self._output: Final = output
        self.limit: Final = limit
        self._options: Final = parse_sink_options(
            {
                **settings.broker_options(),
                "topic": topic,
                "kafka.compression.type": CODEC.name.lower(),
            },
            streaming=True,
        )
        self._topic: Final = topic

    def cut(self, letters: DataFrame) -> DataFrame:
        """Returns letters as the topic takes them, by its limit now: a batch of which letters were
        committed has to repeat these, whatever the limit is by then.
        """
        limit = self.limit

        def cut(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            return fitted(batches, limit)

        return letters.mapInArrow(cut, letters.schema)

    def written(self, batch_id: int) -> Content | None:
        """Returns what an earlier attempt has committed as the letters of a batch; None if there
        is nothing, and cannot be any more.

        Raises:
            SourceError: another run has taken over, another topic may have the letters, or no
                coordinator answers.
        """
        timeout_ms = self._options.transaction_timeout_ms
        attempt = BatchTransaction(
            self._options.brokers, self._run(), _ONLY_TASK, timeout_ms=timeout_ms
        )
        with telling_in_one_sentence(), attempt:
            attempt.check_elsewhere(batch_id)
            return None if attempt.begin(batch_id) else attempt.written

    def content_of(self, letters: DataFrame) -> Content:
        """Returns what letters, which are cut, are when they are written."""
        options = self._options

        def count(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            import pyarrow as pa

            content = content_of(options, batches)
            yield pa.RecordBatch.from_pydict({"content": [str(content)]})

        found = letters.mapInArrow(count, "content string").collect()
        parts = [Content.read(row.content) for row in found]
        return Content(sum(part.records for part in parts), sum(part.checksum for part in parts))

    def write(self, letters: DataFrame | None, batch_id: int) -> None:
        """Writes and commits the letters of a batch, which are cut; None if it has none.

        Raises:
            SourceError: another run has taken over, or the batch had other letters before.
        """
        run, share = self._run(), Share(_ONLY_TASK, Content())
        if letters is not None:
            advice = _ADVICE.format(self._output.draft_path(batch_id))
            share = _share_of(letters, self._options, run, batch_id, advice)
        # A batch without letters needs no transaction, unless an earlier attempt may have had some.
        if share.content.records or self._output.may_be_repeated:
            with telling_in_one_sentence():
                commit_prepared(self._options, [Prepared(0, run, share)], batch_id)

    def _run(self) -> QueryRun:
        query = self._output.checkpoint.query_id()
        return QueryRun(query, query, self._output.run, TopicPartition(self._topic, 0))


def _share_of(
    letters: DataFrame, options: SinkOptions, run: QueryRun, batch_id: int, advice: str
) -> Share:
    """Makes a task write the records, and returns what to commit."""

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        with telling_in_one_sentence():
            prepared = write_once(options, batches, run, _ONLY_TASK, batch_id, advice=advice)
        yield pa.RecordBatch.from_pydict({"share": [json.dumps(asdict(prepared.share))]})

    told = letters.repartition(1).mapInArrow(write, "share string").collect()
    # Spark starts no task if it knows that there is no row.
    return _read(json.loads(told[0].share)) if told else Share(_ONLY_TASK, Content())


def _read(told: dict[str, Any]) -> Share:
    producer = told["producer"]
    return Share(
        told["task"],
        Content(**told["content"]),
        None if producer is None else (producer[0], producer[1]),
        told["is_written"],
    )
