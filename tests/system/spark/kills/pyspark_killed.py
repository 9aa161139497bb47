"""`format("killed")`: our sink, in which a process dies at a step that a test has chosen.

Spark finds it because this folder is on the path of its workers. The folder that
`ODRADEK_SPARK_KILLS` names holds at most one plan: its name is the step, what is in it says who
dies. The first process that comes by takes the file away, and kills.

A worker outlives its Spark where it is on another machine. Here Spark's daemon would take it
along, unless it has left the daemon's process group before.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import pyspark_odradek.source
from pyspark_odradek.sink import StreamWriter, Written

FOLDER = "ODRADEK_SPARK_KILLS"
BEFORE_WRITE = "before the write"
IN_WRITE = "in the write"
AFTER_WRITE = "after the write"
AFTER_PREPARING = "after the task"
IN_COMMIT = "in the commit"
BEFORE_CHECKPOINT = "before the checkpoint"
# Who dies: the worker, Spark and the worker, or Spark and not the worker, which goes on: at once,
# or when the next Spark has done the whole batch.
WORKER, DRIVER, DRIVER_ONLY, DRIVER_LATE = "worker", "driver", "driver only", "driver, late"
# Beside the plans: that a batch is done, and what became of each worker that went on late.
BATCH_DONE, LATE_OUTCOME = ".batch-done", ".late-"
PATIENCE_S = 600


class DefaultSource(pyspark_odradek.source.DefaultSource):
    """Ours, with another writer."""

    @classmethod
    def name(cls) -> str:
        """The argument of `format`."""
        return "killed"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """The writer that does not live long."""
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return KilledWriter(writer._options, schema)


class KilledWriter(StreamWriter):
    """Comes by every step."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]
        """The steps of a task."""
        from odradek.tables.write.transaction import BatchTransaction
        from odradek.tables.write.writing import TopicWriter

        with (
            _before(BatchTransaction, "begin", BEFORE_WRITE),
            _before(TopicWriter, "flush", IN_WRITE),
            _before(BatchTransaction, "prepare", AFTER_WRITE),
        ):
            try:
                written = super().write(iterator)
            except Exception as error:
                _note_late(f"refused: {error}")
                raise
        _note_late(f"wrote {written.records}")
        maybe_kill(AFTER_PREPARING)
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done; one share is committed before the others, and Spark writes it down
        when all are."""
        from odradek.tables.write.batch_commit import BatchCommit

        endings = BatchCommit._endings

        def one_before_others(
            driver: BatchCommit, cluster: Any, shares: Sequence[Any], *, commit: bool
        ) -> list[Any]:
            async def in_turn() -> None:
                await asyncio.gather(*endings(driver, cluster, shares[:1], commit=commit))
                maybe_kill(IN_COMMIT)
                await asyncio.gather(*endings(driver, cluster, shares[1:], commit=commit))

            return [in_turn()]

        BatchCommit._endings = one_before_others  # type: ignore[method-assign]
        try:
            super().commit(messages, batchId)
        except Exception as error:
            _note_late(f"refused: {error}")
            raise
        finally:
            BatchCommit._endings = endings  # type: ignore[method-assign]
        _note_late("wrote the batch")
        _folder().joinpath(BATCH_DONE).touch()
        maybe_kill(BEFORE_CHECKPOINT)


class _before:  # noqa: N801 - used like a function
    """While it is entered, a method of a class comes by a step first."""

    def __init__(self, owner: type, name: str, step: str) -> None:
        self._owner, self._name, self._step = owner, name, step
        self._original: Callable[..., Any] = getattr(owner, name)

    def __enter__(self) -> None:
        original, step = self._original, self._step

        def method(*arguments: Any, **named: Any) -> Any:
            maybe_kill(step)
            return original(*arguments, **named)

        setattr(self._owner, self._name, method)

    def __exit__(self, *_: object) -> None:
        setattr(self._owner, self._name, self._original)


def _note_late(outcome: str) -> None:
    """Writes down how a task ended, if its worker went on late."""
    note = _folder() / f"{LATE_OUTCOME}{os.getpid()}"
    # One that has a text is of a process that is gone, and had this number before.
    if note.exists() and not note.stat().st_size:
        note.write_text(outcome)


def maybe_kill(step: str) -> None:
    """Kills whom the file of this step names, if there is one."""
    plan = _folder() / step
    taken = plan.with_name(f".{os.getpid()}")
    try:
        plan.rename(taken)
    except FileNotFoundError:
        return
    victim = taken.read_text()
    taken.unlink()
    if victim in (DRIVER_ONLY, DRIVER_LATE):
        jvm = _jvm()
        os.setpgid(0, 0)
        _folder().joinpath(BATCH_DONE).unlink(missing_ok=True)
        os.kill(jvm, signal.SIGKILL)
        if victim == DRIVER_LATE:
            _wait_for_successor()
        return
    if victim == DRIVER:
        os.kill(_jvm(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait_for_successor() -> None:
    _folder().joinpath(f"{LATE_OUTCOME}{os.getpid()}").touch()
    deadline = time.monotonic() + PATIENCE_S
    while not _folder().joinpath(BATCH_DONE).exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def _folder() -> Path:
    return Path(os.environ[FOLDER])


def _jvm() -> int:
    """The process of Spark, which is above this one."""
    pid = os.getpid()
    while pid > 1:
        name, parent = _process(pid)
        if name == "java":
            return pid
        pid = parent
    raise RuntimeError("no Java is above this process")


def _process(pid: int) -> tuple[str, int]:
    """Its name and its parent."""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], int(tail.split()[1])
