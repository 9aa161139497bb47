"""A program: copies a topic to another, exactly once, until it is told to end or is at the end.

python query.py SERVERS CHECKPOINT once|on
"""

import sys

from pyspark_odradek import session

# A task may be killed more often than Spark would bear by default.
MASTER = "local[2,8]"
PER_BATCH = "40"


def main(servers: str, checkpoint: str, how: str) -> None:
    """Runs the query."""
    at_broker = {"kafka.bootstrap.servers": servers}
    with session("killed", master=MASTER, memory="512m") as spark:
        records = (
            spark.readStream.format("odradek").options(**at_broker)
            .option("subscribe", "in").option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_BATCH).load()
        )  # fmt: skip
        writer = (
            records.select("key", "value").writeStream.format("killed").options(**at_broker)
            .option("topic", "out").option("exactlyOnce", "true").option("queryName", "copy")
            .option("kafka.batch.size", "200").option("checkpointLocation", checkpoint)
        )  # fmt: skip
        trigger = {"availableNow": True} if how == "once" else {"processingTime": "0 seconds"}
        writer.trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
