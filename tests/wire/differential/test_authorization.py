"""Every API, refused and allowed, beside an Apache Kafka with its own authorizer.

Clients do not log in: who asks is `User:ANONYMOUS`, from one address of this machine as the owner
of everything, from another as a guest. Whatever an ACL says it says of the guest's address.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

import pytest
from tests.wire.conftest import DIFFERENTIAL_FEATURES, DIFFERENTIAL_SETTINGS
from tests.wire.differential.harness import (
    API_KEYS,
    Allowed,
    Peer,
    Target,
    differences,
)
from tests.wire.differential.test_sweep import Filling, served_on, values_of
from tools.kafka_node import kafka_node

import odradek
from odradek.acl import PatternType, PermissionType
from odradek.model import AclOperation, ResourceType
from odradek.protocol import messages

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

OWNER, GUEST = "127.0.0.1", "127.0.0.2"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
Play = Callable[[Callable[[Peer, Peer], None]], None]
SETTINGS: Final = {
    **DIFFERENTIAL_SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first ACLs, which only somebody who is allowed to can make.
    "allow.everyone.if.no.acl.found": "true",
}
NOT_COMPARED: Final = (
    Allowed(r"(describe_acls|delete_acls)\..*\.error_message", "ours are our own words"),
)


def acl(
    type: ResourceType,
    name: str,
    operation: AclOperation,
    host: str = GUEST,
    permission: PermissionType = ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> dict[str, object]:
    return {
        "resource_type": type,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def only_this(creation: dict[str, Any]) -> dict[str, object]:
    """The filter that means one ACL."""
    return {
        "resource_type_filter": creation["resource_type"],
        "resource_name_filter": creation["resource_name"],
        "pattern_type_filter": creation["resource_pattern_type"],
        "principal_filter": creation["principal"],
        "host_filter": creation["host"],
        "operation": creation["operation"],
        "permission_type": creation["permission_type"],
    }


def grant(owner: Peer, *creations: dict[str, Any]) -> None:
    owner.prepare("create_acls", 3, creations=creations)


def revoke(owner: Peer, *creations: dict[str, Any]) -> None:
    gone = owner.quietly("delete_acls", 3, filters=[only_this(each) for each in creations])
    assert all(each.matching_acls for each in gone.filter_results), gone


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Target]]:
    """Both with an authorizer, the same topics, groups and transactions, and an owner."""
    home = tmp_path_factory.mktemp("guarded")
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(
            kafka_node(
                heap="384m",
                settings={**SETTINGS, "log.dirs": f"{home}/kafka"},
                features=DIFFERENTIAL_FEATURES,
            )
        )
        ours = stack.enter_context(odradek.Broker(data_dir=f"{home}/ours", config=SETTINGS))
        targets = Target(node.bootstrap_servers), Target(ours.bootstrap_servers)
        for target in targets:
            prepare(target)
        yield targets


def prepare(target: Target) -> None:
    owner = Peer(target, source=OWNER)
    types = (CLUSTER, TOPIC, GROUP, TRANSACTIONAL_ID, ResourceType.DELEGATION_TOKEN)
    grant(
        owner,
        *(
            acl(each, "kafka-cluster" if each is CLUSTER else "*", AclOperation.ALL, OWNER)
            for each in types
        ),
    )
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("there", "open")
    ]
    owner.prepare("create_topics", 7, topics=topics, timeout_ms=9000)
    for kind in (0, 1):
        owner.ask_until(
            lambda answer: not answer.coordinators[0].error_code,
            *("find_coordinator", 4),
            key_type=kind,
            coordinator_keys=["there"],
        )
    owner.ask_until(
        lambda answer: not answer.topics[0].partitions[0].error_code,
        *("offset_commit", 9),
        group_id="there",
        generation_id_or_member_epoch=-1,
        topics=[{"name": "there", "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    )
    owner.ask_until(
        lambda answer: not answer.error_code,
        *("init_producer_id", 4),
        transactional_id="there",
        transaction_timeout_ms=60_000,
    )
    owner.close()


@pytest.fixture
def same_for_guests(guarded: tuple[Target, Target]) -> Play:
    """Runs a scenario of guest and owner on both; the guest must be answered the same."""

    def check(scenario: Callable[[Peer, Peer], None]) -> None:
        answers = []
        expected = None
        for target in reversed(guarded):
            owner = Peer(target, source=OWNER)
            guest = Peer(target, expected=expected, source=GUEST)
            try:
                scenario(guest, owner)
            finally:
                owner.close()
                guest.close()
            expected = guest.answers
            answers.append(guest.answers)
        ours, kafka = answers
        found = differences(kafka, ours, guarded[0].allowed + NOT_COMPARED)
        assert not found, f"{len(found)} differences\n" + "\n".join(found)

    return check


THERE: Final = Filling("there", "there", 0, None, 1)
UNKNOWN: Final = Filling("unknown", "gone", 0, UUID(int=0xABCDEF), 1)
EMPTY: Final = Filling("empty", "", 0, None, 0)
_LEFT_OUT: Final = {
    # Of no transaction Kafka never answers it.
    ("add_partitions_to_txn", 4, "empty"),
    ("add_partitions_to_txn", 5, "empty"),
}
# Nothing, then one operation on everything that the requests name.
GRANTS: Final = {
    "nothing": (),
    "describe": tuple(
        acl(each, "there", AclOperation.DESCRIBE) for each in (TOPIC, GROUP, TRANSACTIONAL_ID)
    ),
    "read": (acl(TOPIC, "there", AclOperation.READ), acl(GROUP, "there", AclOperation.READ)),
    "write": (
        acl(TOPIC, "there", AclOperation.WRITE),
        acl(TRANSACTIONAL_ID, "there", AclOperation.WRITE),
    ),
    "configs": tuple(acl(each, "there", AclOperation.DESCRIBE_CONFIGS) for each in (TOPIC, GROUP)),
    "cluster": (
        acl(CLUSTER, "kafka-cluster", AclOperation.DESCRIBE),
        acl(CLUSTER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
    ),
}


@pytest.mark.parametrize("granted", GRANTS)
def test_every_api(granted: str, guarded: tuple[Target, Target], same_for_guests: Play) -> None:
    """A guest would be let in where Kafka refuses, or told by the answer what is there."""
    kafka, ours = map(served_on, guarded)
    asked = [
        (name, version)
        for name, key in API_KEYS.items()
        if key in kafka and key in ours
        for version in sorted({max(kafka[key][0], ours[key][0]), min(kafka[key][1], ours[key][1])})
        if version in messages.versions(key)
    ]

    def scenario(guest: Peer, owner: Peer) -> None:
        grant(owner, *GRANTS[granted])
        for name, version in asked:
            request_type = messages.request_type(API_KEYS[name], version)
            for filling in (THERE, UNKNOWN, EMPTY):
                if (name, version, filling.name) not in _LEFT_OUT:
                    guest.ask_eventually(name, version, **values_of(request_type, filling))
        if GRANTS[granted]:
            revoke(owner, *GRANTS[granted])

    same_for_guests(scenario)
