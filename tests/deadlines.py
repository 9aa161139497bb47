"""Deadlines of what tests wait for. Only a test that fails waits as long as its deadline.

They grow with the slowness of the machine, which `./test` measures once, at its start.
"""

import math

from tools.suite.slowness import of_this_run


def deadline_s(seconds: float) -> int:
    """The seconds to wait for what an idle machine does in much less than `seconds`."""
    return math.ceil(seconds * of_this_run())


def deadline_ms(milliseconds: float) -> int:
    """The same for settings of brokers and clients: how long one may pause and still count as
    alive.
    """
    return math.ceil(milliseconds * of_this_run())
