"""Reads users, delegation tokens, ACLs and quotas of an Apache Kafka from ZooKeeper."""

from collections.abc import Callable, Iterator
from urllib.parse import unquote

from odradek.acl import AclBinding, PatternType
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.metadata.store import MetadataStoreError
from odradek.metadata.zookeeper.security import acl_znodes, quota_znodes
from odradek.metadata.zookeeper.security.tokens import TOKENS
from odradek.metadata.zookeeper.znodes import CONFIG, ZnodeError
from odradek.security.sasl.scram import SCRAM_MECHANISMS

_Read = Callable[[str], bytes | None]
_NamesIn = Callable[[str], list[str]]


def read_access(read: _Read, names_in: _NamesIn) -> KafkaAccess:
    """Reads the nodes by `read`, which gives None for a missing one, and `names_in`.

    Raises:
        MetadataStoreError: a node cannot be understood: without it, a client might be let in that
            Kafka refuses.
    """
    access = KafkaAccess()
    try:
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            for folder in acl_znodes.type_folders(pattern_type):
                for path in _paths_in(folder, names_in):
                    entries = acl_znodes.read_acls(path, read(path) or b"")
                    pattern = acl_znodes.pattern_of(path)
                    access.acls.update(AclBinding(pattern, entry) for entry in entries)
        for path in _entities(names_in):
            _take_settings(access, path, read(f"{CONFIG}/{path}") or b"")
        for path in _paths_in(TOKENS, names_in):
            access.tokens[path.rpartition("/")[2]] = _text(path, read(path) or b"")
    except ZnodeError as error:
        raise MetadataStoreError(str(error)) from error
    return access


def _paths_in(folder: str, names_in: _NamesIn) -> list[str]:
    return [f"{folder}/{name}" for name in names_in(folder)]


def _entities(names_in: _NamesIn) -> Iterator[str]:
    """The users, client ids, client ids of users and addresses with settings, by path."""
    users = [f"{quota_znodes.USERS}/{name}" for name in names_in(f"{CONFIG}/{quota_znodes.USERS}")]
    folders = [f"{user}/{quota_znodes.CLIENTS}" for user in users]
    yield from users
    for folder in (quota_znodes.CLIENTS, quota_znodes.IPS, *folders):
        for name in names_in(f"{CONFIG}/{folder}"):
            yield f"{folder}/{name}"


def _take_settings(access: KafkaAccess, path: str, data: bytes) -> None:
    settings = quota_znodes.read_settings(f"{CONFIG}/{path}", data)
    entity = quota_znodes.quota_entity(path)
    quotas = quota_znodes.quotas_in(settings)
    if entity is not None and quotas:
        access.quotas[entity] = dict(quotas)
    credentials = {name: settings[name] for name in SCRAM_MECHANISMS if name in settings}
    match path.split("/"):
        case [quota_znodes.USERS, user] if credentials:
            access.users[unquote(user)] = credentials


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ZnodeError(f"{path} in ZooKeeper is no text") from None
