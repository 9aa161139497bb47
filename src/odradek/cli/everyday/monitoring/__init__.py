"""Commands that show the state of running brokers."""
