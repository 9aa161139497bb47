"""The arguments of `odradek.Broker` and `odradek.Cluster`, checked where they were written."""
