"""The elected controller of a cluster on ZooKeeper: reads, decides, writes and informs the
brokers."""
