"""The wording of Kafka's tools, which scripts look for, and how the tools read values."""
