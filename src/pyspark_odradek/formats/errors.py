"""The faults of a value, and of a schema."""


class Undecodable(Exception):
    """A value does not match its schema; the message is the reason."""


class UnusableSchema(Exception):
    """A schema cannot be read, or there is no table for it."""
