"""Commands that only the scripts of Kafka have."""
