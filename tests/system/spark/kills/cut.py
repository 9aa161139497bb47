"""A program: a session with some cores goes on with queries that may have been cut otherwise.

python cut.py SERVERS FOLDER CORES STEP...

A step is QUERY:ADAPTIVE:CORES:END. The query of that name copies `in` to a topic of its name,
behind a shuffle that adaptive execution, unless it is `off`, cuts as it would with so many cores;
it ends `done`, `refused`, or `dies` when one task of new records is committed and others are not.
"""

import sys
from pathlib import Path

from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyspark_odradek import session

CONF = {
    "spark.sql.shuffle.partitions": "8",
    # Records are few: what is put together is decided by the cores alone.
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
}
_LEAST = "spark.sql.adaptive.coalescePartitions.minPartitionNum"
RECORDS = 60
REFUSED = ("cut into other tasks", "is repeated with")


def copy(spark: SparkSession, servers: str, folder: Path, name: str) -> None:
    """Runs a query until it has taken all."""
    at_broker = {"kafka.bootstrap.servers": servers}
    records = (
        spark.readStream.format("odradek").options(**at_broker)
        .option("subscribe", "in").option("startingOffsets", "earliest").load()
    )  # fmt: skip
    writer = (
        records.select("key", "value").repartition("key").writeStream.format("killed")
        .options(**at_broker).option("topic", name).queryName(name)
        .option("checkpointLocation", str(folder / f"checkpoint-{name}"))
    )  # fmt: skip
    writer.trigger(availableNow=True).start().awaitTermination()


def produce(servers: str, name: str) -> None:
    """Adds records with keys of many tasks."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce("in", f"{name} {number}", f"k{number}")
    assert producer.flush(60) == 0


def main(servers: str, folder: str, cores: str, *steps: str) -> None:
    """Runs the steps, and says of each how it ended."""
    plan = Path(folder, "plans", "in the commit")
    with session("cut", master=f"local[{cores}]", memory="512m", conf=CONF) as spark:
        for step in steps:
            name, adaptive, as_with, end = step.split(":")
            spark.conf.set("spark.sql.adaptive.enabled", str(adaptive == "on").lower())
            if as_with == cores:
                spark.conf.unset(_LEAST)
            else:
                spark.conf.set(_LEAST, as_with)
            if end == "dies":
                produce(servers, step)
                plan.write_text("worker")
            found = "done"
            try:
                copy(spark, servers, Path(folder), name)
            except StreamingQueryException as error:
                found = "refused" if any(why in str(error) for why in REFUSED) else "dies"
                if found != end:
                    raise
            assert found == end, f"{step}: it is {found}"
            assert not plan.exists()
            print(step, found, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
