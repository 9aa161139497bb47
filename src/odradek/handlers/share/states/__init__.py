"""The APIs of share groups' states, which brokers ask one another."""
