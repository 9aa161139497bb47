"""What pipelines ask before Spark is asked: without it a mistyped name leaves half a checkpoint."""

from typing import cast

import pytest
from pyspark.sql import SparkSession

import odradek
from pyspark_odradek.pipelines.ends.streams import read_topic
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

NO_SPARK = cast(SparkSession, None)


def test_a_topic_that_is_not_there_is_said_before_spark_begins() -> None:
    with odradek.Broker() as broker:
        settings = PipelineSettings(bootstrap_servers=broker.bootstrap_servers, topic="ordres")
        with pytest.raises(PipelineError, match="there is no topic ordres at 127"):
            read_topic(NO_SPARK, settings)
        assert list(broker.topics()) == []
