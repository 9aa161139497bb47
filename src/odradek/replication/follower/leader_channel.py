"""The port to a leader: a follower's requests to another broker."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from odradek.errors import BrokerError
from odradek.metadata.image import BrokerRegistration
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import FetchRequest, FetchResponse

OnFetched: TypeAlias = Callable[[FetchResponse | BrokerError], None]
OnOffset: TypeAlias = Callable[[int | BrokerError], None]


class LeaderChannel(Protocol):
    """A way to one broker, connected when it is first needed and again after a failure.

    Every question is answered exactly once, on the loop and never before the call has returned;
    after `close` nothing is answered any more.
    """

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        """Sends a Fetch; NETWORK_EXCEPTION when there is no answer."""
        ...

    def find_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int,
        on_done: OnOffset,
    ) -> None:
        """Asks by ListOffsets where the leader's log begins (-2) or ends (-1)."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


OpenChannel: TypeAlias = Callable[[BrokerRegistration], LeaderChannel]
