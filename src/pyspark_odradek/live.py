"""`topic`: a DataFrame of a topic that each query plans again.

Spark 4.3 plans a Python source once, keeps the plan with the DataFrame's relation, and reads the
same offsets for ever. A Python source cannot prevent that. So the relation gets a table of ours,
which Spark asks for a scan whenever it plans a query, and which loads the topic each time.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from uuid import uuid4

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession


def topic(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Returns a DataFrame of the topics of these options, the same as for
    `spark.read.format("odradek")`.

    Each query on it, or on a DataFrame derived from it, looks up the offsets again.

    Raises:
        ValueError: this is a session of Spark Connect, which has no JVM.
    """
    frame = _load(spark, options)
    if not hasattr(frame, "_jdf"):
        raise ValueError("topic() needs a JVM; over Spark Connect load the topic for each query")
    java: Any = spark
    ensure_callback_server_started(java.sparkContext._gateway)  # type: ignore[no-untyped-call]
    relation = _relation(frame)
    # Those fields behind the table are more in each version of Spark.
    others = [relation.productElement(index) for index in range(1, relation.productArity())]
    anew = relation.copy(LiveTable(spark, options, relation.table()), *others)
    dataset = getattr(java._jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(dataset.ofRows(java._jsparkSession, anew), spark)


class LiveTable:
    """A Spark table in Python: it makes scans, and passes all other calls to the table of the first
    load.
    """

    class Java:
        """Tells Py4J what this is in Java."""

        implements: ClassVar = ["org.apache.spark.sql.connector.catalog.SupportsRead"]

    def __init__(self, spark: SparkSession, options: Mapping[str, str], first: Any) -> None:
        self._spark: Final = spark
        self._options: Final = dict(options)
        self._first: Final = first
        self._text: Final = f"{first.name()} {uuid4()}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._first, name)

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802
        """A scan of the topic as it is now."""
        return _relation(_load(self._spark, self._options)).table().newScanBuilder(options)

    def toString(self) -> str:  # noqa: N802
        """A text that only this table has."""
        return self._text

    def equals(self, other: object) -> bool:
        """Whether `other` is this table, which comes back as a Java object: Spark finds its cache
        by this."""
        return str(other) == self._text

    def hashCode(self) -> int:  # noqa: N802
        """Its hash code as a Java integer."""
        return hash(self._text) & 0x7FFFFFFF


def _load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("odradek").options(**options).load()


def _relation(frame: DataFrame) -> Any:
    java: Any = frame
    return java._jdf.queryExecution().analyzed()
