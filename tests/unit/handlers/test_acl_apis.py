"""ACLs from request to response, and what their authorizer lets through, over a real store."""

import logging

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicState
from kio.schema.errors import ErrorCode

from odradek.acl import PatternType, PermissionType
from odradek.controller import acl_control
from odradek.controller.acl_control import AclControl
from odradek.handlers.authorization import guarded
from odradek.handlers.authorization.guarding import RULES
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.metadata import NewTopic
from odradek.model import ANONYMOUS, AclOperation, ResourceType
from odradek.security.authorizer import Authorizer

DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, METADATA, DESCRIBE_CLUSTER = 29, 30, 31, 3, 60
CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE_CONFIGS = 19, 20, 37, 32
TOPIC, CLUSTER, USER = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.USER
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY = 1
VERSIONS = [1, 2, 3]


def creation(name="t", operation=AclOperation.READ, type=TOPIC, **fields):
    return {
        "resource_type": type,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": str(ANONYMOUS),
        "host": "*",
        "operation": operation,
        "permission_type": ALLOW,
        **fields,
    }


def wanted(**fields):
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }


@pytest.fixture
def secured(cluster):
    """ACLs can be made, and nobody is asked for any."""
    cluster.replace(acls=AclControl(cluster.store, cluster.cache))
    return cluster


@pytest.fixture
def strict(secured):
    """The caller may do what `allow` says."""
    authorizer = Authorizer()
    secured.cache.on_published(authorizer.apply)
    secured.replace(apis=guarded(API_TABLE, authorizer))
    for name in ("shown", "hidden"):
        secured.store.create_topics([NewTopic(name, ((1,),), {})], lambda outcome: None)
    return secured


def allow(cluster, *creations):
    from types import SimpleNamespace

    from odradek.handlers.acls.acl_fields import binding

    bindings = [binding(SimpleNamespace(**each)) for each in creations]
    cluster.context.acls.create(bindings, lambda outcome: None)


@pytest.mark.parametrize("version", VERSIONS)
def test_acls_are_made_found_and_removed(secured, version):
    """`kafka-acls` could do none of the three."""
    acls = [creation("t"), creation("t-", resource_pattern_type=PREFIXED), creation("t", host="h")]
    made = secured.ask(CREATE_ACLS, version, creations=acls)
    assert [each.error_code for each in made.results] == [ErrorCode.none] * 3
    again = secured.ask(CREATE_ACLS, version, creations=acls[:1])
    assert again.results[0].error_code is ErrorCode.none
    found = secured.ask(
        DESCRIBE_ACLS,
        version,
        **wanted(resource_name_filter="t-1", pattern_type_filter=PatternType.MATCH),
    )
    assert [each.resource_name for each in found.resources] == ["t-"]
    everything = secured.ask(DESCRIBE_ACLS, version, **wanted())
    assert [(each.resource_name, len(each.acls)) for each in everything.resources] == [
        ("t", 2),
        ("t-", 1),
    ]
    filters = [wanted(resource_name_filter="t"), wanted(host_filter="h"), wanted(host_filter="x")]
    gone = secured.ask(DELETE_ACLS, version, filters=filters)
    assert [len(each.matching_acls) for each in gone.filter_results] == [2, 1, 0]
    assert len(secured.ask(DESCRIBE_ACLS, version, **wanted()).resources) == 1


def test_without_an_authorizer_there_are_no_acls(cluster):
    """A tool would make ACLs that nobody looks at."""
    disabled = ErrorCode.security_disabled
    assert cluster.ask(DESCRIBE_ACLS, 3, **wanted()).error_code is disabled
    made = cluster.ask(CREATE_ACLS, 3, creations=[creation(), creation()])
    assert [each.error_code for each in made.results] == [disabled] * 2
    gone = cluster.ask(DELETE_ACLS, 3, filters=[wanted()])
    assert [each.error_code for each in gone.filter_results] == [disabled]


@pytest.mark.parametrize(
    "wrong",
    [
        creation(""),
        creation("c", type=CLUSTER),
        creation(type=ANY),
        creation(resource_pattern_type=PatternType.MATCH),
        creation(operation=ANY),
        creation(permission_type=ANY),
        creation(principal="alice"),
    ],
)
def test_one_that_cannot_be_is_refused_alone(secured, wrong):
    """One mistake in a file of ACLs would lose all others, or be kept and match nothing."""
    made = secured.ask(CREATE_ACLS, 3, creations=[creation(), wrong, creation("u")])
    codes = [each.error_code for each in made.results]
    assert codes == [ErrorCode.none, ErrorCode.invalid_request, ErrorCode.none]
    assert made.results[1].error_message
    assert len(secured.cache.image.acls) == 2


