"""A broker and a Spark session for tests, in pytest as the fixture `odradek_spark`."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from odradek import Broker
from pyspark_odradek.live import topic as live_topic


@dataclass(frozen=True)
class SparkAndBroker:
    """One of each for a whole test run: starting Spark takes longer than most tests."""

    spark: SparkSession
    broker: Broker

    def read(self, topic: str, **options: str) -> DataFrame:
        """Returns a topic that each query reads anew; options as for
        `spark.read.format("odradek")`.
        """
        return live_topic(self.spark, {**self._where(topic), **options})

    def stream(self, topic: str, **options: str) -> DataFrame:
        """Returns a topic as a stream, from its beginning unless the options say otherwise."""
        settings = {"startingOffsets": "earliest", **self._where(topic), **options}
        return self.spark.readStream.format("odradek").options(**settings).load()

    def run(self, writer: DataStreamWriter) -> None:
        """Runs a query on all available records, and returns when it has ended.

        Raises:
            StreamingQueryException: it failed.
        """
        writer.trigger(availableNow=True).start().awaitTermination()

    def _where(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "subscribe": topic}
