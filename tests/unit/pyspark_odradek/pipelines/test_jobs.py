"""If these fail, a stream that is told to stop breaks off what it is doing, or never stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pyspark_odradek.pipelines import StreamJob


class Query:
    """A query that ends a batch every few looks, and notes when it is stopped."""

    def __init__(self, is_busy: bool) -> None:
        self.status = {"isTriggerActive": True, "isDataAvailable": is_busy}
        self.recentProgress: list[dict[str, Any]] = []
        self.looks = 0
        self.stopped_after: int | None = None

    def start(self) -> "Query":
        return self

    def awaitTermination(self, _: int) -> bool:  # noqa: N802
        self.looks += 1
        if self.looks % 3 == 0:
            durations = {"addBatch": 1, "triggerExecution": 1}
            number = len(self.recentProgress)
            self.recentProgress.append(
                {"batchId": number, "durationMs": durations, "sources": [], "stateOperators": []}
            )
        return self.stopped_after is not None

    def stop(self) -> None:
        if self.stopped_after is None:
            self.stopped_after = len(self.recentProgress)


@pytest.mark.parametrize(("is_busy", "batches"), [(True, 1), (False, 0)])
def test_the_batch_under_way_is_ended_before_a_stream_stops(is_busy: bool, batches: int) -> None:
    query = Query(is_busy)
    outcome = StreamJob(query).run(lambda _: None, lambda: True)  # type: ignore[arg-type]
    assert query.stopped_after == batches
    assert len(outcome.batches) == batches


@pytest.mark.parametrize("error", [BrokenPipeError, PySparkException, Py4JError])
def test_a_stream_of_which_nobody_can_be_told_is_stopped_under_its_lock(
    error: type[Exception],
) -> None:
    """In a session of one's own it went on, beside the run that came next: also when the function
    that is told failed in Spark."""
    query = Query(is_busy=True)
    stopped_then: list[int | None] = []

    @contextmanager
    def alone() -> Iterator[None]:
        try:
            yield
        finally:
            stopped_then.append(query.stopped_after)

    def tell(_: object) -> None:
        raise error("full")

    with pytest.raises(error):
        StreamJob(query, alone=alone).run(tell)  # type: ignore[arg-type]
    assert stopped_then == [1]
