"""`ControlConnections`: over which connections a controller commands this broker.

A controller has one connection to a broker at a time, and says again over the next what was not
answered over the one before. So a request that still arrives on an earlier one is outdated: a
StopReplica may be meant for a topic that has been recreated since, an UpdateMetadata may name
brokers that are gone. Neither says so by itself.
"""


class ControlConnections:
    """The newest of them; connections are numbered as they come."""

    def __init__(self) -> None:
        self._controller_epoch = -1
        self._newest = -1

    def is_earlier(self, controller_epoch: int, number: int) -> bool:
        """Whether the controller of this epoch has spoken over a later connection than this one.
        Controllers of the past are refused elsewhere."""
        if controller_epoch < self._controller_epoch:
            return False
        if controller_epoch == self._controller_epoch and number < self._newest:
            return True
        self._controller_epoch, self._newest = controller_epoch, number
        return False
