"""The presence of group members: for a clock that does not go as clients' clocks do.

Members send heartbeats by the machine's time, a few seconds apart. On a clock that a test moves,
or that runs a hundred times as fast, every session would be over before the next one can come. So
there a member lives as long as the connection is open over which it last spoke to its coordinator:
a client that ends, is killed or is cut off loses its connection, and its session at the next
time-out.
"""

from collections.abc import Callable
from typing import Final

from odradek.handlers.request import Request, RequestObserver
from odradek.protocol.primitives import ProtocolError

JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
SYNC_GROUP: Final = 14
CONSUMER_GROUP_HEARTBEAT: Final = 68
SHARE_GROUP_HEARTBEAT: Final = 76
_SIGNS_OF_LIFE: Final = frozenset(
    {JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT, SHARE_GROUP_HEARTBEAT}
)


class Presence(RequestObserver):
    """Remembers over which connection each member last spoke; `is_open` knows those that are."""

    def __init__(self, is_open: Callable[[str], bool]) -> None:
        self._is_open: Final = is_open
        self._connections: Final[dict[tuple[str, str], str]] = {}

    def received(self, request: Request) -> None:
        """Watches the requests of members."""
        if request.api_key not in _SIGNS_OF_LIFE:
            return
        try:
            body = request.body()
        except ProtocolError:
            return  # its handler will say so
        if body.member_id:
            connection_id = request.exchange.connection_id
            self._connections[body.group_id, body.member_id] = connection_id

    def is_present(self, group_id: str, member_id: str) -> bool:
        """Whether the member's client is connected; one that is not is forgotten."""
        member = group_id, member_id
        connection_id = self._connections.get(member)
        if connection_id is None:
            return False
        if not self._is_open(connection_id):
            del self._connections[member]
            return False
        return True

    def forget(self, group_id: str, member_id: str) -> None:
        """Takes a member for gone until it speaks again."""
        self._connections.pop((group_id, member_id), None)
