"""The settings about listeners as far as they depend on each other.

What Apache Kafka refuses of them is refused in its words. One thing is taken that Kafka does not
take: a single broker without a listener of the name that brokers would use among themselves, as
long as nobody has named one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.config.definition import ConfigError
from odradek.config.endpoints import SECURITY_PROTOCOLS, parse_endpoints, parse_protocol_map
from odradek.model import EndPoint

_MAP: Final = "listener.security.protocol.map"
_BETWEEN_BROKERS: Final = "inter.broker.listener.name"
_ADVERTISED: Final = "advertised.listeners"


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


def check_listeners(
    values: Mapping[str, Any], given: Mapping[str, str], protocols: Mapping[str, str]
) -> None:
    """Refuses listeners that contradict each other.

    Raises:
        ConfigError: with Kafka's reason.
    """
    listeners = parse_endpoints("listeners", values["listeners"], protocols)
    advertised = listeners
    if values[_ADVERTISED] is not None:
        advertised = parse_endpoints(_ADVERTISED, values[_ADVERTISED], protocols)
        _check_advertised(values, advertised, listeners)
    if values[_BETWEEN_BROKERS] is not None:
        _check_between_brokers(values, given, protocols, advertised)
    _check_roles(values)


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
    if "security.inter.broker.protocol" in given:
        raise _refusal(
            _BETWEEN_BROKERS,
            text,
            f"Only one of {_BETWEEN_BROKERS} and security.inter.broker.protocol should be set.",
        )
    if text.upper() not in protocols:
        raise _refusal(
            _BETWEEN_BROKERS,
            text,
            f"Listener with name {text.upper()} defined in {_BETWEEN_BROKERS} not found in {_MAP}.",
        )
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
            "process.roles=controller is not available: a controller of its own would serve no "
            "clients, and each broker here can be the controller; start brokers only",
        )


def _controller_names(values: Mapping[str, Any]) -> list[str]:
    return [name.upper() for name in values["controller.listener.names"] or ()]


def _refusal(name: str, value: str, sentence: str) -> ConfigError:
    return ConfigError(name, value, sentence, sentence)
