"""The purgatory benchmark: wheels, the old queue, and Apache Kafka's own, side by side."""
