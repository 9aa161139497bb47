"""`redrive`: what `decode` could not read is tried again, with the schemas of now.

Rows get the topic, partition, offset, time and headers that they had, and go to the same table;
what still fails goes back to the dead-letter topic, for another time.
"""

from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_odradek.pipelines.decode import PREFIX, dead_letters_of, decoding
from pyspark_odradek.pipelines.ends.streams import read_topic
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

_PLACE: Final = {"topic": "string", "partition": "int", "offset": "long", "timestamp": "long"}


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """The job, with the settings of the `decode` whose failures it tries again.

    Raises:
        PipelineError: as of `decode`, or it is to go on for ever, or nothing has failed yet.
    """
    if settings.every is not None:
        raise PipelineError("redrive runs once: what fails again would come back for ever")
    dead = replace(settings, topic=dead_letters_of(settings))
    letters = read_topic(spark, dead, why_missing="nothing has failed", includeHeaders="true")
    return decoding(spark, settings, "redrive", "redriven", origin(letters))


def origin(letters: DataFrame) -> DataFrame:
    """Dead letters as the records that they were; what others put there is left out."""
    told = (_told(name, kind) for name, kind in _PLACE.items())
    theirs = f.filter("headers", lambda each: ~each["key"].startswith(PREFIX))
    records = letters.select(
        "key", "value", *told, f.when(f.size(theirs) > 0, theirs).alias("headers")
    )
    return records.withColumn("timestamp", f.timestamp_millis("timestamp")).where("offset >= 0")


def _told(name: str, kind: str) -> Column:
    found = f.filter("headers", lambda each: each["key"] == f"{PREFIX}{name}")
    return f.get(found, f.lit(0))["value"].cast("string").cast(kind).alias(name)
