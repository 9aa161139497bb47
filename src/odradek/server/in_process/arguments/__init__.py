"""What `odradek.Broker` and `odradek.Cluster` are made of, checked where it was written."""
