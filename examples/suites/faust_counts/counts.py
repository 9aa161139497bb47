"""A stream that counts words: sentences in, a table with a changelog, counts out."""

import os

import faust

app = faust.App(
    "counts",
    broker=f"kafka://{os.environ['COUNTS_KAFKA']}",
    store="memory://",
    topic_partitions=1,
    web_enabled=False,
    datadir=os.environ["COUNTS_DATA"],
)
sentences = app.topic("sentences", value_type=str)
counted = app.topic("counted", key_type=str, value_type=int)
counts = app.Table("counts", default=int, partitions=1)


@app.agent(sentences)
async def count(stream: faust.Stream) -> None:
    async for sentence in stream:
        for word in sentence.split():
            counts[word] += 1
            await counted.send(key=word, value=counts[word])
