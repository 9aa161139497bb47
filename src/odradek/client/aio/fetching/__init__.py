"""The fetching of a consumer: where partitions are read from, requests, and when which is due."""
