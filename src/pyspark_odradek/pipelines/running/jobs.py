"""The result of a pipeline's `build`: a job that is ready to run, and its outcome.

A job is a stream, batch by batch, or runs once. Both report their progress: a `Batch` each time one
is done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.progress import offsets_behind

_STEP_S: Final = 1


@dataclass(frozen=True)
class Batch:
    """A completed batch.

    `behind` is the number of offsets that are still to be read, `late` the number of records that
    Spark left out because they came later than `within`.
    """

    number: int
    records: int
    seconds: float
    behind: int | None = None
    late: int = 0

    def __str__(self) -> str:
        rate = self.records / self.seconds if self.seconds else 0.0
        text = f"batch {self.number}: {self.records:,} records in {self.seconds:.1f} s"
        text += f" ({rate:,.0f}/s)" if self.records else ""
        text += f", {self.late:,} too late" if self.late else ""
        return text if self.behind is None else f"{text}, {self.behind:,} behind"


@dataclass
class Outcome:
    """The result of a job. `findings` are the faults it found; `facts` go into its summary."""

    findings: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)

    @property
    def records(self) -> int:
        """The number of records read, in all batches."""
        return sum(batch.records for batch in self.batches)


Tell = Callable[[Batch], None]
IsStopped = Callable[[], bool]


def silent(_: Batch) -> None:
    """Reports nothing."""


def never() -> bool:
    """Never stops the job."""
    return False


class Job(ABC):
    """A pipeline with its settings."""

    @abstractmethod
    def run(self, tell: Tell = silent, is_stopped: IsStopped = never, /) -> Outcome:
        """Runs to the end, or until `is_stopped`, which is asked every second; the current batch is
        completed first.

        Raises:
            PipelineError: the job failed.
            StreamingQueryException: a query failed.
        """


class StreamJob(Job):
    """A stream.

    `take_back` is called when it has failed: its output may be useless. `alone` is the context in
    which it runs as the only writer.
    """

    def __init__(
        self,
        writer: DataStreamWriter,
        take_back: Callable[[], object] = lambda: None,
        alone: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._writer: Final = writer
        self._take_back: Final = take_back
        self._alone: Final = alone

    def start(self) -> StreamingQuery:
        """Starts it without waiting."""
        return self._writer.start()

    def run(self, tell: Tell = silent, is_stopped: IsStopped = never, /) -> Outcome:
        """See `Job.run`."""
        with self._alone():
            try:
                return self._run(tell, is_stopped)
            except (PySparkException, Py4JJavaError):
                self._take_back()
                raise

    def _run(self, tell: Tell, is_stopped: IsStopped) -> Outcome:
        query = self.start()
        try:
            return _watched(query, tell, is_stopped)
        except Exception:
            # Also the caller's own functions may have failed, in Spark too: without its lock the
            # query must not go on.
            with suppress(PySparkException, Py4JError, OSError):
                query.stop()
            raise


class OnceJob(Job):
    """A function that runs once; it cannot be stopped, only interrupted."""

    def __init__(self, action: Callable[[], Outcome]) -> None:
        self._action: Final = action

    def run(self, _tell: Tell = silent, _is_stopped: IsStopped = never, /) -> Outcome:
        """See `Job.run`; it has no batches to report."""
        return self._action()


def _watched(query: StreamingQuery, tell: Tell, is_stopped: IsStopped) -> Outcome:
    """Waits until a query has ended, in short steps: a signal must not interrupt a call to the
    JVM.
    """
    outcome = Outcome()
    # How many batches were done when it was first seen to be stopped.
    done_then: int | None = None
    is_done = False
    while not is_done:
        is_done = bool(query.awaitTermination(_STEP_S))
        for batch in _batches_after(query, outcome.batches):
            outcome.batches.append(batch)
            tell(batch)
        if is_stopped() and not is_done:
            done = len(outcome.batches)
            done_then = done if done_then is None else done_then
            # Spark's way to stop breaks off the batch under way, which is then made again.
            if done > done_then or not _is_in_batch(query):
                query.stop()
    if late := sum(batch.late for batch in outcome.batches):
        outcome.facts["too late"] = late
    return outcome


def _is_in_batch(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def _batches_after(query: StreamingQuery, seen: list[Batch]) -> list[Batch]:
    """Returns completed batches that are not among the `seen`; triggers without a batch are
    skipped.
    """
    last = seen[-1].number if seen else -1
    found = {}
    for progress in query.recentProgress:
        number = int(progress["batchId"])
        if number > last and "addBatch" in progress["durationMs"]:
            found[number] = _batch(progress)
    return [found[number] for number in sorted(found)]


def _batch(progress: Any) -> Batch:
    sources = list(progress["sources"])
    return Batch(
        int(progress["batchId"]),
        # Spark Connect does not add them up.
        sum(int(source["numInputRows"]) for source in sources),
        int(progress["durationMs"]["triggerExecution"]) / 1000,
        sum(sum(offsets_behind(source).values()) for source in sources) if sources else None,
        sum(int(each["numRowsDroppedByWatermark"]) for each in progress["stateOperators"]),
    )
