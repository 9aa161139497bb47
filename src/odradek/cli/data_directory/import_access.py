"""Imports what an Apache Kafka knows about its clients, and finds the way to its ZooKeeper."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from odradek.cli.data_directory.import_refused import ImportRefused
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


def access_statements(access: KafkaAccess, stored: StoredMetadata) -> list[Statement]:
    """Writes users, tokens, ACLs and quotas; what is `stored` of a user, a token or a quota
    stays."""
    held = {resource for resource, settings in stored.configs.items() if settings}
    settings = [
        (resource, name, value)
        for resource, values in _resources(access)
        if resource not in held
        for name, value in values.items()
    ]
    known = stored.client_quotas
    quotas = {each: values for each, values in access.quotas.items() if each not in known}
    return [
        schema.put_configs(settings),
        acl_rows.put(access.acls_by_pattern()),
        quota_rows.put(quotas),
    ]


def told_of_access(access: KafkaAccess) -> str:
    """A line about what was found; none if there is nothing."""
    counts = access.counts()
    if not any(counts.values()):
        return ""
    found = "{users} users, {tokens} delegation tokens, {acls} ACLs, {quotas} quotas"
    return f"{found.format(**counts)}; ACLs count with authorizer.class.name\n"


def _resources(access: KafkaAccess) -> Iterator[tuple[ConfigResource, Mapping[str, str]]]:
    for name, credentials in access.users.items():
        yield ConfigResource(ConfigResourceType.USER, name), credentials
    for token_id, text in access.tokens.items():
        yield token_resource(token_id), {INFORMATION: text}
