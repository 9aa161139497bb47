"""The output of a stream: a table that gets every micro-batch exactly once.

    orders/
      _odradek.json           whose it is
      _checkpoint/            Spark's: which offsets make up which batch, which are done
      _manifest/batch-0.json  ours: which files a batch is, of which offsets
      batch=0-9f2c11ab/       part-*.parquet

Spark writes down the offsets of a batch before it runs it, and repeats the batch after a crash with
the same offsets and number. A repeated batch finds its document, or writes its files again, to
another directory (`tables`).

A batch that writes to a topic as well decides before that what goes where, and keeps it as a draft:
a repeated batch takes that up, because what it would decide may have changed meanwhile. So does
another run that is at the batch at the same time. Only how far letters are cut is up to each run,
as the limit of their topic is by then: each that cuts them again keeps that beside the draft.

That needs both: without the checkpoint numbers start again at 0, so batches without a checkpoint
are refused rather than taken for those of the new query; so is a repeated batch with other offsets.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.directories import ClaimedLock
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.ends.owners import Lock
from pyspark_odradek.pipelines.ends.parquet import write_parquet
from pyspark_odradek.pipelines.ends.sealed import Document
from pyspark_odradek.pipelines.ends.tables import Number, Table
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

CHECKPOINT: Final = "_checkpoint"

WriteBatch = Callable[[DataFrame, int], None]


class Output:
    """The table of one query, on any file system that Spark can write to."""

    def __init__(
        self,
        spark: SparkSession,
        directory: str,
        checkpoint: str,
        parts: Sequence[str] = ("",),
        lock: Lock | ClaimedLock | None = None,
    ) -> None:
        """Opens a new directory or one of an earlier run; `lock` is its writer's lock.

        Raises:
            PipelineError: batches and checkpoint do not belong together.
        """
        files = FileSystem(spark)
        self.table: Final = Table(files, directory, parts)
        self._files: Final = files
        self._lock: Final = lock or Lock(files, directory)
        self._take_up(checkpoint)

    def _take_up(self, checkpoint: str) -> None:
        self.run = uuid4().hex[:8]
        # Only the first batch of a run may have begun before.
        self.may_be_repeated = True
        # First what is done and then the manifest, which has it by then.
        self.checkpoint = Checkpoint(self._files, checkpoint)
        done = self.checkpoint.last_commit()
        last = self._last = self.table.last_batch()
        directory = self.table.directory
        if last >= 0 and not self.checkpoint.was_there:
            raise PipelineError(
                f"{directory} holds batches of a query whose checkpoint is gone; "
                "choose another directory, or remove it"
            )
        if done > last:
            raise PipelineError(
                f"{directory} has a checkpoint with batch {done} and a manifest up to {last}: part "
                "of it is gone; choose another directory"
            )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Writes a batch unless it is committed; the function for `foreachBatch`."""
        if self.has(batch_id):
            _pass_over(batch)
        else:
            self.commit(batch_id, self.stage(batch, batch_id))

    def write_whole(self, batch: DataFrame, batch_id: int) -> None:
        """Writes a batch that replaces all earlier ones."""
        if self.has(batch_id):
            _pass_over(batch)
        else:
            self.commit(batch_id, self.stage(batch, batch_id), {"complete": True})
            self.table.sweep()

    def has(self, batch_id: int) -> bool:
        """Whether a batch is committed.

        Raises:
            PipelineError: it was committed with other offsets.
        """
        document = self.table.document(batch_id)
        if document is None and batch_id <= self._last:
            # It was put together with others, of which it has to be the last.
            now = self.table.snapshot()
            document = now.documents[-1] if now.last_batch == batch_id else {"offsets": None}
        if document is None:
            return False
        if document["offsets"] != self.checkpoint.offsets(batch_id):
            raise PipelineError(
                f"{self.table.directory} has batch {batch_id} with other offsets: "
                "the checkpoint is older than it, or another's"
            )
        return True

    def left_by_the_one_before(self, batch_id: int) -> Document | None:
        """Returns the commit of the batch before; None for the first.

        Raises:
            PipelineError: it is gone.
        """
        document = self.table.document(batch_id - 1)
        if document is None and batch_id > 0:
            raise PipelineError(f"{self.table.directory} has no batch {batch_id - 1}")
        return document

    def stage(
        self,
        batch: DataFrame,
        batch_id: int,
        partition_by: Sequence[str] = (),
        records_per_file: int = 0,
        part: str = "",
    ) -> list[dict[str, Any]]:
        """Writes the files of a batch, and returns them as entries of a document. 0 is no limit."""
        place = self.table.place_of(Number(batch_id), self.run, part)
        write_parquet(batch, place, partition_by, records_per_file)
        return self.table.staged(place)

    def commit(
        self, batch_id: int, files: Sequence[Mapping[str, Any]], more: Document | None = None
    ) -> None:
        """Commits a batch with these files, and the facts in `more`.

        Raises:
            PipelineError: another run has committed it.
        """
        offsets = self.checkpoint.offsets(batch_id)
        document = {"files": list(files), "offsets": offsets, **(more or {})}
        self.table.commit(Number(batch_id), document)
        self._last = batch_id
        if self.may_be_repeated:
            self.may_be_repeated = False
            self.table.clear(batch_id, document)

    def clear(self, batch_id: int) -> None:
        """Removes what a run has left that was killed when it had committed a batch."""
        document = self.table.document(batch_id) if self.may_be_repeated else None
        if document is not None:
            self.table.clear(batch_id, document)

    def keep_draft(self, batch_id: int, document: Document) -> Document:
        """Keeps what a batch will be, for the case that it is repeated, and returns the draft that
        counts: the first one, if another run is at the batch as well.

        Raises:
            PipelineError: another run has committed the batch.
        """
        name = self._plan(batch_id)
        is_ours = self.table.keep_draft(batch_id, name, document)
        draft = document if is_ours else self.table.draft(batch_id, name)
        # There may have been another, which is gone since its batch is committed.
        if draft is None or self.table.document(batch_id) is not None:
            self.table.drop_draft(batch_id, name)
            raise self.table.committed_by_another(Number(batch_id))
        return draft

    def draft(self, batch_id: int) -> Document | None:
        """Returns the draft that an earlier attempt at a batch has left; None if there is none.

        One of another query, or of other offsets, is none of this batch.
        """
        return self.table.draft(batch_id, self._plan(batch_id)) if self.may_be_repeated else None

    def drop_draft(self, batch_id: int) -> None:
        """Removes the draft of a committed batch."""
        self.table.drop_draft(batch_id, self._plan(batch_id))

    def draft_path(self, batch_id: int) -> str:
        """Returns the file of a batch's draft."""
        return self.table.draft_path(batch_id, self._plan(batch_id))

    def keep_variant(self, batch_id: int, document: Document) -> None:
        """Keeps what this run writes in place of a part of the draft."""
        self.table.keep_draft(batch_id, f"{self._plan(batch_id)}-{self.run}", document)

    def variants(self, batch_id: int) -> list[Document]:
        """Returns what earlier attempts at a batch have written, or would have, in place of a part
        of its draft.
        """
        names = self.table.drafts(batch_id) if self.may_be_repeated else []
        ours = (name for name in names if name.startswith(f"{self._plan(batch_id)}-"))
        found = (self.table.draft(batch_id, name) for name in ours)
        return [each for each in found if each is not None]

    def _plan(self, batch_id: int) -> str:
        """The name of a batch of this query with these offsets."""
        plan = [self.checkpoint.query_id(), *self.checkpoint.offsets(batch_id)]
        return sha256(json.dumps(plan).encode()).hexdigest()[:16]

    def job(
        self, writer: DataStreamWriter, write: WriteBatch | None = None, *, has_topic: bool = False
    ) -> StreamJob:
        """Returns the stream that writes here, batch by batch, as the only writer.

        If it `has_topic`, to which it writes as well, the offsets of a batch are kept once it was
        planned: the topic may have some of its records.
        """
        writer = writer.foreachBatch(write or self.write)
        writer = writer.option("checkpointLocation", self.checkpoint.path)

        def take_back() -> None:
            # Another run may be at the same checkpoint by now.
            if self._lock.is_taken_over():
                return
            self.checkpoint.take_back_unless_planned() if has_topic else self.take_back()

        return StreamJob(writer, take_back, self.alone)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Takes the writer's lock and reads the state again: another run may have written since
        this object was made.

        Raises:
            PipelineError: another run is writing, or batches and checkpoint do not belong together.
        """
        with self._lock:
            self._take_up(self.checkpoint.path)
            yield

    def take_back(self) -> None:
        """Removes everything that a query made which failed before it committed a batch, its
        checkpoint too. If the query had a checkpoint before, nothing is removed.
        """
        if not self.checkpoint.was_there and self.table.last_batch() < 0:
            self.table.forget(self.run)
            self.checkpoint.take_back()


def _pass_over(batch: DataFrame) -> None:
    """Makes Spark process a batch without output: otherwise the state of the query would lack it,
    and the query could not continue.
    """
    batch.write.format("noop").mode("overwrite").save()


def open_output(
    spark: SparkSession,
    settings: PipelineSettings,
    pipeline: str,
    parts: Sequence[str] = ("",),
    same: Sequence[str] = (),
) -> Output:
    """Opens the settings' directory as the output of a pipeline on their topic.

    `same` names the settings that must be equal for all its batches, beside those that always are.

    Raises:
        PipelineError: there is none, or it belongs to something else, or was begun with other
            values of these settings.
    """
    directory = settings.directory(pipeline)
    options = settings.lasting(*same)
    lock = ClaimedLock(spark, directory, pipeline, settings.topic, options=options)
    lock.claim()
    checkpoint = settings.checkpoint or f"{directory}/{CHECKPOINT}"
    return Output(spark, directory, checkpoint, parts, lock)
