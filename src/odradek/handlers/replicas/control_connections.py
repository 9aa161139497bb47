"""`ControlConnections`: tells the newest connection of a controller to this broker from earlier
ones.

A controller has one connection to a broker at a time, and repeats unanswered requests over the next
one. So a request that still arrives on an earlier one is outdated: a StopReplica may be meant for a
topic that has been recreated since, an UpdateMetadata may name brokers that are gone. The request
itself does not show that.
"""


class ControlConnections:
    """Remembers the newest connection; they are numbered in the order of their arrival."""

    def __init__(self) -> None:
        self._controller_epoch = -1
        self._newest = -1

    def is_earlier(self, controller_epoch: int, number: int) -> bool:
        """Whether the controller of this epoch has spoken over a later connection than this one.
        Earlier controllers are refused elsewhere."""
        if controller_epoch < self._controller_epoch:
            return False
        if controller_epoch == self._controller_epoch and number < self._newest:
            return True
        self._controller_epoch, self._newest = controller_epoch, number
        return False
