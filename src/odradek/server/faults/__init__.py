"""Faults on command: errors that a test has a running broker make.

`FaultBoard` keeps the faults that are in force. As long as there are some that concern requests,
a `FaultyHandler` stands between the sockets and the dispatcher; without any it is not there, and
nothing is slower.
"""

from odradek.server.faults.board import FaultBoard
from odradek.server.faults.fault import Effect, Fault, Filter

__all__ = ["Effect", "Fault", "FaultBoard", "Filter"]
