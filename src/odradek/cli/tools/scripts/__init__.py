"""Commands that only scripts of Kafka's are called by."""
