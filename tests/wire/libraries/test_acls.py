"""ACLs by the admin clients of confluent-kafka and kafka-python."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

import odradek

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with odradek.Broker(config=SETTINGS) as broker:
        yield broker.bootstrap_servers


def test_confluent_makes_finds_and_removes(guarded: str) -> None:
    """The calls that most Python teams set their ACLs up by."""
    admin = confluent.AdminClient({"bootstrap.servers": guarded})
    read = confluent.AclBinding(
        confluent.ResourceType.TOPIC,
        "confluent-",
        confluent.ResourcePatternType.PREFIXED,
        "User:alice",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    bad = confluent.AclBinding(
        confluent.ResourceType.BROKER,
        "not-the-cluster",
        confluent.ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        confluent.AclOperation.READ,
        confluent.AclPermissionType.ALLOW,
    )
    made = admin.create_acls([read, bad])
    assert made[read].result() is None
    with pytest.raises(KafkaException, match="INVALID_REQUEST"):
        made[bad].result()
    everything = confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC,
        "confluent-orders",
        confluent.ResourcePatternType.MATCH,
        None,
        None,
        confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )
    assert admin.describe_acls(everything).result() == [read]
    assert admin.delete_acls([everything])[everything].result() == [read]
    assert admin.describe_acls(everything).result() == []


def test_kafka_python_makes_finds_and_removes(guarded: str) -> None:
    """The calls of those who want no C library."""
    admin = KafkaAdminClient(bootstrap_servers=guarded)
    try:
        acl = ACL(
            "User:bob",
            "*",
            ACLOperation.WRITE,
            ACLPermissionType.DENY,
            ResourcePattern(ResourceType.GROUP, "python", ACLResourcePatternType.LITERAL),
        )
        assert admin.create_acls([acl])["failed"] == []
        wanted = ACLFilter(
            "User:bob",
            None,
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        found = admin.describe_acls(wanted)
        assert (found[0] if isinstance(found, tuple) else found) == [acl]
        (removed,) = admin.delete_acls([wanted])
        assert "bob" in str(removed)
    finally:
        admin.close()


def test_without_an_authorizer_confluent_is_told() -> None:
    """A script would go on as if its ACLs were there."""
    with odradek.Broker() as broker:
        admin = confluent.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        acl = confluent.AclBinding(
            confluent.ResourceType.TOPIC,
            "t",
            confluent.ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            confluent.AclOperation.READ,
            confluent.AclPermissionType.ALLOW,
        )
        with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
            admin.create_acls([acl])[acl].result()
