"""A directory of Parquet files into which every micro-batch goes exactly once.

    orders/
      _checkpoint/            Spark's: which offsets make up which batch, which are done
      batch=0/  part-*.parquet  _SUCCESS
      batch=1/  ...

Spark writes down the offsets of a batch before it runs it, and repeats the batch after a
crash with the same offsets and number. The number names the directory, so a repeated batch
finds its own: complete, and it is left as it is, or without `_SUCCESS`, and it is written
anew. Any Parquet reader sees every record once, without having to know about a log of files.

That rests on both being there: numbers start again at 0 without the checkpoint, so batches
without one are refused rather than taken for those of the new query.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_odradek.pipelines.ends.checkpoints import Checkpoint
from pyspark_odradek.pipelines.ends.files import FileSystem
from pyspark_odradek.pipelines.running.settings import PipelineError

CHECKPOINT: Final = "_checkpoint"
_COMPLETE: Final = "_SUCCESS"


class BatchDirectory:
    """The target of one query, on any file system that Spark can write to.

    `checkpoint` is where the query keeps its offsets.
    """

    def __init__(self, spark: SparkSession, directory: str, checkpoint: str | None = None) -> None:
        """Takes up a new directory or one of an earlier run; `checkpoint` may lie elsewhere.

        Raises:
            PipelineError: it holds batches, but not the checkpoint that they belong to.
        """
        self._files = FileSystem(spark)
        self._directory = directory.rstrip("/")
        self.checkpoint: Final = checkpoint or f"{self._directory}/{CHECKPOINT}"
        self._kept = Checkpoint(self._files, self.checkpoint)
        if not self._kept.was_there and self.batch_ids():
            raise PipelineError(
                f"{directory} holds batches of a query whose checkpoint is gone; "
                "choose another directory, or remove it"
            )

    def path_of(self, batch_id: int) -> str:
        """Where a batch lies."""
        return f"{self._directory}/batch={batch_id}"

    def has(self, batch_id: int) -> bool:
        """Whether a batch is there, whole."""
        return self._files.exists(f"{self.path_of(batch_id)}/{_COMPLETE}")

    def write(
        self,
        batch: DataFrame,
        batch_id: int,
        partition_by: Sequence[str] = (),
        records_per_file: int = 0,
    ) -> None:
        """Writes a batch unless it is there; what `foreachBatch` is given. 0 is no limit."""
        if not self.has(batch_id):
            writer = batch.write.mode("overwrite").partitionBy(*partition_by)
            writer = writer.option("maxRecordsPerFile", records_per_file)
            writer.parquet(self.path_of(batch_id))

    def write_snapshot(self, batch: DataFrame, batch_id: int) -> None:
        """Writes a batch that replaces all before it."""
        self.write(batch, batch_id)
        for old in self.batch_ids():
            if old < batch_id:
                self._files.remove(self.path_of(old))

    def take_back(self) -> None:
        """Removes what a query has made that failed before a batch was whole, its checkpoint too.

        Nothing of a query that had one before.
        """
        if not any(self.has(batch_id) for batch_id in self.batch_ids()):
            self.take_all_back()

    def take_all_back(self) -> None:
        """The same, also when there is a batch."""
        if self._kept.was_there:
            return
        for batch_id in self.batch_ids():
            self._files.remove(self.path_of(batch_id))
        self._kept.take_back()

    def batch_ids(self) -> list[int]:
        """The batches that are there, in order."""
        names = self._files.names(self._directory)
        return sorted(int(name[6:]) for name in names if name.startswith("batch="))
