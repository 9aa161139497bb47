"""Why a broker does not start, in one line for the person who started it."""

from odradek.errors import reason_of, text_of


class StartError(Exception):
    """The environment or the settings do not let the broker start; the text says what to do."""


def start_error(error: Exception) -> StartError:
    """Returns the error of a start that the environment has refused."""
    if not isinstance(error, OSError) or not error.filename:
        return StartError(text_of(error))
    is_file = isinstance(error, FileExistsError)  # in the place of a directory
    reason = "Not a directory" if is_file else reason_of(error)
    return StartError(f"Cannot use {error.filename}: {reason}")
