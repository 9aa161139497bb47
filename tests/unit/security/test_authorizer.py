"""The authorizer's memory, and its log."""

import logging

import pytest

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.config import BrokerConfig, ConfigError
from odradek.metadata.acl_changes import alter_acls
from odradek.metadata.image import MetadataImage
from odradek.model import AclOperation, KafkaPrincipal, ResourceType
from odradek.security.authorizer import authorizer as module
from odradek.security.authorizer import make_authorizer
from odradek.security.authorizer.authorizer import KNOWN_CALLERS, KNOWN_DECISIONS, Authorizer
from odradek.security.authorizer.index import AclIndex

ALICE, ROOT = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "root")
READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, ResourceType.TOPIC
HOST = "192.0.2.7"


def binding(name, operation=READ, permission=PermissionType.ALLOW, principal="User:alice"):
    return AclBinding(
        ResourcePattern(TOPIC, name), AccessControlEntry(principal, "*", operation, permission)
    )


def authorizer_with(*acls, **options):
    authorizer = Authorizer(**options)
    image = MetadataImage("c")
    change = alter_acls(image, acls, ())
    if change.delta is not None:
        authorizer.apply(change.delta)
    return authorizer, image if change.delta is None else change.delta.image


def test_super_users_may_do_what_is_denied_to_all():
    """An administrator who shuts everybody out could not take it back."""
    deny = binding("*", AclOperation.ALL, PermissionType.DENY, "User:*")
    authorizer, _ = authorizer_with(deny, super_users=[ROOT])
    assert authorizer.caller(ROOT, HOST).may_see(READ, TOPIC, "t")
    assert authorizer.caller(ROOT, HOST).may_on_any(WRITE, TOPIC)
    assert not authorizer.caller(ALICE, HOST).may_see(READ, TOPIC, "t")


def test_a_change_of_acls_drops_what_was_decided():
    """Somebody whose right was taken away would keep it for as long as the broker runs."""
    authorizer, image = authorizer_with(binding("t"))
    assert authorizer.caller(ALICE, HOST).may_see(READ, TOPIC, "t")
    authorizer.apply(alter_acls(image, (), [binding("t")]).delta)
    assert not authorizer.caller(ALICE, HOST).may_see(READ, TOPIC, "t")
    assert authorizer.acl_count == 0


def test_what_is_remembered_is_bounded():
    """A stranger that asks for ever new names, or comes under them, would fill the memory."""
    authorizer, _ = authorizer_with(binding("t"))
    caller = authorizer.caller(ALICE, HOST)
    for number in range(KNOWN_DECISIONS + 2):
        assert not caller.may_see(READ, TOPIC, f"x{number}")
        caller = authorizer.caller(ALICE, HOST)
    assert len(authorizer._callers) == 1
    assert [len(names) for names in caller._known.values()] == [1]
    for number in range(KNOWN_CALLERS):
        authorizer.caller(ALICE, str(number))
    assert len(authorizer._callers) == 1


def test_a_hundred_thousand_acls_are_not_looked_through(monkeypatch):
    """A decision would take as long as there are ACLs, and each request take it anew."""
    authorizer, _ = authorizer_with()
    _, entry = binding("t")
    for number in range(100_000):
        authorizer._index.put(ResourcePattern(TOPIC, f"t{number}"), [entry])
    assert authorizer._index.acl_count == 100_000
    caller = authorizer.caller(ALICE, HOST)
    looked_at = []
    decide = module.decide

    def noting(index, *arguments, **options):
        looked_at.append(index.matching(*arguments[-2:]))
        return decide(index, *arguments, **options)

    monkeypatch.setattr(module, "decide", noting)
    for _ in range(3):
        assert caller.may_see(READ, TOPIC, "t99999")
        assert not caller.may_see(READ, TOPIC, "t100000")
    assert [len(each) for each in looked_at] == [1, 0]


def test_names_of_32_kib_decide_and_are_not_kept():
    """A client that asks for long names would fill the memory with them."""
    name = "n" * 32_768
    authorizer, _ = authorizer_with(binding(name))
    caller = authorizer.caller(ALICE, HOST)
    assert caller.may_see(READ, TOPIC, name)
    assert not caller.may_see(READ, TOPIC, name + "n")
    assert not any(caller._known.values())


def test_the_audit_log_is_kafkas(caplog):
    """Tools that read `kafka.authorizer.logger` would find nothing."""
    authorizer, _ = authorizer_with(binding("t"))
    caller = authorizer.caller(ALICE, HOST)
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        caller.may(READ, TOPIC, "t", "Fetch")
        caller.may(WRITE, TOPIC, "t\nu", "Produce")
        caller.may_see(WRITE, TOPIC, "t")
    assert caplog.messages == [
        "Principal = User:alice is Denied operation = WRITE from host = 192.0.2.7 on resource = "
        "Topic:LITERAL:t\\nu for request = Produce with resourceRefCount = 1 based on rule "
        "DefaultDeny"
    ]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        caller.may(READ, TOPIC, "t", "Fetch")
    assert caplog.messages == [
        "Principal = User:alice is Allowed operation = READ from host = 192.0.2.7 on resource = "
        "Topic:LITERAL:t for request = Fetch with resourceRefCount = 1 based on rule "
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    ]


def test_a_look_up_tries_each_length_of_prefixes_once():
    """With 100 000 ACLs the first request of every client would look at each of them."""
    index = AclIndex()
    entry = binding("t").entry
    for number in range(5000):
        for kind in (PatternType.LITERAL, PatternType.PREFIXED):
            index.put(ResourcePattern(TOPIC, f"t{number:04}", kind), [entry])
    found = index.matching(TOPIC, "t0042-of-mine")
    assert [pattern.name for pattern, _ in found] == ["t0042"]
    assert index._lengths == {TOPIC: {5: 5000}}
    for number in range(5000):
        index.put(ResourcePattern(TOPIC, f"t{number:04}", PatternType.PREFIXED), [])
    assert index._lengths == {TOPIC: {}}
    assert index.acl_count == 5000


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    ],
)
def test_kafkas_authorizers_are_ours(name):
    """A `server.properties` of Kafka's would be refused."""
    made = make_authorizer(
        BrokerConfig({"authorizer.class.name": name, "super.users": "User:root; User:CN=x,O=y ;"})
    )
    assert made.caller(ROOT, HOST).may_see(READ, TOPIC, "t")
    assert made.caller(KafkaPrincipal("User", "CN=x,O=y"), HOST).may_see(READ, TOPIC, "t")
    assert not made.caller(ALICE, HOST).may_see(READ, TOPIC, "t")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"authorizer.class.name": "com.acme.Ranger"}, "authorizer.class.name"),
        ({"super.users": "root"}, "super.users"),
    ],
)
def test_other_authorizers_and_principals_are_refused(settings, reason):
    """A broker would run open to all in spite of its file."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig(settings)
