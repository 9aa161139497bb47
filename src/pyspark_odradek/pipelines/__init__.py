"""Jobs on topics, each a module with one function: `build(spark, settings) -> Job`.

They run from the command line (`odradek pipeline NAME`) and from code, on any Spark session
that has this package: `build(spark, settings).run()`. `PIPELINES` is the table that the command
reads.
"""

from pyspark_odradek.pipelines.ends.directories import read_table, reading_table
from pyspark_odradek.pipelines.running.jobs import Batch, Job, OnceJob, Outcome, StreamJob
from pyspark_odradek.pipelines.running.report import report_page, summary
from pyspark_odradek.pipelines.running.runner import run_pipeline
from pyspark_odradek.pipelines.running.settings import (
    PIPELINES,
    Pipeline,
    PipelineError,
    PipelineSettings,
)

__all__ = [
    "PIPELINES",
    "Batch",
    "Job",
    "OnceJob",
    "Outcome",
    "Pipeline",
    "PipelineError",
    "PipelineSettings",
    "StreamJob",
    "read_table",
    "reading_table",
    "report_page",
    "run_pipeline",
    "summary",
]
