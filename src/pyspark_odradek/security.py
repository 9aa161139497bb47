"""The options of TLS and SASL, of reads and of writes: `kafka.security.protocol`, `kafka.sasl.*`
and `kafka.ssl.*`, with Kafka's names and values.

They are checked when a query is planned and sent to its tasks, which connect with them as well:
files and modules that they name must exist on every machine.
"""

from collections.abc import Mapping
from typing import Final

from odradek.client.security_options import SECURITY_SETTINGS, SecurityOptions
from odradek.config.definition import ConfigError

PREFIX: Final = "kafka."
SECURITY_OPTIONS: Final = tuple(f"{PREFIX}{name}" for name in SECURITY_SETTINGS)
_JAVAS: Final = "it is a class or a provider of Java's"
_KERBEROS: Final = "GSSAPI is not spoken"
_BROKERS_MATTER: Final = "brokers check tokens, not clients"
# Kafka's clients have these as well.
REFUSED_SECURITY: Final[dict[str, str]] = {
    f"{PREFIX}{name}": why
    for why, names in (
        (
            _JAVAS,
            "sasl.client.callback.handler.class sasl.login.class security.providers "
            "ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol ssl.provider "
            "ssl.secure.random.implementation ssl.trustmanager.algorithm",
        ),
        (
            _KERBEROS,
            "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin "
            "sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter "
            "sasl.kerberos.ticket.renew.window.factor",
        ),
        (
            _BROKERS_MATTER,
            "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience "
            "sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url "
            "sasl.oauthbearer.scope.claim.name",
        ),
    )
    for name in names.split()
}


def parse_security(options: Mapping[str, str]) -> SecurityOptions:
    """Reads the security settings among options, whose names are in lower case.

    Raises:
        ValueError: they contradict each other, or a file that they name cannot be used; the message
            names the option, and shows no secret.
    """
    given = {
        name.removeprefix(PREFIX): value.strip()
        for name, value in options.items()
        if name in SECURITY_OPTIONS
    }
    try:
        return SecurityOptions.of(given)
    except ConfigError as error:
        raise ValueError(f"{PREFIX}{error.name}: {error.reason}") from None
