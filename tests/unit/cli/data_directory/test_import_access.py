"""If one of these fails, an import changes who may do what on a broker that is there already."""

import json
from types import MappingProxyType

import pytest

from odradek.acl import AccessControlEntry, AclBinding, PatternType, PermissionType, ResourcePattern
from odradek.cli.data_directory.import_access import (
    access_statements,
    missing_access,
    told_of_access,
)
from odradek.cli.data_directory.zookeeper_access import read_access
from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite import acl_rows
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.metadata.store import MetadataStoreError
from odradek.model import AclOperation, ConfigResourceType, ResourceType

ALICE = ConfigResource(ConfigResourceType.USER, "alice")
PATTERN = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL)
ENTRY = AccessControlEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
WRITE = AccessControlEntry("User:alice", "*", AclOperation.WRITE, PermissionType.ALLOW)


def kafka_access() -> KafkaAccess:
    access = KafkaAccess()
    access.users = {"alice": {"SCRAM-SHA-256": "theirs"}, "bob": {"SCRAM-SHA-256": "theirs"}}
    access.quotas = {
        QuotaEntity(user=name): {QuotaKey.PRODUCER_BYTES: 1.0} for name in ("alice", "bob")
    }
    access.acls = {AclBinding(PATTERN, ENTRY), AclBinding(PATTERN, WRITE)}
    return access


def test_what_is_there_stays() -> None:
    stored = StoredMetadata(
        "id", 0, 0, (), {ALICE: {"SCRAM-SHA-256": "ours"}},
        acls=MappingProxyType({PATTERN: frozenset([WRITE])}),
        client_quotas=MappingProxyType({QuotaEntity(user="alice"): {QuotaKey.PRODUCER_BYTES: 2.0}}),
    )  # fmt: skip
    missing = missing_access(kafka_access(), stored)
    configs, acls, quotas = access_statements(missing)
    assert [row[1:] for row in configs[1]] == [("bob", "SCRAM-SHA-256", "theirs")]
    assert acls == acl_rows.put({PATTERN: frozenset([ENTRY])})
    assert [row[1:] for row in quotas[1]] == [("producer_byte_rate", 1.0)]
    assert missing.counts() == {"users": 1, "tokens": 0, "acls": 1, "quotas": 1}


def test_a_kafka_without_users_is_told_without_a_line() -> None:
    assert told_of_access(KafkaAccess().counts()) == ""
    assert told_of_access(kafka_access().counts()).startswith(
        "2 users, 0 delegation tokens, 2 ACLs, 2 "
    )


def read(nodes: dict[str, bytes]) -> KafkaAccess:
    """Reads a ZooKeeper with these nodes and their folders."""

    def names_in(folder: str) -> list[str]:
        below = (path.removeprefix(f"{folder}/") for path in nodes if path.startswith(f"{folder}/"))
        return list(dict.fromkeys(name.partition("/")[0] for name in below))

    return read_access(nodes.get, names_in)


def test_credentials_are_those_of_users_alone() -> None:
    """A client id would become a user of that name, who can log in."""
    settings = {"SCRAM-SHA-256": "known", "consumer_byte_rate": "5"}
    node = json.dumps({"version": 1, "config": settings}).encode()
    paths = ("users/a%20b", "clients/admin", "users/a%20b/clients/app", "ips/10.0.0.1")
    access = read({f"/config/{path}": node for path in paths})
    assert access.users == {"a b": {"SCRAM-SHA-256": "known"}}
    assert set(access.quotas) == {
        *(QuotaEntity(user="a b"), QuotaEntity(client_id="admin")),
        *(QuotaEntity("a b", "app"), QuotaEntity(ip="10.0.0.1")),
    }


@pytest.mark.parametrize(
    "path", ["/delegation_token/tokens/t", "/kafka-acl/Topic/t", "/config/users/u"]
)
def test_a_node_that_is_no_text_ends_the_import_with_a_sentence(path: str) -> None:
    """It would be told without its name."""
    with pytest.raises(MetadataStoreError, match=f"^{path} in ZooKeeper"):
        read({path: b"\xff"})
