"""If one of these fails, an import changes who may do what on a broker that is there already."""

from types import MappingProxyType

from odradek.acl import AccessControlEntry, AclBinding, PatternType, PermissionType, ResourcePattern
from odradek.cli.data_directory.import_access import (
    access_statements,
    missing_access,
    told_of_access,
)
from odradek.client_quota import QuotaEntity, QuotaKey
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite import acl_rows
from odradek.metadata.sqlite.journal import StoredMetadata
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
