"""Listeners of files that were written for Apache Kafka 4.3: each value, and each refusal, is what
its `KafkaConfig` says of the same file."""

import pytest

from odradek.config import BrokerConfig, ConfigError
from odradek.config.protection import check_protection

QUICKSTART = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
DEFAULT_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
TWO = {
    "listeners": "A://:9092,B://:9094",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
}


def test_the_listeners_of_the_controller_need_no_protocol() -> None:
    """The commonest file there is would be refused."""
    config = BrokerConfig({**QUICKSTART, "advertised.listeners": "PLAINTEXT://localhost:9092"})
    assert [endpoint[:2] for endpoint in config.listeners] == [("PLAINTEXT", "PLAINTEXT")]
    assert [endpoint[:2] for endpoint in config.controller_listeners] == [
        ("CONTROLLER", "PLAINTEXT")
    ]
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert BrokerConfig({**QUICKSTART, "advertised.listeners": "PLAINTEXT://:9092"})


@pytest.mark.parametrize(
    ("more", "listener"),
    [
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,X://:9094"}, "X"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "CONTROLLER"),
        ({"listeners": "SSL://:9092,CONTROLLER://:9093"}, "CONTROLLER"),
        ({"listeners": "SASL_SSL://:9092,CONTROLLER://:9093"}, "CONTROLLER"),
    ],
)
def test_others_need_one(more: dict[str, str], listener: str) -> None:
    """A listener that was to be protected would be open."""
    with pytest.raises(ConfigError, match=f"No security protocol defined for listener {listener}$"):
        BrokerConfig({**QUICKSTART, **more})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable "
            "IP address.",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://localhost:9092,SSL://localhost:9095"},
            "advertised.listeners listener names must be equal to or a subset of the ones defined "
            "in listeners. Found PLAINTEXT,SSL. The valid options based on the current "
            "configuration are PLAINTEXT,CONTROLLER",
        ),
        (
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
            "Each listener must have a different port, listeners: [PLAINTEXT://:9092, "
            "CONTROLLER://:9092]",
        ),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
            "If you have two listeners on the same port then one needs to be IPv4 and the other "
            "IPv6, listeners: [PLAINTEXT://127.0.0.1:9092, CONTROLLER://127.0.0.2:9092], port: "
            "9092",
        ),
        (
            {"listeners": "PLAINTEXT://:9092"},
            "controller.listener.names must contain at least one value appearing in the "
            "'listeners' configuration when running the KRaft controller role",
        ),
        (
            {"inter.broker.listener.name": "SSL"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are PLAINTEXT",
        ),
        (
            {"inter.broker.listener.name": "CONTROLLER"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are PLAINTEXT",
        ),
        (
            {"inter.broker.listener.name": "NOWHERE"},
            "Listener with name NOWHERE defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map.",
        ),
        (
            {**TWO, "inter.broker.listener.name": "B", "advertised.listeners": "A://x:9092"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are A",
        ),
        (
            {"controller.listener.names": "CONTROLLER,OTHER"},
            "controller.listener.names must only contain values appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        ),
        (
            {
                "listeners": "A://:9092,CONTROLLER://:9093",
                "listener.security.protocol.map": "A:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
            "The valid options based on currently configured listeners are A",
        ),
        (
            {
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be "
            "set.",
        ),
    ],
)
def test_listeners_that_contradict_each_other_are_refused(
    more: dict[str, str], reason: str
) -> None:
    """Clients, or the other brokers, would be told an address at which nobody answers."""
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({**QUICKSTART, **more})
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    "more",
    [
        {"controller.listener.names": "controller"},
        {"listener.security.protocol.map": DEFAULT_MAP},
    ],
)
def test_what_kafka_refuses_of_a_listener_that_is_not_opened_is_taken(more: dict[str, str]) -> None:
    """The page about compatibility says that such files are taken; clients must not be served
    there."""
    config = BrokerConfig({**QUICKSTART, **more})
    assert [endpoint.listener_name for endpoint in config.listeners] == ["PLAINTEXT"]
    assert [endpoint.listener_name for endpoint in config.controller_listeners] == ["CONTROLLER"]


def test_a_controller_needs_a_listener_of_its_own() -> None:
    """Clients would be served on the listener that is meant for the controllers."""
    without = {**QUICKSTART, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}
    del without["controller.listener.names"]
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(without)
    named = 'Missing required configuration "controller.listener.names"'
    assert str(refused.value) == f"{named} which has no default value."


def test_a_part_of_the_listeners_may_be_advertised() -> None:
    """Files that Kafka takes would be refused."""
    BrokerConfig({**TWO, "inter.broker.listener.name": "a", "advertised.listeners": "A://x:9092"})


@pytest.mark.parametrize(
    ("listener", "metrics"),
    [
        ("127.0.0.1:9092", "127.0.0.1:9092"),
        ("127.0.0.1:9092", "0.0.0.0:9092/"),
        ("[::1]:9092", "[::1]:9092"),
        (":9092", "localhost:9092"),
    ],
)
def test_metrics_on_the_port_of_clients_are_refused(listener: str, metrics: str) -> None:
    """The start would say that the address is in use, and somebody look for the program."""
    told = r"^metrics\.listener has the port 9092 of listener PLAINTEXT; give another port, or port"
    given = {"listeners": f"PLAINTEXT://{listener}"}
    with pytest.raises(ConfigError, match=told):
        BrokerConfig({**given, "metrics.listener": f"http://{metrics}"})


@pytest.mark.parametrize("metrics", ["127.0.0.1:9093", "127.0.0.2:9092", "[::1]:9092"])
def test_metrics_have_an_address_of_their_own(metrics: str) -> None:
    """A broker that can have both would be refused; 9093 is the controller's, where nobody is
    served here."""
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    BrokerConfig({**QUICKSTART, "listeners": listeners, "metrics.listener": f"http://{metrics}"})
    free = {"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": "http://127.0.0.1:0"}
    BrokerConfig(free)


def test_both_kinds_of_addresses_may_share_a_port() -> None:
    """A machine with IPv4 and IPv6 could not serve both, as it does with Kafka."""
    listeners = "A://127.0.0.1:9092,B://[::1]:9092,C://:0,D://:0"
    names = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,D:PLAINTEXT"
    BrokerConfig({"listeners": listeners, "listener.security.protocol.map": names})


def test_clients_are_not_served_where_kafka_serves_none() -> None:
    """A listener without protection would be one more door beside that of the clients."""
    advertised = {"advertised.listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093"}
    config = BrokerConfig({**QUICKSTART, **advertised})
    assert [endpoint.listener_name for endpoint in config.listeners] == ["PLAINTEXT"]
    assert [endpoint.listener_name for endpoint in config.advertised_listeners] == ["PLAINTEXT"]


def test_settings_of_the_controllers_listener_protect_it() -> None:
    """A file that protects its controllers would be refused: no listener would have TLS."""
    given = {
        **QUICKSTART,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "ssl.keystore.location": "/broker.jks",
    }
    check_protection(BrokerConfig(given), given)


@pytest.mark.parametrize("listeners", ["CONTROLLER://:9093", "controller://:9093"])
def test_a_broker_needs_a_listener_for_clients(listeners: str) -> None:
    """It would run, and nobody could reach it."""
    with pytest.raises(ConfigError, match=r"^There must be at least one broker advertised"):
        BrokerConfig({**QUICKSTART, "listeners": listeners})


QUORUM = "controller.quorum.voters"
SERVERS = "controller.quorum.bootstrap.servers"
BROKER = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"}


@pytest.mark.parametrize(
    "more",
    [
        {**BROKER, QUORUM: "2@other:9093"},
        {**BROKER, QUORUM: "1@localhost:9093"},
        {**BROKER, QUORUM: "", SERVERS: "localhost:9093"},
        {QUORUM: "1@a:9093,2@b:9093,3@c:9093"},
        {QUORUM: "2@localhost:9093"},
        {QUORUM: "", SERVERS: "a:9093,b:9093,c:9093"},
    ],
)
def test_a_broker_that_is_to_join_others_is_refused(more: dict[str, str]) -> None:
    """Each of three brokers would be a cluster of its own, in silence, and take records."""
    with pytest.raises(ConfigError, match=rf"^({QUORUM}|{SERVERS}) has this broker join a quorum"):
        BrokerConfig({**QUICKSTART, **more})
    in_zookeeper = {"zookeeper.connect": "zk:2181"}
    assert BrokerConfig({**QUICKSTART, **more, **in_zookeeper})["zookeeper.connect"]


@pytest.mark.parametrize(
    "more",
    [{QUORUM: "", SERVERS: "localhost:9093"}, {QUORUM: ""}, {**BROKER, QUORUM: ""}, {}],
)
def test_a_broker_that_is_its_own_quorum_is_taken(more: dict[str, str]) -> None:
    """The files that Kafka comes with would be refused."""
    assert BrokerConfig({**QUICKSTART, **more}).broker_id == 1


@pytest.mark.parametrize("roles", ["controller", "controller,controller"])
def test_a_controller_of_its_own_is_refused(roles: str) -> None:
    """It would be a broker, and serve clients where none are expected."""
    with pytest.raises(ConfigError, match=r"^process\.roles=controller is not available: "):
        BrokerConfig({**QUICKSTART, "process.roles": roles})


def test_kafkas_file_of_a_controller_is_refused_for_its_role() -> None:
    """Its listener, which is all that the file has to have, would be called the fault."""
    file = {**QUICKSTART, "process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    with pytest.raises(ConfigError, match=r"^process\.roles=controller is not available: "):
        BrokerConfig(file)