@pytest.mark.parametrize("field", ["resource_type", "operation", "permission_type"])
@pytest.mark.parametrize("number", [99, -1])
def test_what_kafka_does_not_know_is_refused(secured, field, number):
    """An operation of a newer Kafka would be kept as something else."""
    made = secured.ask(CREATE_ACLS, 3, creations=[creation(**{field: number})])
    assert made.results[0].error_code is ErrorCode.invalid_request
    assert not secured.cache.image.acls


@pytest.mark.parametrize("field", ["resource_type", "operation", "permission_type"])
def test_what_is_called_unknown_ends_the_connection(secured, field):
    """As with Kafka: no client sends it."""
    from odradek.protocol import messages

    body = messages.encode_request(CREATE_ACLS, 3, {"creations": [creation(**{field: 0})]})
    exchange = secured.exchange(CREATE_ACLS, 3, body)
    secured.dispatcher().handle_frame(exchange)
    assert exchange.closed


def test_too_many_are_not_added_or_removed_at_once(secured, monkeypatch):
    """One request would hold up the loop and the store for a second."""
    monkeypatch.setattr(acl_control, "MOST_AT_ONCE", 2)
    made = secured.ask(CREATE_ACLS, 3, creations=[creation(name) for name in "abc"])
    codes = [each.error_code for each in made.results]
    assert codes == [ErrorCode.none, ErrorCode.none, ErrorCode.invalid_request]
    secured.ask(CREATE_ACLS, 3, creations=[creation("c")])
    gone = secured.ask(DELETE_ACLS, 3, filters=[wanted()])
    assert gone.filter_results[0].error_code is ErrorCode.invalid_request
    assert len(secured.cache.image.acls) == 3


def test_every_api_about_resources_has_a_rule():
    """A new one would end its connections, or let everybody in."""
    for row in {**API_TABLE, **ZOOKEEPER_API_TABLE}.values():
        if row.permission is not None and row.permission.resource is not CLUSTER:
            assert row.key in RULES, row.name


def test_metadata_shows_what_may_be_described(strict):
    """A list of all topics would tell of those that one must not know."""
    allow(strict, creation("shown", AclOperation.DESCRIBE))
    answer = strict.ask(METADATA, 12, topics=None)
    assert [topic.name for topic in answer.topics] == ["shown"]
    for version in (0, 12):
        names = [{"name": name} for name in ("hidden", "none", "shown")]
        answer = strict.ask(METADATA, version, topics=names)
        refused = ErrorCode.topic_authorization_failed
        assert {topic.name: topic.error_code for topic in answer.topics} == {
            "hidden": refused,
            "none": refused,
            "shown": ErrorCode.none,
        }
        assert all(not topic.partitions for topic in answer.topics if topic.name != "shown")


def test_in_version_0_nothing_allowed_is_not_everything(strict):
    """An empty list means all topics there: who may describe none of those it named saw all."""
    answer = strict.ask(METADATA, 0, topics=[{"name": "hidden"}])
    assert [topic.name for topic in answer.topics] == ["hidden"]
    assert answer.topics[0].error_code is ErrorCode.topic_authorization_failed


def test_by_id_a_refused_topic_stays_nameless(strict):
    """An id would be enough to learn the name."""
    topic_id = strict.cache.image.topic("hidden").topic_id
    answer = strict.ask(METADATA, 12, topics=[{"topic_id": topic_id, "name": None}])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.topic_authorization_failed, None)
    assert topic.topic_id == topic_id


def test_what_may_be_done_is_told_to_the_caller(strict):
    """Tools would show rights that the caller does not have."""
    allow(strict, creation("shown", AclOperation.READ))
    ask = {"include_topic_authorized_operations": True}
    answer = strict.ask(METADATA, 12, topics=[{"name": "shown"}], **ask)
    bits = (1 << AclOperation.READ) | (1 << AclOperation.DESCRIBE)
    assert answer.topics[0].topic_authorized_operations == bits
    ask = {"include_cluster_authorized_operations": True}
    assert strict.ask(DESCRIBE_CLUSTER, 1, **ask).cluster_authorized_operations == 0
    allow(strict, creation("kafka-cluster", AclOperation.ALTER, CLUSTER))
    told = strict.ask(DESCRIBE_CLUSTER, 1, **ask).cluster_authorized_operations
    assert told == (1 << AclOperation.ALTER) | (1 << AclOperation.DESCRIBE)


