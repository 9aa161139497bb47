"""What `odradek.Broker` and `odradek.Cluster` do for a test: records, groups, time, faults."""
