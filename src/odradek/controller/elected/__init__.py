"""The elected controller of a cluster on ZooKeeper: what it reads, decides, writes and tells."""
