"""`latest`: writes the newest record of every key as a table; a key whose newest record has no
value is deleted, and is left out. These are the records that compaction would leave, without
waiting for it.

One pass over the topic as it is now. The result replaces the directory's contents.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.ends.directories import ClaimedLock, put_table
from pyspark_odradek.pipelines.ends.snapshots import no_topic, read_spans, topic_spans
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineSettings


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The table as a job.

    Raises:
        PipelineError: no directory is given.
    """
    directory = settings.directory("latest")
    return OnceJob(lambda: _write(spark, settings, directory))


def latest(records: DataFrame) -> DataFrame:
    """Returns the newest record of every key, for a batch of records of one topic."""
    row = f.struct(*records.columns)
    newest = records.where("key IS NOT NULL").groupBy("partition", "key")
    return (
        newest.agg(f.max_by(row, "offset").alias("row")).select("row.*").where("value IS NOT NULL")
    )


def _write(spark: SparkSession, settings: PipelineSettings, directory: str) -> Outcome:
    spans = topic_spans(settings)
    if not spans:
        raise no_topic(settings)
    lock = ClaimedLock(spark, directory, "latest", settings.topic)
    put_table(spark, latest(read_spans(spark, settings, spans)), directory, lock)
    return Outcome(facts={"offsets read": sum(span.end - span.start for span in spans.values())})
