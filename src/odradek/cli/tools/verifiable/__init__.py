"""The tools that Kafka's system tests read along with: each event is a line of JSON."""
