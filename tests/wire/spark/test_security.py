"""Source, sink and pipelines by TLS and SASL, in Spark: if these fail, its workers cannot reach
brokers that ask for them, or a plan shows a secret; or the official connector, which takes the same
options, cannot log in here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.client.security_options import SecurityOptions
from pyspark_odradek.pipelines import PipelineSettings, archive, audit, read_table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

PASSWORD = "s3cret-of-alice"
RECORDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker(security="scram+tls", users={"alice": PASSWORD}) as broker:
        for topic in ("orders", "copy"):
            broker.create_topic(topic, partitions=2)
        yield broker


def test_a_protected_topic_is_written_read_and_archived(
    spark: Any, broker: odradek.Broker, tmp_path: Path
) -> None:
    login = broker.login("alice")
    rows = spark.range(RECORDS).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("odradek").mode("append").options(**login.spark())
    writer.option("topic", "orders").save()
    options = {**login.spark(), "subscribe": "orders", "startingOffsets": "earliest"}
    topic = spark.read.format("odradek").options(**options).load()
    assert topic.count() == RECORDS
    plan = topic._jdf.queryExecution().toString()
    stream = spark.readStream.format("odradek").options(**options).load()
    query = (
        stream.select("value").writeStream.format("odradek").options(**login.spark())
        .option("topic", "copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    plan += query._jsq.explainInternal(True)
    plan += "".join(str(progress) for progress in query.recentProgress)
    assert PASSWORD not in plan
    copied = spark.read.format("odradek").options(**login.spark()).option("subscribe", "copy")
    assert copied.option("kafka.isolation.level", "read_committed").load().count() == RECORDS
    place = str(tmp_path / "archive")
    settings = PipelineSettings(
        broker.bootstrap_servers, "orders", to=place, source=place,
        security=SecurityOptions.of(login.java()),
    )  # fmt: skip
    archive.build(spark, settings).run()
    assert audit.build(spark, settings).run().findings == []
    kept = read_table(spark, place)
    assert kept is not None
    assert kept.count() == RECORDS


def test_a_function_gives_the_tasks_their_tokens(spark: Any, tmp_path: Path) -> None:
    """It travels by its name, and every process of Spark's imports its module."""
    with odradek.Broker(security="oauth", users={"alice": ""}) as broker:
        broker.create_topic("t")
        module = tmp_path / "tokens_of_a_test.py"
        token = str.__str__(broker.login("alice").token())
        module.write_text(f"def token():\n    return {token!r}\n", encoding="utf-8")
        spark.sparkContext.addPyFile(str(module))
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.provider": "tokens_of_a_test:token",
        }
        assert copied(spark, "odradek", options) == [str(each) for each in range(RECORDS)]


@pytest.mark.parametrize("word", ["mtls", "plain", "scram", "oauth", "scram+tls"])
def test_the_connector_comes_in(spark: Any, connector: str, word: str) -> None:
    with odradek.Broker(security=word, users={"alice": PASSWORD}) as broker:
        broker.create_topic("t")
        rows = copied(spark, connector, broker.login("alice").spark())
        assert rows == [str(each) for each in range(RECORDS)]


@pytest.mark.parametrize("word", ["plain", "scram+tls"])
def test_the_connector_with_a_wrong_password_does_not(
    spark: Any, connector: str, word: str
) -> None:
    with odradek.Broker(security=word, users={"alice": PASSWORD}) as broker:
        broker.create_topic("t")
        with pytest.raises(Exception, match="SaslAuthenticationException: Authentication failed"):
            copied(spark, connector, broker.login("alice", "no-password").spark())
        assert broker.records("t") == []


def copied(spark: Any, source: str, options: dict[str, str]) -> list[str]:
    """Writes numbers by a source, and returns what it reads of them."""
    numbers = spark.range(RECORDS).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format(source).mode("append").options(**options).option("topic", "t").save()
    topic = spark.read.format(source).options(**options).option("subscribe", "t").load()
    values = topic.selectExpr("CAST(value AS STRING)").collect()
    return sorted((row.value for row in values), key=int)
