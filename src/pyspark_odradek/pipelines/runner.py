"""Runs a pipeline in a session of its own until it is done or told to stop."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_odradek.pipelines.settings import PIPELINES, PipelineError, PipelineSettings
from pyspark_odradek.session import session

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_pipeline(
    name: str, settings: PipelineSettings, *, master: str = "local[*]", memory: str = "1g"
) -> None:
    """Runs a pipeline to its end; SIGINT and SIGTERM end it after the batch under way.

    Raises:
        PipelineError: there is no such pipeline, it cannot run with these settings, or its
            query failed.
        GatewayError: Spark could not be started.
    """
    module = next((row.module for row in PIPELINES if row.name == name), None)
    if module is None:
        raise PipelineError(f"there is no pipeline {name!r}")
    with session(f"odradek-{name}", master=master, memory=memory) as spark:
        try:
            _await(import_module(module).start(spark, settings))
        except PySparkException as error:
            raise PipelineError(str(error)) from error


def _await(query: StreamingQuery) -> None:
    with _stopping_on_signals():
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()


@contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """Makes SIGTERM and Ctrl-C interrupt the wait, and no more.

    PySpark has a handler of its own for Ctrl-C, which fails the batch under way instead of
    letting its query stop in order.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
