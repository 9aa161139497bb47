"""`query`: SQL over topics, each as a view of its name, all as they are at one moment.

The ends of all topics are asked for first: however often a query reads a topic, it reads the same
records. `key` and `value` are binary: `CAST(value AS STRING)`, `from_json`.
"""

from dataclasses import replace

from pyspark.sql import SparkSession

from pyspark_odradek.pipelines.ends.directories import ClaimedLock, put_table
from pyspark_odradek.pipelines.ends.snapshots import no_topic, read_spans, topic_spans
from pyspark_odradek.pipelines.running.jobs import OnceJob, Outcome
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

SHOWN_ROWS = 100


def build(spark: SparkSession, settings: PipelineSettings) -> OnceJob:
    """The query as a job: the result is shown, or written to the directory `to`.

    Raises:
        PipelineError: there is no query.
    """
    sql = settings.sql
    if sql is None:
        raise PipelineError("query needs something to ask (--sql 'SELECT ...')")
    return OnceJob(lambda: _ask(spark, settings, sql))


def _ask(spark: SparkSession, settings: PipelineSettings, sql: str) -> Outcome:
    topics = [name.strip() for name in settings.topic.split(",") if name.strip()]
    each = {name: topic_spans(replace(settings, topic=name)) for name in topics}
    _check_names(spark, list(each))
    for name, spans in each.items():
        if not spans:
            raise no_topic(replace(settings, topic=name))
        read_spans(spark, settings, spans).createOrReplaceTempView(f"`{name}`")
    answer = spark.sql(sql)
    if settings.to is None:
        answer.show(SHOWN_ROWS, truncate=False)
    else:
        directory = settings.directory("query")
        put_table(spark, answer, directory, ClaimedLock(spark, directory, "query", settings.topic))
    facts: dict[str, object] = {
        f"{part}": f"offsets {span.start} to {span.end}"
        for spans in each.values()
        for part, span in spans.items()
    }
    return Outcome(facts=facts)


def _check_names(spark: SparkSession, topics: list[str]) -> None:
    """Checks that each topic is a view of its own: usually Spark ignores the case of names.

    Raises:
        PipelineError: two topics would be one view.
    """
    if spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    for topic in topics:
        if same := [name for name in topics if name != topic and name.lower() == topic.lower()]:
            raise PipelineError(
                f"{topic} and {same[0]} are one name in Spark's SQL: set "
                "spark.sql.caseSensitive to true, or ask for one of them"
            )
