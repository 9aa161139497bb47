"""Topics as tables: the records of a read, their sources, and their columns in Arrow.

For all readers of whole topics: the Spark package, `Broker.to_arrow`, `odradek export`. `planning`
turns options into offset ranges with the help of `bounds`; `reading` turns ranges into Arrow
batches, fetched from a broker or read from its `segments`. Knows neither Spark nor sockets.
Planning needs only the package: pyarrow is imported where records are decoded or files written.
"""
