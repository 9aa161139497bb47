"""Why a broker does not start, in one line for the person who started it."""


class StartError(Exception):
    """The environment or the settings do not let the broker start; the text says what to do."""
