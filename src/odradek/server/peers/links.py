"""`Links`: the network between the brokers of a cluster in one process, to be cut by a test.

A cut fails requests at once, like a reset connection, and a response in flight does not arrive. The
other direction of a link, and clients, are not affected by a cut.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from odradek.background import do_each
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import FetchRequest
from odradek.replication.follower.leader_channel import LeaderChannel, OnFetched, OnOffset
from odradek.server.peers.broker_channel import OnAnswered
from odradek.server.peers.leader_channel import SocketLeaderChannel

T = TypeVar("T")


class Links:
    """Which brokers can reach each other: all, until some are cut apart."""

    def __init__(self) -> None:
        self._cut: set[frozenset[int]] = set()
        self._channels: Final[set[WatchedChannel]] = set()

    def watch(
        self, channel: SocketLeaderChannel, broker_id: int, leader_id: int
    ) -> "WatchedChannel":
        """The same channel, which fails while the two are apart."""
        watched = WatchedChannel(channel, frozenset((broker_id, leader_id)), self)
        self._channels.add(watched)
        return watched

    def cut(self, one: int, other: int) -> None:
        """Takes two brokers apart."""
        link = frozenset((one, other))
        self._cut.add(link)
        do_each([each for each in self._channels if each.link == link], lambda each: each.fail())

    def heal(self) -> None:
        """Lets all brokers reach each other again."""
        self._cut.clear()

    def is_cut(self, link: frozenset[int]) -> bool:
        """Whether the two are apart."""
        return link in self._cut

    def forget(self, channel: "WatchedChannel") -> None:
        """Takes no more notice of a channel that was closed."""
        self._channels.discard(channel)


class WatchedChannel(LeaderChannel):
    """A channel between two brokers that may be taken apart."""

    def __init__(self, channel: SocketLeaderChannel, link: frozenset[int], links: Links) -> None:
        self.link: Final = link
        self._channel: Final = channel
        self._links: Final = links
        self._waiting: Final[dict[int, Callable[[BrokerError], None]]] = {}
        self._asked = 0

    def fetch(self, request: FetchRequest, on_done: OnFetched) -> None:
        """See `LeaderChannel`."""
        self._ask(lambda answered: self._channel.fetch(request, answered), on_done)

    def find_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: int,
        on_done: OnOffset,
    ) -> None:
        """See `LeaderChannel`."""
        where = (topic_partition, timestamp, current_leader_epoch)
        self._ask(lambda answered: self._channel.find_offset(*where, answered), on_done)

    def ask(self, api: ClientApi, values: Mapping[str, object], on_done: OnAnswered) -> None:
        """See `BrokerChannel`."""
        self._ask(lambda answered: self._channel.ask(api, values, answered), on_done)

    def close(self) -> None:
        """See `LeaderChannel`."""
        self._waiting.clear()
        self._links.forget(self)
        self._channel.close()

    def fail(self) -> None:
        """Fails all waiting calls; later responses do not arrive."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        do_each(waiting, lambda on_done: on_done(_unreachable()))

    def _ask(
        self,
        ask: Callable[[Callable[[T | BrokerError], None]], None],
        on_done: Callable[[T | BrokerError], None],
    ) -> None:
        number = self._asked = self._asked + 1
        self._waiting[number] = on_done

        def answered(outcome: T | BrokerError) -> None:
            if self._waiting.pop(number, None) is not None:
                on_done(outcome)

        if self._links.is_cut(self.link):
            asyncio.get_running_loop().call_soon(answered, _unreachable())
        else:
            ask(answered)


def _unreachable() -> BrokerError:
    return BrokerError(ErrorCode.NETWORK_EXCEPTION, "the network is cut")
