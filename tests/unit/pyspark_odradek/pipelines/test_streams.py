"""The checks of pipelines before Spark is asked: without them a mistyped name leaves half a
checkpoint."""

from dataclasses import replace
from typing import cast

import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.cli.free_port import free_port
from odradek.tables.plan.options import ReadOptions
from pyspark_odradek.errors import SourceError
from pyspark_odradek.options import parse_options
from pyspark_odradek.pipelines.ends import snapshots
from pyspark_odradek.pipelines.ends.streams import read_topic
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

NO_SPARK = cast(SparkSession, None)


def test_a_topic_that_is_not_there_is_said_before_spark_begins() -> None:
    with odradek.Broker() as broker:
        settings = PipelineSettings(bootstrap_servers=broker.bootstrap_servers, topic="ordres")
        with pytest.raises(PipelineError, match=r"there is no topic ordres at 127.0.0.1:\d+$"):
            read_topic(NO_SPARK, settings)
        assert list(broker.topics()) == []
        broker.create_topic("orders")
        with pytest.raises(PipelineError, match=r"at 127.0.0.1:\d+ \(did you mean orders\?\)$"):
            read_topic(NO_SPARK, settings)


def test_a_broker_that_is_away_is_said_before_spark_begins(monkeypatch) -> None:
    def hastily(options: dict[str, str], *, streaming: bool) -> ReadOptions:
        return parse_options({**options, "kafka.request.timeout.ms": "100"}, streaming=streaming)

    monkeypatch.setattr(snapshots, "parse_options", hastily)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceError, match=address):
        read_topic(NO_SPARK, PipelineSettings(bootstrap_servers=address, topic="orders"))


def test_segments_are_not_read_for_committed_records_alone() -> None:
    """The error of the source names options that the command does not have."""
    settings = PipelineSettings("", "orders", path="/data")
    with pytest.raises(PipelineError, match="--isolation-level read_uncommitted, or leave out --"):
        settings.where()
    where = replace(settings, isolation_level="read_uncommitted").where()
    assert where.items() >= {"path": "/data", "kafka.isolation.level": "read_uncommitted"}.items()


def test_batches_of_one_output_are_read_at_one_isolation_level() -> None:
    """One batch would have what was taken back, and the next one not."""
    settings = PipelineSettings("", "orders", isolation_level="read_uncommitted", by="key")
    assert settings.lasting("by") == {"isolation_level": "read_uncommitted", "by": "key"}
