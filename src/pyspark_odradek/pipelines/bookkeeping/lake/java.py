"""Java libraries in Spark's driver, through py4j."""

from typing import Any

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.running.settings import PipelineError


def jvm(spark: SparkSession) -> Any:
    """The JVM of Spark's driver."""
    return spark._jvm


def java_class(spark: SparkSession, name: str, library: str) -> Any:
    """Returns a class of a library.

    Raises:
        PipelineError: the library is missing.
    """
    found = jvm(spark)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, JavaClass):
        raise PipelineError(
            f"this Spark has no {library}: say with --conf spark.jars.packages where its jars are"
        )
    return found


def first_line(error: Py4JError) -> str:
    """The first line of a Java error, without its stack."""
    said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return str(said).splitlines()[0]
