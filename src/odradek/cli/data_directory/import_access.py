"""Imports what an Apache Kafka knows about its clients, and finds the way to its ZooKeeper."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from odradek.config import BrokerConfig
from odradek.config.files.properties import load_properties
from odradek.config.protection import check_protection
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.metadata.image import ConfigResource
from odradek.metadata.kept_tokens import INFORMATION, token_resource
from odradek.metadata.sqlite import acl_rows, quota_rows, schema
from odradek.metadata.sqlite.journal import Statement, StoredMetadata
from odradek.model import ConfigResourceType

if TYPE_CHECKING:
    from odradek.metadata.zookeeper import ZooKeeperSettings

_OF_ZOOKEEPER: Final = ("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.connection.timeout.ms")
_KINDS: Final = ("users", "tokens", "acls", "quotas")


class ImportRefused(Exception):
    """The import was refused; the message is one line."""


def settings_of_zookeeper(servers: str | None, path: str | None) -> "ZooKeeperSettings | None":
    """The way to Kafka's ZooKeeper, if one is named; `path` is a file with more about it.

    Raises:
        ImportRefused, ConfigError, OSError: the file cannot be read, or has other settings, or
            wrong ones.
    """
    if servers is None:
        if path is not None:
            raise ImportRefused("--zk-tls-config-file is for --zookeeper, which is missing")
        return None
    from odradek.server.security.zookeeper import zookeeper_settings

    given = {} if path is None else load_properties(path)
    for name in given:
        if not name.startswith(_OF_ZOOKEEPER):
            raise ImportRefused(f"{path}: {name} is no setting of the way to ZooKeeper")
    given["zookeeper.connect"] = servers
    config = BrokerConfig(given)
    check_protection(config, given)
    return zookeeper_settings(config)


def missing_access(access: KafkaAccess, stored: StoredMetadata) -> KafkaAccess:
    """The users, tokens, ACLs and quotas that are not `stored` yet: of a user, a token or an
    entity with quotas that is, the stored values stay."""
    held = {resource for resource, settings in stored.configs.items() if settings}
    missing = KafkaAccess()
    missing.users = {name: each for name, each in access.users.items() if _user(name) not in held}
    missing.tokens = {
        token_id: text
        for token_id, text in access.tokens.items()
        if token_resource(token_id) not in held
    }
    missing.acls = {
        each for each in access.acls if each.entry not in stored.acls.get(each.pattern, ())
    }
    missing.quotas = {
        entity: quotas
        for entity, quotas in access.quotas.items()
        if entity not in stored.client_quotas
    }
    return missing


def access_statements(access: KafkaAccess) -> list[Statement]:
    """Writes users, tokens, ACLs and quotas."""
    settings = [
        (resource, name, value)
        for resource, values in _resources(access)
        for name, value in values.items()
    ]
    return [
        schema.put_configs(settings),
        acl_rows.put(access.acls_by_pattern()),
        quota_rows.put(access.quotas),
    ]


def told_of_access(summary: Mapping[str, int | str]) -> str:
    """A line about the users, tokens, ACLs and quotas in a summary; none if there are none."""
    if not any(summary[kind] for kind in _KINDS):
        return ""
    imported = "{users} users, {tokens} delegation tokens, {acls} ACLs, {quotas} quotas"
    return f"{imported.format(**summary)}; ACLs count with authorizer.class.name\n"


def _resources(access: KafkaAccess) -> Iterator[tuple[ConfigResource, Mapping[str, str]]]:
    for name, credentials in access.users.items():
        yield _user(name), credentials
    for token_id, text in access.tokens.items():
        yield token_resource(token_id), {INFORMATION: text}


def _user(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.USER, name)
