"""A Spark session that needs nothing but `pip install`, and is set up for this source.

`session()` is a context manager: inside it there is a `SparkSession`, after it neither the
session nor its JVM is left. On a cluster use a session of your own: the data source needs
none of this, only the package on the workers.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from pyspark_odradek.gateway import Gateway, launch

# A local session starts faster and answers small queries sooner with these. Its time zone is
# that of record timestamps, so that hours and days are cut alike on every machine.
DEFAULTS: Final[dict[str, str]] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
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
) -> Iterator[SparkSession]:
    """Starts a JVM and a session on it; both have ended when the block is left.

    `memory` is the heap of the driver, which is also the executor of a local master. `conf`
    goes over the defaults and may hold settings that count only when a JVM starts.

    Raises:
        GatewayError: there is no Java to run, or Spark did not start.
    """
    local = LOCAL_DEFAULTS if master.startswith("local") else {}
    settings = {**DEFAULTS, **local, **(conf or {})}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    gateway = launch(settings, memory=memory)
    try:
        spark = _connect(gateway, app_name, master, settings)
        try:
            yield spark
        finally:
            spark.stop()
            _forget_gateway()
    finally:
        gateway.close()


def _connect(
    gateway: Gateway, app_name: str, master: str, settings: Mapping[str, str]
) -> SparkSession:
    gateway.offer()
    try:
        builder = SparkSession.builder.appName(app_name).master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    finally:
        gateway.withdraw()


def _forget_gateway() -> None:
    """Lets a later session of this process start a JVM of its own."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
