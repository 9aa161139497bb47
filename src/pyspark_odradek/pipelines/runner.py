"""Runs a pipeline in a session of its own until it is done or told to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_odradek.errors import SourceError, sentence_in
from pyspark_odradek.pipelines.settings import PIPELINES, PipelineError, PipelineSettings
from pyspark_odradek.session import session

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_STEP_S: Final = 1


def run_pipeline(
    name: str, settings: PipelineSettings, *, master: str = "local[*]", memory: str = "1g"
) -> list[str]:
    """Runs a pipeline to its end; SIGINT and SIGTERM end it after the batch under way.

    Gives what an `audit` found, a line each.

    Raises:
        PipelineError: there is no such pipeline, it cannot run with these settings, or its
            query failed.
        GatewayError: Spark could not be started.
    """
    pipeline = next((row for row in PIPELINES if row.name == name), None)
    if pipeline is None:
        raise PipelineError(f"there is no pipeline {name!r}")
    with session(f"odradek-{name}", master=master, memory=memory) as spark:
        try:
            module = import_module(pipeline.module)
            if not pipeline.is_stream:
                findings: list[str] = module.run(spark, settings)
                return findings
            _await(module.start(spark, settings))
            return []
        except (PySparkException, Py4JError, SourceError) as error:
            raise PipelineError(sentence_in(str(error)) or _first_lines(str(error))) from error


def _first_lines(text: str) -> str:
    """What Spark says before it shows where in its own code it says so."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:3])


def _await(query: StreamingQuery) -> None:
    """Waits in short steps: a signal must not break off a conversation with the JVM."""
    with _stop_asked_by_signal() as stop:
        while not query.awaitTermination(_STEP_S):
            if stop.is_set():
                query.stop()


@contextmanager
def _stop_asked_by_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of what they did before."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in _STOP_SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
