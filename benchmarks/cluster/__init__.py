"""What three brokers cost, how they stand the loss of one, and how Apache Kafka's do."""
