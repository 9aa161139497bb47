"""Kafka topics in Spark, without jars; the only importer of pyspark.

With this package installed `spark.read.format("odradek")` and `readStream` work in any Spark
session; `topic` gives a DataFrame that each query plans again. `session()` starts a session that
needs nothing but `pip install`; `pyspark_odradek.pipelines` has jobs built on it.
"""

try:
    from pyspark_odradek.gateway import GatewayError
    from pyspark_odradek.live import topic
    from pyspark_odradek.session import session
    from pyspark_odradek.source import DefaultSource
except ModuleNotFoundError as error:
    raise ImportError(f"{error.name} is not installed: pip install 'odradek[spark]'") from None

__all__ = ["DefaultSource", "GatewayError", "session", "topic"]
