"""The JAAS lines of listeners. As in Kafka only one that names listener and mechanism counts."""

from odradek.config import BrokerConfig, ConfigError
from odradek.security.jaas import JaasLine, parse_jaas
from odradek.server.security.names import JAAS


def jaas_line(config: BrokerConfig, listener_name: str, mechanism: str) -> JaasLine:
    """The line of a mechanism on a listener; one without options where there is none.

    Raises:
        ConfigError: it is malformed.
    """
    text: str | None = config.get(_name(listener_name, mechanism))
    if text is None:
        return JaasLine("", {})
    try:
        return parse_jaas(text)
    except ValueError as error:
        raise jaas_error(listener_name, mechanism, str(error)) from error


def jaas_error(listener_name: str, mechanism: str, reason: str) -> ConfigError:
    """The error about a line, which is not shown: it has passwords."""
    name = _name(listener_name, mechanism)
    return ConfigError(name, None, reason, f"{name}: {reason}")


def _name(listener_name: str, mechanism: str) -> str:
    return f"listener.name.{listener_name.lower()}.{mechanism.lower()}.{JAAS}"
