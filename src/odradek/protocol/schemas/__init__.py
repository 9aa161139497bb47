"""Kafka's message schemas, and the classes, readers and writers made of them."""
