"""The login of a broker to the others of its cluster, over a listener that they share.

The listener's JAAS line has its identity: `username` and `password` beside the users of PLAIN, as
in Kafka. With OAUTHBEARER it is who an issuer's token names, where
`sasl.oauthbearer.token.endpoint.url` says where that is to be had.
"""

from collections.abc import Callable
from ssl import SSLContext

from odradek.client.core.network.handshake import LoginSource
from odradek.client.core.network.login import Login
from odradek.clock import Clock
from odradek.config import BrokerConfig, ConfigError
from odradek.security.jaas import MODULES, UNSIGNED_SUBJECT
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.server.security.jaas_lines import jaas_error, jaas_line
from odradek.server.security.names import JAAS

BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"


def broker_login(
    config: BrokerConfig, listener_name: str, clock: Clock, own_context: Callable[[], SSLContext]
) -> LoginSource:
    """Makes the login. `own_context` is the TLS of this broker to the others.

    Raises:
        ConfigError: the settings do not say who logs in, or by a mechanism that the listener lacks.
    """
    mechanism: str = config[BETWEEN_BROKERS]
    enabled = config.of_listener(listener_name, "sasl.enabled.mechanisms")
    if mechanism not in enabled:
        reason = f"it must be one of sasl.enabled.mechanisms, which are {', '.join(enabled)}"
        raise ConfigError(BETWEEN_BROKERS, mechanism, reason, f"{BETWEEN_BROKERS}: {reason}")
    options = jaas_line(config, listener_name, mechanism).options
    if mechanism == OAUTHBEARER:
        from odradek.client.oauth.settings import token_login

        try:
            found = token_login(
                lambda name: config.of_listener(listener_name, name, mechanism),
                *(options, None, own_context, clock.wall_ms),
            )
        except ConfigError as error:
            if error.name != JAAS:
                raise
            raise jaas_error(listener_name, mechanism, error.reason) from error
        if found is None:
            raise _nobody(listener_name, mechanism, f'{UNSIGNED_SUBJECT}="NAME"')
        return found
    name, password = options.get("username"), options.get("password")
    if not name or not password:
        raise _nobody(listener_name, mechanism, 'username="NAME" password="PASSWORD"')
    return Login(mechanism, name, password, None)


def _nobody(listener_name: str, mechanism: str, options: str) -> ConfigError:
    return jaas_error(
        listener_name,
        mechanism,
        "it does not say as whom this broker logs in to the others; write "
        f"{MODULES[mechanism]} required {options};",
    )
