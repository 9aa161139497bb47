"""Commands that work on a data directory itself, without a broker."""
