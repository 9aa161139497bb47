"""The authorizer against a model without indexes and memory, which looks at every ACL each time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.metadata.acl_changes import alter_acls
from odradek.metadata.image import MetadataImage
from odradek.model import AclOperation, KafkaPrincipal, ResourceType
from odradek.security.authorizer import Authorizer

TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
NAMES = ("a", "ab", "abc", "b", "*")
HOSTS = ("10.0.0.1", "10.0.0.2")
PEOPLE = ("User:alice", "User:bob", "Role:alice")
OPERATIONS = tuple(each for each in AclOperation if each.value > 2)

bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from(TYPES),
        st.sampled_from(NAMES),
        st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    ),
    st.builds(
        AccessControlEntry,
        st.sampled_from((*PEOPLE, "User:*")),
        st.sampled_from((*HOSTS, "*")),
        st.sampled_from((*OPERATIONS, AclOperation.ALL)),
        st.sampled_from((PermissionType.ALLOW, PermissionType.DENY)),
    ),
)
questions = st.tuples(
    st.sampled_from(PEOPLE),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(TYPES),
    st.sampled_from(("a", "ab", "abc", "abcd", "b", "c")),
)
IMPLIED = {
    (AclOperation.READ, AclOperation.DESCRIBE),
    (AclOperation.WRITE, AclOperation.DESCRIBE),
    (AclOperation.DELETE, AclOperation.DESCRIBE),
    (AclOperation.ALTER, AclOperation.DESCRIBE),
    (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
}


def fits(pattern, type, name):
    if pattern.type is not type:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def model(acls, principal, host, operation, type, name, everyone):
    on_it = [each.entry for each in acls if fits(each.pattern, type, name)]
    if not on_it:
        return everyone
    mine = [
        each
        for each in on_it
        if each.principal in (principal, "User:*") and each.host in (host, "*")
    ]

    def denies(entry):
        is_it = entry.operation in (operation, AclOperation.ALL)
        return entry.permission is PermissionType.DENY and is_it

    def allows(entry):
        is_it = entry.operation in (operation, AclOperation.ALL)
        is_implied = (entry.operation, operation) in IMPLIED
        return entry.permission is PermissionType.ALLOW and (is_it or is_implied)

    return not any(map(denies, mine)) and any(map(allows, mine))


def principal_of(text):
    return KafkaPrincipal(*text.split(":"))


@settings(max_examples=rounds(300), deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), bindings), max_size=12),
    st.lists(questions, min_size=1, max_size=8),
    st.booleans(),
)
def test_decisions_are_those_of_the_model(changes, asked, everyone):
    """Somebody would be let in, or shut out, whom the ACLs say the opposite of."""
    authorizer = Authorizer(allow_everyone=everyone)
    image = MetadataImage("c")
    acls = set()
    for is_added, binding in changes:
        (acls.add if is_added else acls.discard)(binding)
        change = alter_acls(image, [binding] if is_added else [], [] if is_added else [binding])
        if change.delta is not None:
            authorizer.apply(change.delta)
            image = change.delta.image
        for principal, host, operation, kind, name in asked:
            caller = authorizer.caller(principal_of(principal), host)
            expected = model(acls, principal, host, operation, kind, name, everyone)
            for _ in range(2):  # the second time out of what is remembered
                assert caller.may_see(operation, kind, name) is expected
    assert authorizer.acl_count == len(acls)


@pytest.mark.parametrize("permission", [PermissionType.ALLOW, PermissionType.DENY])
def test_what_each_operation_says_of_each_other_one(permission):
    """Only what is allowed implies something: examples at random seldom show that."""
    topic = ResourcePattern(ResourceType.TOPIC, "a")
    everything = AccessControlEntry("User:alice", "*", AclOperation.ALL, PermissionType.ALLOW)
    for said in (*OPERATIONS, AclOperation.ALL):
        entries = {AccessControlEntry("User:alice", "*", said, permission)}
        if permission is PermissionType.DENY:
            entries.add(everything)
        acls = [AclBinding(topic, entry) for entry in entries]
        authorizer = Authorizer()
        change = alter_acls(MetadataImage("c"), acls, [])
        assert change.delta is not None
        authorizer.apply(change.delta)
        caller = authorizer.caller(principal_of("User:alice"), HOSTS[0])
        for asked in OPERATIONS:
            question = ("User:alice", HOSTS[0], asked, ResourceType.TOPIC, "a")
            assert caller.may_see(*question[2:]) is model(acls, *question, False), (said, asked)


@settings(max_examples=rounds(300), deadline=None)
@given(st.lists(bindings, max_size=8), questions)
def test_who_may_on_any_resource_may_on_one(acls, question):
    """A producer that may write to nothing would be given numbers, or one that may to something
    would be refused them. Kafka does not take what is implied into account, nor do we."""
    principal, host, operation, kind, _ = question
    authorizer = Authorizer()
    change = alter_acls(MetadataImage("c"), acls, [])
    if change.delta is not None:
        authorizer.apply(change.delta)
    caller = authorizer.caller(principal_of(principal), host)
    alphabet = "abcx*"
    names = [""] + [*alphabet] + [x + y for x in alphabet for y in alphabet]
    names += [x + y for x in names if len(x) == 2 for y in alphabet]
    direct = [each for each in acls if each.entry.operation in (operation, AclOperation.ALL)]
    expected = any(
        model(direct, principal, host, operation, kind, name, False) for name in names if name
    )
    assert caller.may_on_any(operation, kind) is expected
