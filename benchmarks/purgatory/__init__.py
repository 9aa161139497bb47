"""The purgatory benchmark (R6): wheels, the old queue, and Apache Kafka's own, side by side."""
