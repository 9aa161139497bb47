"""The costs of three brokers, and of the loss of one, beside Apache Kafka's."""
