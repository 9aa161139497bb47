"""Tasks: functions that are called by sending a record, now, later or again and again.

An `App` knows functions by name. Whoever calls one sends a record; a worker, in the same process or
another, runs it, tries again with growing delays when it raises, and puts aside what fails for
good. What is put off lies in a schedule topic of the broker: no worker waits for it, and none has
to be there. On a clock that a test moves a week of retries takes milliseconds.
"""

from odradek.tasks.app import App
from odradek.tasks.errors import DelaysUnsupported, TaskFailed
from odradek.tasks.task import Task

__all__ = ["App", "DelaysUnsupported", "Task", "TaskFailed"]
