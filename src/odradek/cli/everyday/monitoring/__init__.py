"""Commands that show how brokers fare."""
