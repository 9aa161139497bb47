"""The two ends that pipelines have in common: the topic as a stream, and the trigger."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_odradek.pipelines.ends.snapshots import is_there, no_topic
from pyspark_odradek.pipelines.running.settings import PipelineSettings


def read_topic(
    spark: SparkSession, settings: PipelineSettings, why_missing: str | None = None, **more: str
) -> DataFrame:
    """The topic as a stream; `more` are further options of the source.

    The topic is looked up first: a query that fails at its start leaves half a checkpoint. If it
    does not exist, `why_missing` is the error; without it the error says where the topic was looked
    for.

    Raises:
        PipelineError: there is no such topic.
        SourceError: the broker could not be asked.
    """
    if not is_there(settings):
        raise no_topic(settings, None if why_missing is None else f": {why_missing}")
    return spark.readStream.format("odradek").options(**settings.source_options(), **more).load()


def write_stream(frame: DataFrame, settings: PipelineSettings, name: str) -> DataStreamWriter:
    """Returns a writer for the result that runs as often as the settings say."""
    writer = frame.writeStream.queryName(f"{name}-{settings.topic}")
    if settings.every is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=settings.every)
