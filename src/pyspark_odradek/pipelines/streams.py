"""The two ends that pipelines have in common: the topic as a stream, and when to write."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.settings import PipelineSettings


def read_topic(spark: SparkSession, settings: PipelineSettings, **more: str) -> DataFrame:
    """The topic as a stream; `more` are further options of the source."""
    return spark.readStream.format("odradek").options(**settings.source_options(), **more).load()


def write_stream(frame: DataFrame, settings: PipelineSettings, name: str) -> DataStreamWriter:
    """A writer for the result that runs as often as the settings say."""
    writer = frame.writeStream.queryName(f"{name}-{settings.topic}")
    if settings.every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=settings.every)
