"""The metadata store of a cluster on ZooKeeper, in the layout that Apache Kafka 3.9 knows."""
