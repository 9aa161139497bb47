"""Tasks: functions that are called by sending a record, now, later or again and again.

An `App` knows functions by name. A call sends a record; a worker, in the same process or another,
runs it, tries again with growing delays when it raises, and keeps calls that fail for good in a
topic. Delayed calls wait in a schedule topic of the broker: no worker waits for them, and none has
to run. On a clock that a test moves, a week of retries takes milliseconds.
"""

from odradek.tasks.app import App
from odradek.tasks.errors import DelaysUnsupported, TaskFailed
from odradek.tasks.task import Task

__all__ = ["App", "DelaysUnsupported", "Task", "TaskFailed"]
