"""The waiting of a thread: runs what a generator of the core yields at once."""

import time
from typing import Any, TypeVar

from odradek.client.core.waits import Gen, Pause

T = TypeVar("T")


def wait(gen: Gen[T]) -> T:
    """Runs a generator to its end."""
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
            if isinstance(waited, Pause):
                time.sleep(waited.wait_ms / 1000)
            else:
                outcome = waited()
        except BaseException as error:  # noqa: BLE001 - the generator's to handle, or to raise
            failure = error
