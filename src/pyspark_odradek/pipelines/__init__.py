"""Jobs on topics, each a module with one function: `start(spark, settings) -> StreamingQuery`.

They run from the command line (`odradek pipeline NAME`) and from code, on any Spark session
that has this package; `PIPELINES` is the table that the command reads.
"""

from pyspark_odradek.pipelines.runner import run_pipeline
from pyspark_odradek.pipelines.settings import PIPELINES, Pipeline, PipelineError, PipelineSettings

__all__ = ["PIPELINES", "Pipeline", "PipelineError", "PipelineSettings", "run_pipeline"]
