"""The two ends that pipelines have in common: the topic as a stream, and when to write."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.settings import PipelineError, PipelineSettings
from pyspark_odradek.pipelines.snapshots import topic_spans


def read_topic(spark: SparkSession, settings: PipelineSettings, **more: str) -> DataFrame:
    """The topic as a stream; `more` are further options of the source.

    It is looked for first: a query that fails at its start leaves half a checkpoint.

    Raises:
        PipelineError: there is no such topic.
        SourceError: the broker could not be asked.
    """
    if not topic_spans(settings):
        raise PipelineError(f"there is no topic {settings.topic} at {settings.bootstrap_servers}")
    return spark.readStream.format("odradek").options(**settings.source_options(), **more).load()


def write_stream(frame: DataFrame, settings: PipelineSettings, name: str) -> DataStreamWriter:
    """A writer for the result that runs as often as the settings say."""
    writer = frame.writeStream.queryName(f"{name}-{settings.topic}")
    if settings.every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=settings.every)
