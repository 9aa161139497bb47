"""Brokers inside the program that uses them: `odradek.Broker`, `odradek.Cluster`, their loop."""
