"""Streams that write exactly once, without asking for it.

If these fail, a repeated batch is there twice, in part, or a query cannot go on.
"""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.system.cluster.polling import until

from pyspark_odradek.testing import SparkAndBroker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TASKS = 4


@pytest.fixture
def copy(odradek_spark: SparkAndBroker, request, tmp_path: Path) -> DataStreamWriter:
    """A query that copies forty records of a topic of this test's own behind a shuffle."""
    name = request.node.originalname.replace("_", "-")
    broker = odradek_spark.broker
    broker.create_topic(f"{name}-in", partitions=2)
    broker.create_topic(f"{name}-out", partitions=2)
    for number in range(40):
        broker.produce(f"{name}-in", str(number), key=f"k{number}")
    return (
        odradek_spark.stream(f"{name}-in").select("key", "value").repartition("key")
        .writeStream.format("odradek").queryName(name)
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", f"{name}-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )  # fmt: skip


@pytest.fixture
def adaptive(spark):
    """Says whether Spark may cut a shuffle as it likes; four tasks where it may not."""
    before = {
        name: spark.conf.get(name)
        for name in ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")
    }
    spark.conf.set("spark.sql.shuffle.partitions", str(TASKS))

    def adaptive(is_on: bool) -> None:
        spark.conf.set("spark.sql.adaptive.enabled", str(is_on).lower())

    yield adaptive
    for name, value in before.items():
        spark.conf.set(name, value)


def written(odradek_spark: SparkAndBroker, copy: DataStreamWriter, request) -> Counter[int]:
    topic = request.node.originalname.replace("_", "-") + "-out"
    records = odradek_spark.broker.records(topic, read_committed=True)
    return Counter(int(record.value or b"") for record in records)


def test_a_batch_that_was_cut_otherwise_is_not_written_twice(
    odradek_spark: SparkAndBroker, copy: DataStreamWriter, adaptive, request
) -> None:
    """Adaptive execution makes one task of four small ones; one of those four was committed."""
    adaptive(False)
    with (
        # The first is of the transaction that writes the cut down.
        odradek_spark.broker.delay(1, "EndTxn", times=1),
        odradek_spark.broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR", times=TASKS - 1),
        pytest.raises(StreamingQueryException, match="UNKNOWN_SERVER_ERROR"),
    ):
        odradek_spark.run(copy)
    in_part = written(odradek_spark, copy, request)
    assert 0 < in_part.total() < 40, "one of the tasks was committed"
    adaptive(True)
    with pytest.raises(StreamingQueryException, match=r"cut into other tasks|is repeated with"):
        odradek_spark.run(copy)
    assert written(odradek_spark, copy, request) == in_part
    adaptive(False)
    odradek_spark.run(copy)
    assert written(odradek_spark, copy, request) == Counter(range(40))


def test_a_batch_that_is_in_a_topic_is_not_written_to_another(
    odradek_spark: SparkAndBroker, copy: DataStreamWriter, adaptive, request
) -> None:
    """A query that was started again with another topic had rows of its last batch in both."""
    adaptive(False)
    odradek_spark.broker.create_topic("elsewhere")
    with (
        # The first is of the transaction that writes the cut down.
        odradek_spark.broker.delay(1, "EndTxn", times=1),
        odradek_spark.broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR", times=TASKS - 1),
        pytest.raises(StreamingQueryException, match="UNKNOWN_SERVER_ERROR"),
    ):
        odradek_spark.run(copy)
    assert 0 < written(odradek_spark, copy, request).total() < 40
    with pytest.raises(StreamingQueryException, match="batch 0 was written to test-"):
        odradek_spark.run(copy.option("topic", "elsewhere"))
    assert odradek_spark.broker.records("elsewhere", read_committed=True) == []
    odradek_spark.run(copy.option("topic", f"{request.node.originalname.replace('_', '-')}-out"))
    assert written(odradek_spark, copy, request) == Counter(range(40))


def test_a_batch_of_which_nothing_was_committed_may_be_cut_anew(
    odradek_spark: SparkAndBroker, copy: DataStreamWriter, adaptive, request
) -> None:
    """A query could not be started again with other cores than it had."""
    adaptive(False)
    with (
        odradek_spark.broker.fail("EndTxn", "UNKNOWN_SERVER_ERROR", times=2 * TASKS),
        pytest.raises(StreamingQueryException, match="UNKNOWN_SERVER_ERROR"),
    ):
        odradek_spark.run(copy)
    assert not written(odradek_spark, copy, request)
    adaptive(True)
    odradek_spark.run(copy)
    assert written(odradek_spark, copy, request) == Counter(range(40))


def test_a_query_with_a_name_is_a_group_without_a_line_of_code(
    odradek_spark: SparkAndBroker, copy: DataStreamWriter, request
) -> None:
    """Its lag would be seen by nobody who did not know of a listener."""
    odradek_spark.run(copy)
    group = f"spark.{request.node.originalname.replace('_', '-')}"
    broker = odradek_spark.broker
    # Spark tells of a batch when it gets to it.
    until(lambda: group in broker.groups(), f"the group {group}", broker.groups)
    assert sorted(broker.lag(group).values()) == [0, 0]
