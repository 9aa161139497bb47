"""The authorizer of a broker's settings."""

from odradek.config import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.model import KafkaPrincipal
from odradek.security.authorizer.authorizer import Authorizer
from odradek.security.principal import parse_principal


def make_authorizer(config: BrokerConfig) -> Authorizer | None:
    """The authorizer of `authorizer.class.name`; None without that setting.

    Raises:
        ConfigError: `super.users` is no list of principals.
    """
    found = super_users(config["super.users"])
    if not config["authorizer.class.name"]:
        return None
    return Authorizer(found, allow_everyone=config["allow.everyone.if.no.acl.found"])


def super_users(text: str) -> list[KafkaPrincipal]:
    """The principals that `super.users` names, separated by semicolons.

    Raises:
        ConfigError: one of them is no principal.
    """
    found = []
    for each in filter(None, (part.strip() for part in text.split(";"))):
        try:
            found.append(parse_principal(each))
        except ValueError as error:
            raise ConfigError("super.users", each, str(error)) from error
    return found
