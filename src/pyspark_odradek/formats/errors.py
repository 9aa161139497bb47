"""The faults of a value, and of a schema."""


class Undecodable(Exception):
    """A value is not what its schema says; the text is the reason that goes with it."""


class UnusableSchema(Exception):
    """A schema cannot be read, or there is no table for it."""
