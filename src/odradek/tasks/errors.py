"""The errors of tasks: those of a call, and of an app's start."""


class TaskFailed(Exception):
    """A task has failed for good, with the text of its last error."""


class DelaysUnsupported(Exception):
    """The broker does not deliver records later, or not from the app's topic."""


class UnreadableCall(ValueError):
    """A record is no call of a task."""
