"""`query`: SQL over topics, each as a view of its name, all as they are at one moment.

The ends of all topics are asked first; however often a query reads a topic, it reads the same
records. `key` and `value` are binary: `CAST(value AS STRING)`, `from_json`.
"""

from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.settings import PipelineError, PipelineSettings
from pyspark_odradek.pipelines.snapshots import read_spans, topic_spans

SHOWN_ROWS = 100


def run(spark: SparkSession, settings: PipelineSettings) -> list[str]:
    """Shows the answer, or writes it where `to` says.

    Raises:
        PipelineError: nothing is asked, or there is no such topic.
    """
    if settings.sql is None:
        raise PipelineError("query needs something to ask (--sql 'SELECT ...')")
    topics = [name.strip() for name in settings.topic.split(",") if name.strip()]
    each = {name: topic_spans(replace(settings, topic=name)) for name in topics}
    for name, spans in each.items():
        if not spans:
            raise PipelineError(f"there is no topic {name}")
        read_spans(spark, settings, spans).createOrReplaceTempView(f"`{name}`")
    answer = spark.sql(settings.sql)
    if settings.to is None:
        answer.show(SHOWN_ROWS, truncate=False)
    else:
        answer.write.mode("overwrite").parquet(settings.to)
    return []
