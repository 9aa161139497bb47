"""The calls that `odradek.Broker` and `odradek.Cluster` offer a test: records, groups, time,
faults."""
