"""The tools of Kafka's system tests: they print each event as a line of JSON."""
