"""`ImportRefused`, which every part of an import raises."""


class ImportRefused(Exception):
    """The import was refused; the message is one line."""
