"""A Spark session that needs nothing but `pip install`, and is set up for this source.

`session()` is a context manager: its block has a `SparkSession`; after it both the session and its
JVM have ended. On a cluster use a session of your own: the data source needs none of this, only the
package on the workers.
"""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pyspark_odradek.gateway import Gateway, launch
from pyspark_odradek.progress import ProgressGroups
from pyspark_odradek.source import DefaultSource

# A local session starts faster and answers small queries sooner with these. Its time zone is UTC,
# as for record timestamps, so hours and days are the same on every machine.
DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The state of a query is on disk: with a whole topic in the first batch it may be very large.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Spark's own, and the options of the source and the sink that are secrets.
    "spark.redaction.regex": (
        "(?i)secret|password|token|access[.]?key|sasl[.]jaas[.]config|ssl[.]keystore[.]key"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# For a JVM that works for seconds, as in tests: Java's best compiler and a garbage collector with
# several threads cost several times what they save there.
FOR_SECONDS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LOCAL_DEFAULTS: Final[dict[str, str]] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@contextmanager
def session(
    app_name: str = "odradek",
    *,
    master: str = "local[*]",
    memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """Starts a JVM and a session on it; both end with the block.

    A streaming query with a name appears as the group `spark.<name>`.

    `memory` is the heap of the driver, which is also the executor of a local master. `conf`
    goes over the defaults and may hold settings that count only when a JVM starts. `java_options`
    are further options of that JVM, such as `FOR_SECONDS`.

    Raises:
        GatewayError: there is no Java to run, or Spark did not start.
    """
    local = LOCAL_DEFAULTS if master.startswith("local") else {}
    settings = {**DEFAULTS, **local, **(conf or {})}
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = launch(settings, memory=memory, java_options=java_options)
    progress = ProgressGroups()
    try:
        spark = _connect(gateway, app_name, master, settings)
        if shlex.quote(python) != python:
            # Spark looks for data sources with a shell that splits the path of Python, and
            # finds none where it has a space.
            spark.dataSource.register(DefaultSource)
        spark.streams.addListener(progress)
        yield spark
        if master != "local" and not master.startswith("local["):
            # Ends the executors of the cluster; if only the driver went away, the cluster would
            # start them again.
            spark.stop()
    finally:
        # The JVM stops its session by itself when it ends. Asking it to would need the
        # connection of this thread, and that still waits for an answer after a Ctrl-C.
        _expect_the_end()
        gateway.close()
        _forget_session()
        progress.close()


def _connect(
    gateway: Gateway, app_name: str, master: str, settings: Mapping[str, str]
) -> SparkSession:
    gateway.offer()
    try:
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _keeping_interrupt_handler():
            return builder.getOrCreate()
    finally:
        gateway.withdraw()


@contextmanager
def _keeping_interrupt_handler() -> Iterator[None]:
    """Removes the handler of Ctrl-C that a session installs.

    It asks the JVM to cancel its jobs over the connection on which this thread waits for one of
    them, and so waits for itself. Leaving our session ends all jobs anyway.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _expect_the_end() -> None:
    """Silences tracebacks when the JVM ends: Py4J's, which reports every unused object to the JVM,
    and that of the server to which Python workers report their counts.
    """
    if SparkContext._gateway is not None:
        SparkContext._gateway._gateway_client.is_connected = False
    context = SparkContext._active_spark_context
    if context is not None:
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]


def _forget_session() -> None:
    """Lets a later session of this process start its own JVM."""
    if SparkContext._gateway is not None:
        SparkContext._gateway.close()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
