"""Chooses the listener and the time-out of a channel to another broker."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.client.addresses import Address
from odradek.client.security import ClientSecurity
from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.metadata.image import BrokerRegistration
from odradek.timer import Timer

if TYPE_CHECKING:
    from odradek.server.peers.leader_channel import SocketLeaderChannel
    from odradek.server.peers.links import Links, WatchedChannel


class PeerChannels:
    """Makes channels to other brokers; those that a test may cut go over its `links`."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        links: "Links | None",
        on_broken: Callable[[str], None],
        security: Callable[[str], ClientSecurity],
    ) -> None:
        """`on_broken` gets, in words, the exception of a caller's callback. `security` is the
        security of connections to a listener of that name."""
        self._config: Final = config
        self._clock: Final = clock
        self._timer: Final = timer
        self._links: Final = links
        self._on_broken: Final = on_broken
        self._security: Final = security

    def to_replicate(self, broker: BrokerRegistration) -> "SocketLeaderChannel | WatchedChannel":
        """Opens a channel to the listener that brokers use among themselves."""
        name = self._config.inter_broker_listener_name
        return self._open(broker, name, self._config["replica.socket.timeout.ms"], "fetcher")

    def to_control(self, broker: BrokerRegistration) -> "SocketLeaderChannel | WatchedChannel":
        """Opens a channel between the controller and its brokers, to the listener that is kept free
        for it."""
        name = self._config.control_plane_listener_name
        return self._open(broker, name, self._config["controller.socket.timeout.ms"], "controller")

    def _open(
        self, broker: BrokerRegistration, listener_name: str, timeout_ms: int, purpose: str
    ) -> "SocketLeaderChannel | WatchedChannel":
        # A broker on its own asks nobody, and starts without a client.
        from odradek.server.peers.leader_channel import SocketLeaderChannel

        endpoint = broker.endpoint(listener_name) or broker.endpoints[0]
        own_id = self._config.broker_id
        channel = SocketLeaderChannel(
            Address(endpoint.host, endpoint.port),
            own_id,
            self._timer,
            timeout_ms,
            lambda error: self._on_broken(f"asking broker {broker.id}: {error!r}"),
            purpose=purpose,
            # A clock that a test moves would time out every request at once.
            measures_silence=self._clock.keeps_pace,
            security=partial(self._security, endpoint.listener_name),
        )
        return channel if self._links is None else self._links.watch(channel, own_id, broker.id)
