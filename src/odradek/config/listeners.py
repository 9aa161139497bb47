"""Checks the settings of listeners that depend on each other.

Values that Apache Kafka refuses are refused in its words. Four things are taken that Kafka does not
take: a single broker without a listener of the name that brokers would use among themselves, as
long as nobody has named one; a listener on 0.0.0.0 that is not advertised, which clients are told
by the machine's name, as one without a host is; and, since the controller's listeners are not
opened here, their names in small letters, and Kafka's default map in full, which lacks them. One
thing is refused that Kafka accepts: a broker that is to join a quorum of others, since it would be
a separate cluster here. So is `metrics.listener`, which Kafka does not have, on a listener's port.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.config.definition import ConfigError
from odradek.config.endpoints import SECURITY_PROTOCOLS, parse_endpoints, parse_protocol_map
from odradek.model import EndPoint

_MAP: Final = "listener.security.protocol.map"
_BETWEEN_BROKERS: Final = "inter.broker.listener.name"
_PROTOCOL: Final = "security.inter.broker.protocol"
_ADVERTISED: Final = "advertised.listeners"
_CONTROLLERS: Final = "controller.listener.names"
_METRICS: Final = "metrics.listener"
_METRICS_ADDRESS: Final = re.compile(r"http://\[?(?P<host>[^]/]*?)]?:(?P<port>[0-9]+)/?")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")
_VOTERS: Final = "controller.quorum.voters"
_QUORUM_SERVERS: Final = "controller.quorum.bootstrap.servers"


def effective_protocol_map(values: Mapping[str, Any], default: str) -> dict[str, str]:
    """The security protocol of every listener name. A file without a map need not name the
    controller's listeners, which are PLAINTEXT, unless one has TLS or SASL.

    Raises:
        ConfigError: the map is malformed.
    """
    protocols = parse_protocol_map(values[_MAP])
    controllers = _controller_names(values)
    named = [*controllers, *(text.partition("://")[0].upper() for text in values["listeners"])]
    if values[_MAP] == default and not any(name in SECURITY_PROTOCOLS[1:] for name in named):
        return {**dict.fromkeys(controllers, "PLAINTEXT"), **protocols}
    return protocols


def endpoints_of(
    name: str, values: Mapping[str, Any], protocols: Mapping[str, str], *, controllers: bool = False
) -> list[EndPoint]:
    """The end points of `listeners` or `advertised.listeners` that clients are served on, or the
    controller's, on which Kafka serves none and which are not opened.

    Raises:
        ConfigError: one is malformed.
    """
    names = _controller_names(values)
    endpoints = parse_endpoints(name, values[name], protocols)
    return [each for each in endpoints if (each.listener_name in names) is controllers]


def check_listeners(
    values: Mapping[str, Any], given: Mapping[str, str], protocols: Mapping[str, str]
) -> None:
    """Refuses listeners that contradict each other.

    Raises:
        ConfigError: with Kafka's reason.
    """
    _check_roles(values)
    listeners = parse_endpoints("listeners", values["listeners"], protocols)
    _check_ports(values["listeners"], listeners)
    _check_metrics(values, endpoints_of("listeners", values, protocols))
    advertised = listeners
    if values[_ADVERTISED] is not None:
        advertised = parse_endpoints(_ADVERTISED, values[_ADVERTISED], protocols)
        _check_advertised(values, advertised, listeners)
    controllers = _controller_names(values)
    if all(endpoint.listener_name in controllers for endpoint in advertised):
        raise _refusal(
            _CONTROLLERS,
            ",".join(controllers),
            "There must be at least one broker advertised listener. Perhaps all listeners appear "
            f"in {_CONTROLLERS}?",
        )
    if values[_BETWEEN_BROKERS] is not None:
        _check_between_brokers(values, given, protocols, advertised)
    elif any(each.security_protocol == given.get(_PROTOCOL) for each in listeners):
        # That no listener has it `check_protection` says better.
        _check_offered(values, given[_PROTOCOL], advertised)
    _check_controllers(values, listeners)
    if not values["zookeeper.connect"]:
        _check_quorum(values)


def _check_ports(texts: Sequence[str], listeners: Sequence[EndPoint]) -> None:
    """Refuses two listeners on one port, but for an IPv4 and an IPv6 address each."""
    by_port = defaultdict(list)
    for endpoint in listeners:
        if endpoint.port:  # else any that is free
            by_port[endpoint.port].append(_ip_version(endpoint.host))
    for port, versions in by_port.items():
        if len(versions) > 1 and sorted(versions) != [4, 6]:
            shown = f"listeners: [{', '.join(texts)}]"
            sentence = f"Each listener must have a different port, {shown}"
            if len(versions) - versions.count(0) > 1:
                sentence = (
                    "If you have two listeners on the same port then one needs to be IPv4 and the "
                    f"other IPv6, {shown}, port: {port}"
                )
            raise _refusal("listeners", ",".join(texts), sentence)


def _check_metrics(values: Mapping[str, Any], listeners: Sequence[EndPoint]) -> None:
    """Refuses metrics on a port that clients are served on: the start would end with an address in
    use, as if another program had it."""
    text = values[_METRICS] or ""
    found = _METRICS_ADDRESS.fullmatch(text)
    if found is None:
        return  # not set, or for the start to refuse
    for endpoint in listeners:
        hosts = {endpoint.host, found["host"]}
        meets = len(hosts) == 1 or not hosts.isdisjoint(_EVERYWHERE)
        if meets and endpoint.port == int(found["port"]) != 0:
            raise _refusal(
                _METRICS,
                text,
                f"{_METRICS} has the port {endpoint.port} of listener {endpoint.listener_name}; "
                "give another port, or port 0 for a free one",
            )


def _ip_version(host: str) -> int:
    """4 or 6; 0 of a name, and of every address."""
    # Most brokers have no two listeners on one port.
    from ipaddress import ip_address

    try:
        return ip_address(host).version
    except ValueError:
        return 0


def _check_advertised(
    values: Mapping[str, Any], advertised: Sequence[EndPoint], listeners: Sequence[EndPoint]
) -> None:
    text = ",".join(values[_ADVERTISED])
    open_names = [endpoint.listener_name for endpoint in listeners]
    names = [endpoint.listener_name for endpoint in advertised]
    if not set(names) <= set(open_names):
        raise _refusal(
            _ADVERTISED,
            text,
            f"{_ADVERTISED} listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(names)}. The valid options based on the current "
            f"configuration are {','.join(open_names)}",
        )
    if any(endpoint.host == "0.0.0.0" for endpoint in advertised):
        raise _refusal(
            _ADVERTISED,
            text,
            f"{_ADVERTISED} cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP "
            "address.",
        )


def _check_between_brokers(
    values: Mapping[str, Any],
    given: Mapping[str, str],
    protocols: Mapping[str, str],
    advertised: Sequence[EndPoint],
) -> None:
    text: str = values[_BETWEEN_BROKERS]
    if _PROTOCOL in given:
        raise _refusal(
            _BETWEEN_BROKERS,
            text,
            f"Only one of {_BETWEEN_BROKERS} and {_PROTOCOL} should be set.",
        )
    if text.upper() not in protocols:
        raise _refusal(
            _BETWEEN_BROKERS,
            text,
            f"Listener with name {text.upper()} defined in {_BETWEEN_BROKERS} not found in {_MAP}.",
        )
    _check_offered(values, text, advertised)


def _check_offered(values: Mapping[str, Any], text: str, advertised: Sequence[EndPoint]) -> None:
    """Refuses a listener for brokers that other brokers are not told of."""
    names = [endpoint.listener_name for endpoint in advertised]
    options = [name for name in names if name not in _controller_names(values)]
    if text.upper() not in options:
        raise _refusal(
            _BETWEEN_BROKERS,
            text,
            f"{_BETWEEN_BROKERS} must be a listener name defined in {_ADVERTISED}. The valid "
            f"options based on currently configured listeners are {','.join(options)}",
        )


def _check_roles(values: Mapping[str, Any]) -> None:
    if set(values["process.roles"] or ()) == {"controller"}:
        raise _refusal(
            "process.roles",
            "controller",
            "process.roles=controller is not available: a separate controller would serve no "
            "clients, and each broker here can be the controller; start brokers only",
        )


def _check_controllers(values: Mapping[str, Any], listeners: Sequence[EndPoint]) -> None:
    if "controller" not in (values["process.roles"] or ()):
        return
    controllers = _controller_names(values)
    if not controllers:
        reason = f'Missing required configuration "{_CONTROLLERS}" which has no default value.'
        raise _refusal(_CONTROLLERS, "", reason)
    opened = {endpoint.listener_name for endpoint in listeners}
    if not opened.issuperset(controllers):
        is_none = opened.isdisjoint(controllers)
        how_many = "contain at least one value" if is_none else "only contain values"
        raise _refusal(
            _CONTROLLERS,
            ",".join(controllers),
            f"{_CONTROLLERS} must {how_many} appearing in the 'listeners' "
            "configuration when running the KRaft controller role",
        )


def _check_quorum(values: Mapping[str, Any]) -> None:
    """Refuses a broker that its file has join others."""
    is_controller = "controller" in (values["process.roles"] or ("controller",))
    voters = values[_VOTERS]
    if not is_controller or any(_voter_id(voter) != values["broker.id"] for voter in voters):
        _refuse_quorum(_VOTERS, voters)
    # Of one alone nobody can tell whether it is this one.
    servers = values[_QUORUM_SERVERS]
    if not is_controller or len(servers) > 1:
        _refuse_quorum(_QUORUM_SERVERS, servers)


def _voter_id(voter: str) -> int | None:
    digits = voter.partition("@")[0].strip()
    return int(digits) if digits.isdecimal() else None


def _refuse_quorum(name: str, nodes: Sequence[str]) -> None:
    if nodes:
        text = ",".join(nodes)
        raise _refusal(
            name,
            text,
            f"{name} has this broker join a quorum ({text}), which brokers here cannot: it would "
            "be a separate cluster; connect brokers with zookeeper.connect, or "
            "start one alone with process.roles=broker,controller, itself the only voter",
        )


def _controller_names(values: Mapping[str, Any]) -> list[str]:
    return [name.upper() for name in values[_CONTROLLERS] or ()]


def _refusal(name: str, value: str, sentence: str) -> ConfigError:
    return ConfigError(name, value, sentence, sentence)
