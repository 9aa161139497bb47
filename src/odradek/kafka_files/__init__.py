"""Reads the files of a broker, ours or Apache Kafka's, for tools; only the command line sees it."""
