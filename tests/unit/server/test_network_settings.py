"""Settings to limits and addresses."""

import socket

from odradek.clock import SystemClock
from odradek.config import BrokerConfig
from odradek.model import EndPoint
from odradek.network.listener import OS_DEFAULT
from odradek.server.network_settings import advertised_endpoints, network_limits, reachable_host


def test_limits_have_kafkas_defaults() -> None:
    """Goal: what is not set behaves as Kafka, but for the socket buffers."""
    limits = network_limits(BrokerConfig(), SystemClock())
    assert limits.frame_max_bytes == 104_857_600
    assert limits.idle_max_ms == 600_000
    assert limits.socket_options.send_buffer_bytes == OS_DEFAULT


def test_socket_buffers_are_applied_when_set() -> None:
    """Goal: whoever sets Kafka's very default means it."""
    limits = network_limits(BrokerConfig({"socket.send.buffer.bytes": "102400"}), SystemClock())
    assert limits.socket_options.send_buffer_bytes == 102_400
    assert limits.socket_options.receive_buffer_bytes == OS_DEFAULT


def test_advertised_listeners_get_real_ports() -> None:
    """Goal: port 0 is told as the port that was taken, advertised hosts as they stand."""
    config = BrokerConfig(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://broker.example:0",
        }
    )
    bound = [EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 4711)]
    assert advertised_endpoints(config, bound) == [
        EndPoint("PLAINTEXT", "PLAINTEXT", "broker.example", 4711)
    ]
    assert advertised_endpoints(BrokerConfig(), bound) == bound


def test_an_address_of_all_is_not_advertised() -> None:
    """Goal: no client is sent to 0.0.0.0."""
    assert reachable_host("::1") == "::1"
    for host in ("", "0.0.0.0", "::"):
        assert reachable_host(host) in (socket.gethostname(), "localhost")


def test_an_advertised_listener_without_a_host_is_this_machine() -> None:
    """Clients would be told to connect to nowhere; Kafka tells them its own name."""
    config = BrokerConfig({"advertised.listeners": "PLAINTEXT://:9092"})
    [endpoint] = advertised_endpoints(config, config.listeners)
    assert endpoint.host == reachable_host("")
