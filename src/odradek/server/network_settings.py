"""Turns settings into the network's limits, socket options and addresses.

One deliberate difference from Kafka: `socket.send.buffer.bytes` and
`socket.receive.buffer.bytes` are applied only when somebody set them. Kafka's default of
100 KiB switches the operating system's own tuning off, which fits no network of today.
"""

import socket
from collections.abc import Sequence
from typing import Final

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.model import EndPoint
from odradek.network import NetworkLimits, SocketOptions
from odradek.network.addresses import as_asked
from odradek.network.listener import OS_DEFAULT
from odradek.system_calls import host_name

NEVER_IDLE: Final = -1
# The time after which clients give up (socket.connection.setup.timeout.max.ms).
SETUP_MAX_MS: Final = 30_000
CREATION_RATE: Final = "max.connection.creation.rate"
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})


def network_limits(config: BrokerConfig, clock: Clock) -> NetworkLimits:
    """The limits that connections live under. Idle ones end only on a clock that goes as their
    clients' does: on one that a test moves, all would be idle at once."""
    own_rates = {
        endpoint.listener_name: config.for_listener(endpoint.listener_name, CREATION_RATE)
        for endpoint in config.listeners
    }
    return NetworkLimits(
        frame_max_bytes=config.socket_request_max_bytes,
        request_memory_bytes=config.queued_max_request_bytes,
        idle_max_ms=config.connections_max_idle_ms if clock.keeps_pace else NEVER_IDLE,
        setup_max_ms=SETUP_MAX_MS if clock.keeps_pace else NEVER_IDLE,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        per_ip_overrides=config.connections_per_ip_overrides,
        creation_rate=config[CREATION_RATE],
        creation_rates={name: rate for name, rate in own_rates.items() if rate is not None},
        rate_windows=config["quota.window.num"],
        rate_window_ms=config["quota.window.size.seconds"] * 1000,
        control_plane_listener=config["control.plane.listener.name"],
        inter_broker_listener=config.inter_broker_listener_name,
        socket_options=SocketOptions(
            config["socket.listen.backlog.size"],
            _if_set(config, "socket.send.buffer.bytes"),
            _if_set(config, "socket.receive.buffer.bytes"),
        ),
    )


def advertised_endpoints(config: BrokerConfig, bound: Sequence[EndPoint]) -> list[EndPoint]:
    """The endpoints advertised to clients, now that the real ports are known."""
    if config["advertised.listeners"] is None:
        return [endpoint._replace(host=reachable_host(endpoint.host)) for endpoint in bound]
    ports = {endpoint.listener_name: endpoint.port for endpoint in bound}
    return [
        endpoint._replace(
            host=reachable_host(endpoint.host),
            port=endpoint.port or ports.get(endpoint.listener_name, 0),
        )
        for endpoint in config.advertised_listeners
    ]


def reachable_host(host: str) -> str:
    """A host that a client can connect to: this machine's name where every address is bound."""
    if host not in ANY_ADDRESS:
        return host
    name = host_name()
    try:
        socket.getaddrinfo(as_asked(name), None)
    except OSError:
        return "localhost"
    return name


def _if_set(config: BrokerConfig, name: str) -> int:
    size_bytes: int = config[name]
    return size_bytes if name in config.originals else OS_DEFAULT
