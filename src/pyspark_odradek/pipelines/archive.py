"""`archive`: every record of a topic to Parquet, with all that a record has, exactly once.

Columns are those of the source: key, value, topic, partition, offset, timestamp,
timestampType and headers. Within a file records are in the order of their offsets.
"""

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_odradek.pipelines.batches import BatchDirectory
from pyspark_odradek.pipelines.settings import PipelineError, PipelineSettings
from pyspark_odradek.pipelines.streams import read_topic, write_stream


def start(spark: SparkSession, settings: PipelineSettings) -> StreamingQuery:
    """Starts the archive; it goes on where an earlier one to the same directory ended.

    Raises:
        PipelineError: no directory is given, or one that belongs to something else.
    """
    if settings.to is None:
        raise PipelineError("archive needs a directory to write to (--to DIR)")
    directory = BatchDirectory(spark, settings.to)
    records = read_topic(spark, settings, includeHeaders="true")
    writer = write_stream(records, settings, "archive").foreachBatch(directory.write)
    return writer.option("checkpointLocation", directory.checkpoint).start()
