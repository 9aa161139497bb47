"""How Spark is started here."""

import os
import tempfile
from collections.abc import Iterator

import pytest

from pyspark_odradek.session import FOR_SECONDS


@pytest.fixture(scope="module", autouse=True)
def quick_java() -> Iterator[None]:
    """Every JVM that a test here has started is one that works for seconds.

    By module: a folder that is no package has no end before the run's, and Kafka's own tools, which
    choose another garbage collector, do not start with this.
    """
    with pytest.MonkeyPatch.context() as patch:
        before = os.environ.get("JDK_JAVA_OPTIONS", "")
        # A JVM does not look at TMPDIR.
        home = f'"-Djava.io.tmpdir={tempfile.gettempdir()}"'
        patch.setenv("JDK_JAVA_OPTIONS", " ".join([before, *FOR_SECONDS, home]).strip())
        yield
