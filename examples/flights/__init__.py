"""A year of flights through a broker into Spark: the main job, `./run`.

336 776 departures from New York's airports in 2013 and the weather of every hour there are
replayed in the order in which they happened, read back by a client that is not ours, archived
to Parquet and joined on Spark, and come out as a table, pictures and counts.
"""