def test_part_of_a_request_is_done(strict):
    """All or nothing: one topic of another team would keep all others from being made."""
    allow(strict, creation("my-", AclOperation.CREATE, resource_pattern_type=PREFIXED))
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("my-1", "its-1")
    ]
    answer = strict.ask(CREATE_TOPICS, 7, topics=topics, timeout_ms=1)
    made, refused = answer.topics
    assert (made.name, made.error_code) == ("my-1", ErrorCode.none)
    assert made.num_partitions == -1, "the size is for who may describe the settings"
    assert (refused.name, refused.error_code) == ("its-1", ErrorCode.topic_authorization_failed)
    assert strict.cache.image.topic("its-1") is None


def test_settings_are_refused_by_whose_they_are(strict):
    """A caller of one topic would read the settings of a broker."""
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((2, "shown"), (2, "hidden"), (4, "1"), (32, "g"))
    ]
    allow(strict, creation("shown", AclOperation.ALTER_CONFIGS))
    answer = strict.ask(DESCRIBE_CONFIGS, 4, resources=resources)
    assert {
        (each.resource_type, each.resource_name): each.error_code for each in answer.results
    } == {
        (2, "shown"): ErrorCode.none,
        (2, "hidden"): ErrorCode.topic_authorization_failed,
        (4, "1"): ErrorCode.cluster_authorization_failed,
        (32, "g"): ErrorCode.group_authorization_failed,
    }


def test_a_topic_that_is_not_to_be_described_is_not_missed(strict):
    """29 for what is there and 3 for what is not would tell everybody what there is."""
    names = ["hidden", "none"]
    answer = strict.ask(DELETE_TOPICS, 3, topic_names=names, timeout_ms=1)
    assert {each.error_code for each in answer.responses} == {ErrorCode.topic_authorization_failed}
    allow(strict, creation("*", AclOperation.DESCRIBE))
    answer = strict.ask(DELETE_TOPICS, 3, topic_names=names, timeout_ms=1)
    assert {each.name: each.error_code for each in answer.responses} == {
        "hidden": ErrorCode.topic_authorization_failed,
        "none": ErrorCode.unknown_topic_or_partition,
    }


def test_refused_topics_are_told_from_others_in_one_walk(strict, monkeypatch):
    """The deletion of 10 000 topics, of which the caller may delete half, took a minute."""
    compared = []
    monkeypatch.setattr(DeleteTopicState, "__eq__", lambda *pair: compared.append(pair))
    allow(strict, creation("my-", AclOperation.DESCRIBE, resource_pattern_type=PREFIXED))
    names = [f"{owner}-{number}" for number in range(50) for owner in ("my", "its")]
    topics = [{"name": name} for name in names]
    answer = strict.ask(DELETE_TOPICS, 6, topics=topics, timeout_ms=1)
    assert len(compared) < 2 * len(names)
    codes = {each.name: each.error_code for each in answer.responses}
    assert codes == {
        name: ErrorCode.unknown_topic_or_partition
        if name.startswith("my-")
        else ErrorCode.topic_authorization_failed
        for name in names
    }


def test_a_refused_caller_is_in_the_log(strict, caplog):
    """The log would not say who was refused what."""
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        answer = strict.ask(CREATE_ACLS, 3, creations=[creation()])
    assert answer.results[0].error_code is ErrorCode.cluster_authorization_failed
    assert "is Denied operation = ALTER" in caplog.text
    assert "Cluster:LITERAL:kafka-cluster for request = CreateAcls" in caplog.text


def test_who_shuts_itself_out_is_told_what_to_do(strict, caplog):
    """ACLs that nobody can change any more: one would look for the reason for hours."""
    alter = creation("kafka-cluster", AclOperation.ALTER, CLUSTER)
    allow(strict, alter)
    assert not strict.ask(CREATE_ACLS, 3, creations=[creation()]).results[0].error_code.value
    assert "no more" not in caplog.text
    strict.ask(CREATE_ACLS, 3, creations=[alter | {"permission_type": DENY}])
    assert "User:ANONYMOUS has changed the ACLs and may not change them any more" in caplog.text
