"""Runs a pipeline in its own session until it is done or gets a signal to stop."""

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from odradek.client.addresses import parse_bootstrap_servers
from odradek.config.definition import ConfigError
from odradek.errors import BrokerError
from pyspark_odradek.errors import SourceError, reason_in
from pyspark_odradek.pipelines.running.jobs import Job, OnceJob, Outcome, Tell, silent
from pyspark_odradek.pipelines.running.settings import PIPELINES, PipelineError, PipelineSettings
from pyspark_odradek.progress import ProgressGroups
from pyspark_odradek.session import session

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_pipeline(
    name: str,
    settings: PipelineSettings,
    *,
    master: str = "local[*]",
    memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    tell: Tell = silent,
) -> Outcome:
    """Runs a pipeline to its end; SIGINT and SIGTERM end it after the current batch, a second one
    at once.

    They interrupt a job without batches like any program. `tell` is called with every completed
    batch. A stream's progress is committed as group `spark.NAME-TOPIC`, for tools that show groups.

    Raises:
        PipelineError: there is no such pipeline, it cannot run with these settings, or its
            query failed.
        GatewayError: Spark could not be started.
    """
    pipeline = next((row for row in PIPELINES if row.name == name), None)
    if pipeline is None:
        raise PipelineError(f"there is no pipeline {name!r}")
    _check_brokers(settings.bootstrap_servers)
    # The session's listener does not report a query that reads by TLS or SASL.
    progress = ProgressGroups(settings.brokers)
    with (
        closing(progress),
        session(f"odradek-{name}", master=master, memory=memory, conf=conf) as spark,
    ):
        try:
            if not settings.security.is_plaintext:
                spark.streams.addListener(progress)
            job: Job = import_module(pipeline.module).build(spark, settings)
            with _stop_asked_by_signal(is_in_steps=not isinstance(job, OnceJob)) as stop:
                return job.run(tell, stop.is_set)
        except (PySparkException, Py4JError, SourceError, BrokerError, OSError) as error:
            raise PipelineError(reason_in(str(error))) from error


def _check_brokers(servers: str) -> None:
    try:
        parse_bootstrap_servers(servers)
    except ConfigError as error:
        raise PipelineError(str(error)) from None


@contextmanager
def _stop_asked_by_signal(*, is_in_steps: bool) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second signal interrupts, and for a job without
    batches already the first.
    """
    stop = threading.Event()

    def ask(*_: object) -> None:
        if stop.is_set() or not is_in_steps:
            # Py4J prints two tracebacks when a call is interrupted.
            logging.disable()
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in _STOP_SIGNALS}
    try:
        yield stop
    finally:
        logging.disable(logging.NOTSET)
        for number, handler in before.items():
            signal.signal(number, handler)
