"""The waiting of a thread: runs what a generator of the core yields at once."""

import time
from typing import Any, TypeVar

from odradek.client.core.retries import TimeLimit
from odradek.client.core.waits import Gen, Pause

T = TypeVar("T")


def wait(gen: Gen[T], limit: TimeLimit) -> T:
    """Runs a generator to its end; begins no further wait after the time-out.

    Raises:
        TimeoutError: the time is over.
    """
    outcome: Any = None
    failure: BaseException | None = None
    while True:
        try:
            waited = gen.send(outcome) if failure is None else gen.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        outcome = failure = None
        try:
            left_ms = limit.left_ms
            if not left_ms:
                raise TimeoutError
            if isinstance(waited, Pause):
                time.sleep(min(waited.wait_ms, left_ms) / 1000)
            else:
                outcome = waited()
        except BaseException as error:  # noqa: BLE001 - the generator's to handle, or to raise
            failure = error
