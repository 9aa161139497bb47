"""`redrive`: tries the records that `decode` could not read again, with the current schemas.

Rows get their original topic, partition, offset, time and headers, and go to the same table;
records that still fail go back to the dead-letter topic. A duplicate letter, or one whose record
the table has, is skipped, and so are letters of other topics, which may share the dead-letter
topic. Letters of uncommitted transactions are ignored: `decode` decodes their records again.
"""

from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.decode import dead_letters_of, decoding, origin
from pyspark_odradek.pipelines.ends.streams import read_topic
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job, with the settings of the `decode` whose failures it tries again.

    Raises:
        PipelineError: as `decode`, or an interval is set, or nothing has failed yet.
    """
    if settings.every is not None:
        raise PipelineError("redrive runs once: records that fail again would come back for ever")
    letters_topic = dead_letters_of(settings)
    dead = replace(settings, topic=letters_topic, isolation_level="read_committed", path=None)
    letters = read_topic(spark, dead, why_missing="nothing has failed", includeHeaders="true")
    ours = f.col("topic").isin(*(name.strip() for name in settings.topic.split(",")))
    return decoding(spark, settings, "redrive", origin(letters).where(ours))
