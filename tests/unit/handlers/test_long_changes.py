"""Long requests of administrators are carried out in slices, and hold by what is true by then."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.handlers.conftest import run

from odradek.acl import AclFilter
from odradek.controller.acl_control import AclControl
from odradek.controller.configs.changes import ConfigPlanner
from odradek.controller.topics.plans import TopicPlanner
from odradek.errors import BrokerError
from odradek.errors import ErrorCode as OwnCode
from odradek.handlers.authorization import guarded
from odradek.handlers.long_requests import SLICE_ENTRIES
from odradek.handlers.request import RequestQuotas
from odradek.handlers.table import API_TABLE
from odradek.metadata.image import MetadataImage
from odradek.model import ANONYMOUS, AclOperation
from odradek.protocol import messages
from odradek.replication.delayed.delete_records import DeleteRecordsResult
from odradek.security.authorizer import Authorizer
from odradek.security.authorizer import authorizer as decisions

KEYS = {api.name: api.key for api in API_TABLE.values()}
MANY = range(3 * SLICE_ENTRIES)
LAST = MANY[-1]
NAMES = [f"t{each}" for each in MANY]
NONE, EXISTS = ErrorCode.none, ErrorCode.topic_already_exists


def creations(names=NAMES, **fields):
    topics = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in names]
    return {"topics": topics, "timeout_ms": 1000, **fields}


def deletions(names=NAMES):
    topics = [{"name": each, "topic_id": None} for each in names]
    return {"topics": topics, "timeout_ms": 1000}


def growths(names=NAMES):
    topics = [{"name": each, "count": 2, "assignments": None} for each in names]
    return {"topics": topics, "timeout_ms": 1000}


def altered(type, setting, names=NAMES, **operation):
    configs = [{"name": setting[0], "value": setting[1], **operation}]
    return {
        "resources": [
            {"resource_type": type, "resource_name": name, "configs": configs} for name in names
        ]
    }


set_each = partial(altered, config_operation=0)


def begin(cluster, name, fields, dispatcher=None):
    key = KEYS[name]
    version = API_TABLE[key].max_version
    exchange = cluster.exchange(key, version, messages.encode_request(key, version, fields))
    exchange.api = key, version
    (dispatcher or cluster.dispatcher()).handle_frame(exchange)
    return exchange


def codes(cluster, exchange, field="topics"):
    """The errors of the entries, by their names."""
    answer = cluster.answer(exchange, *exchange.api)
    return {each.name: each.error_code for each in getattr(answer, field)}


def finish(background, *exchanges):
    for each in exchanges:
        run(background, each)


def refuse(*_arguments):
    raise BrokerError(OwnCode.UNKNOWN_TOPIC_OR_PARTITION)


def delete_group(_group_id, on_done):
    on_done(BrokerError(OwnCode.GROUP_ID_NOT_FOUND))


def refuse_to_delete(_timeout_ms, _internal_topics_allowed, entries, on_done):
    error = BrokerError(OwnCode.UNKNOWN_TOPIC_OR_PARTITION)
    on_done([DeleteRecordsResult(each, error=error) for each, _ in entries])


OPERATIONS = "odradek.controller.topics.operations"
GROUP_SETTING = ("consumer.session.timeout.ms", "50000")
ACL = {
    "resource_type": 2,
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FILTER = {
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
UPSERTION = {"mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
PARTITIONS = [{"partition_index": each, "replicas": [1]} for each in MANY]
QUOTA = {"key": "producer_byte_rate", "value": 1.0, "remove": False}

# What each of many entries costs, by the API: the function that is called for it.
STEPS = {
    "CreateTopics": ((TopicPlanner, "plan_topic"), creations(validate_only=True)),
    "CreatePartitions": ((TopicPlanner, "plan_partitions"), growths()),
    "DeleteTopics": ((f"{OPERATIONS}.deleted",), deletions()),
    "DeleteRecords": (
        ("odradek.handlers.topics.delete_records._answer",),
        {"topics": [{"name": "t", "partitions": [{"partition_index": each} for each in MANY]}]},
    ),
    "AlterConfigs": ((ConfigPlanner, "plan_replacement"), altered(32, GROUP_SETTING)),
    "IncrementalAlterConfigs": ((ConfigPlanner, "plan_alterations"), set_each(32, GROUP_SETTING)),
    "AlterClientQuotas": (
        ("odradek.controller.quota_control.checked",),
        {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": each}], "ops": [QUOTA]}
                for each in NAMES
            ]
        },
    ),
    "ElectLeaders": (
        ("odradek.controller.replicas.leader_elections.plan_election",),
        {"topic_partitions": [{"topic": "t", "partitions": list(MANY)}], "timeout_ms": 1000},
    ),
    "AlterPartitionReassignments": (
        ("odradek.controller.replicas.reassigner.plan_reassignment",),
        {"topics": [{"name": "t", "partitions": PARTITIONS}], "timeout_ms": 1000},
    ),
    "ListPartitionReassignments": (
        ("odradek.handlers.replicas.list_partition_reassignments.reassignments_in_progress",),
        {"topics": [{"name": each, "partition_indexes": [0]} for each in NAMES]},
    ),
    "CreateAcls": (
        ("odradek.handlers.acls.create_acls.binding",),
        {"creations": [{**ACL, "resource_name": each} for each in NAMES]},
    ),
    "DeleteAcls": (
        ("odradek.handlers.acls.delete_acls.acl_filter",),
        {"filters": [{**FILTER, "resource_name_filter": each} for each in NAMES]},
    ),
    "AlterUserScramCredentials": (
        ("odradek.security.scram_users._mistake",),
        {"deletions": [], "upsertions": [{"name": each, **UPSERTION} for each in NAMES]},
    ),
    "DescribeUserScramCredentials": (
        ("odradek.security.scram_users.credentials_of",),
        {"users": [{"name": each} for each in NAMES]},
    ),
    "DescribeTransactions": (
        ("odradek.handlers.transactions.describe_transactions._refusal",),
        {"transactional_ids": NAMES},
    ),
    "DeleteGroups": (
        ("tests.unit.handlers.test_long_changes.delete_group",),
        {"groups_names": NAMES},
    ),
    "OffsetDelete": (
        (MetadataImage, "partition"),
        {
            "group_id": "g",
            "topics": [{"name": each, "partitions": [{"partition_index": 0}]} for each in NAMES],
        },
    ),
    "AlterReplicaLogDirs": (
        ("tests.unit.handlers.test_long_changes.refuse",),
        {"dirs": [{"path": "/", "topics": [{"name": "t", "partitions": list(MANY)}]}]},
    ),
}


def counted(monkeypatch, target):
    """Calls of a function, which does what it does."""
    calls = []
    if len(target) == 1:
        module, _, name = target[0].rpartition(".")
        owner = __import__(module, fromlist=[name])
    else:
        owner, name = target
    function = getattr(owner, name)

    def count(*arguments, **named):
        calls.append(name)
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, count)
    return calls


@pytest.fixture
def admin(cluster, background):
    """Requests of administrators, as far as the controller refuses them."""
    cluster.replace(
        acls=AclControl(cluster.store, cluster.cache),
        replicas=SimpleNamespace(
            delete_records=refuse_to_delete,
            log_dir_moves=SimpleNamespace(alter=lambda *arguments: refuse(*arguments)),
        ),
        groups=SimpleNamespace(
            flush=cluster.flush,
            delete_group=lambda *arguments: delete_group(*arguments),
            delete_offsets=lambda _group, known, on_done: on_done(known and []),
        ),
        transactions=SimpleNamespace(describe=refuse),
    )
    bindings = [{**ACL, "resource_name": each} for each in NAMES[:SLICE_ENTRIES]]
    run(background, begin(cluster, "CreateAcls", {"creations": bindings}))
    return cluster


def most_in_a_turn(background, exchange, calls):
    most = len(calls)
    while exchange.sent is None:
        before = len(calls)
        background.step()
        most = max(most, len(calls) - before)
    return most


@pytest.mark.parametrize("name", STEPS)
def test_many_entries_are_carried_out_in_slices(admin, background, monkeypatch, name):
    """A tool that changes everything at once would hold up the clients."""
    target, fields = STEPS[name]
    calls = counted(monkeypatch, target)
    exchange = begin(admin, name, fields)
    assert most_in_a_turn(background, exchange, calls) <= SLICE_ENTRIES
    assert len(calls) >= len(MANY)


@pytest.fixture
def strict(admin):
    """The caller may do what ACLs say, which know only of others."""
    authorizer = Authorizer()
    admin.cache.on_published(authorizer.apply)
    admin.replace(apis=guarded(API_TABLE, authorizer))
    return admin


NAMED = {
    name: STEPS[name][1]
    for name in (
        *("CreateTopics", "CreatePartitions", "DeleteTopics", "IncrementalAlterConfigs"),
        *("AlterConfigs", "DescribeTransactions", "DeleteGroups"),
    )
}
NAMED |= {
    "Metadata": {"topics": [{"name": each, "topic_id": None} for each in NAMES]},
    "DescribeGroups": {"groups": NAMES},
}


@pytest.mark.parametrize("name", NAMED)
def test_what_a_caller_may_do_is_looked_at_in_slices(strict, background, monkeypatch, name):
    """Somebody who may do nothing at all would hold up the clients with each request, and have a
    line in the log for each entry."""
    calls = counted(monkeypatch, (decisions, "decide"))
    exchange = begin(strict, name, NAMED[name])
    assert most_in_a_turn(background, exchange, calls) <= SLICE_ENTRIES + 1
    assert len(calls) >= len(MANY)
    answer = strict.answer(exchange, *exchange.api)
    (entries,) = lists_of(answer)
    assert len(entries) == len(MANY)
    assert len({each.error_code for each in entries} - {NONE}) == 1


def test_what_a_caller_may_see_of_many_topics_is_looked_at_in_slices(
    strict, background, monkeypatch
):
    """As what it may do: its operations are told of every topic."""
    run(background, begin_unguarded(strict, "CreateTopics", creations()))
    calls = counted(monkeypatch, (decisions, "decide"))
    allow = {**ACL, "principal": str(ANONYMOUS), "resource_name": "t", "resource_pattern_type": 4}
    run(background, begin_unguarded(strict, "CreateAcls", {"creations": [allow]}))
    exchange = begin(strict, "DescribeTopicPartitions", {"topics": [], "cursor": None})
    assert most_in_a_turn(background, exchange, calls) <= 8 * SLICE_ENTRIES
    assert len(calls) >= len(MANY)
    topics = strict.answer(exchange, *exchange.api).topics
    assert [each.name for each in topics] == sorted(NAMES)
    may = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert {each.topic_authorized_operations for each in topics} == {may}


def begin_unguarded(cluster, name, fields):
    """As by somebody who may do everything."""
    apis = cluster.context.apis
    cluster.replace(apis=API_TABLE)
    exchange = begin(cluster, name, fields)
    cluster.replace(apis=apis)
    return exchange


def test_filters_that_look_at_all_acls_give_way_by_what_they_look_at(
    admin, background, monkeypatch
):
    """A few filters of a tool held up the clients, if there were many ACLs."""
    calls = counted(monkeypatch, (AclFilter, "holds_for"))
    any_pattern = {**FILTER, "pattern_type_filter": 1, "resource_name_filter": "nothing"}
    exchange = begin(admin, "DeleteAcls", {"filters": 9 * [any_pattern]})
    assert most_in_a_turn(background, exchange, calls) <= SLICE_ENTRIES
    assert len(calls) == 9 * SLICE_ENTRIES


@pytest.mark.parametrize(
    ("name", "operation", "fields"),
    [
        ("CreateTopics", "create_topics", creations()),
        ("CreatePartitions", "create_partitions", growths()),
        ("DeleteTopics", "delete_topics", deletions()),
        ("IncrementalAlterConfigs", "alter_configs", set_each(2, ("retention.ms", "9"))),
        ("AlterClientQuotas", "alter_client_quotas", STEPS["AlterClientQuotas"][1]),
    ],
)
def test_a_long_change_is_many_short_ones(
    cluster, background, monkeypatch, name, operation, fields
):
    """All that follows from a change, in every listener, would be done in one turn; and who asks
    for little would wait for all of it."""
    if name != "CreateTopics":
        run(background, begin(cluster, "CreateTopics", creations()))
    sizes = []
    change = getattr(cluster.store, operation)

    def note_size(changed, on_done):
        sizes.append(len(changed))
        change(changed, on_done)

    monkeypatch.setattr(cluster.store, operation, note_size)
    dispatcher = cluster.dispatcher()
    exchange = begin(cluster, name, fields, dispatcher)
    while not sizes:
        background.step()
    assert exchange.sent is None
    little = begin(cluster, "CreateTopics", creations(["little"]), dispatcher)
    assert codes(cluster, little) == {"little": NONE}
    run(background, exchange)
    assert sum(sizes) == len(MANY) + (name == "CreateTopics")
    assert max(sizes) == SLICE_ENTRIES
    assert len(cluster.cache.image.topics) == (1 if name == "DeleteTopics" else len(MANY) + 1)


def test_topics_of_many_partitions_are_created_one_by_one(cluster, background, monkeypatch):
    """The partitions are what takes long."""
    sizes = []
    create = cluster.store.create_topics

    def note_size(topics, on_done):
        sizes.append(len(topics))
        create(topics, on_done)

    monkeypatch.setattr(cluster.store, "create_topics", note_size)
    fields = creations(NAMES[:3])
    for topic in fields["topics"]:
        topic["num_partitions"] = SLICE_ENTRIES
    exchange = begin(cluster, "CreateTopics", fields)
    run(background, exchange)
    assert set(codes(cluster, exchange).values()) == {NONE}
    assert sizes == [1, 1, 1]


def test_two_requests_that_create_the_same_topics(cluster, background):
    """A topic would be created twice, or by nobody."""
    dispatcher = cluster.dispatcher()
    exchanges = [
        begin(cluster, "CreateTopics", creations(names), dispatcher)
        for names in (NAMES, NAMES[::-1])
    ]
    finish(background, *exchanges)
    first, second = (codes(cluster, each) for each in exchanges)
    assert {(first[name], second[name]) for name in NAMES} == {(NONE, EXISTS), (EXISTS, NONE)}
    assert sorted(cluster.cache.image.topics) == sorted(NAMES)


def test_one_request_deletes_what_another_creates(cluster, background):
    """Whichever comes first: what is told is what is so."""
    dispatcher = cluster.dispatcher()
    created = begin(cluster, "CreateTopics", creations(), dispatcher)
    while not cluster.cache.image.topics:
        background.step()
    deleted = begin(cluster, "DeleteTopics", deletions(NAMES[::-1]), dispatcher)
    finish(background, created, deleted)
    assert set(codes(cluster, created).values()) == {NONE}
    gone = {name for name, code in codes(cluster, deleted, "responses").items() if code == NONE}
    assert gone
    assert set(NAMES) - gone == set(cluster.cache.image.topics)


def test_a_topic_that_another_creates_meanwhile_exists(cluster, background):
    """It would be told as created with what this request asked for."""
    dispatcher = cluster.dispatcher()
    exchange = begin(cluster, "CreateTopics", creations(), dispatcher)
    while not cluster.cache.image.topics:
        background.step()
    assert NAMES[-1] not in cluster.cache.image.topics
    begin(cluster, "CreateTopics", creations([NAMES[-1]]), dispatcher)
    run(background, exchange)
    found = codes(cluster, exchange)
    assert found.pop(NAMES[-1]) == EXISTS
    assert set(found.values()) == {NONE}


def test_topics_that_go_meanwhile_are_not_grown(cluster, background):
    """It would be told as grown, or fail the whole request."""
    dispatcher = cluster.dispatcher()
    run(background, begin(cluster, "CreateTopics", creations(), dispatcher))
    exchange = begin(cluster, "CreatePartitions", growths(), dispatcher)
    while len(cluster.cache.image.topics[NAMES[0]].partitions) == 1:
        background.step()
    begin(cluster, "DeleteTopics", deletions([NAMES[-1]]), dispatcher)
    run(background, exchange)
    found = codes(cluster, exchange, "results")
    assert found.pop(NAMES[-1]) == ErrorCode.unknown_topic_or_partition
    assert set(found.values()) == {NONE}


@pytest.mark.parametrize("validate_only", [False, True])
def test_names_of_one_request_collide_across_slices(cluster, background, validate_only):
    """Two topics of one name in the metrics would be created."""
    names = ["a.b", *NAMES, "a_b"]
    exchange = begin(cluster, "CreateTopics", creations(names, validate_only=validate_only))
    run(background, exchange)
    found = codes(cluster, exchange)
    assert found.pop("a_b") == ErrorCode.invalid_topic_exception
    assert set(found.values()) == {NONE}


def test_names_of_two_requests_collide_across_slices(cluster, background):
    """As in one: each request would know its own names only."""
    dispatcher = cluster.dispatcher()
    dotted = begin(cluster, "CreateTopics", creations([f"a.{each}" for each in MANY]), dispatcher)
    lined = begin(cluster, "CreateTopics", creations([f"a_{each}" for each in MANY]), dispatcher)
    finish(background, dotted, lined)
    codes_of_each = [list(codes(cluster, each).values()) for each in (dotted, lined)]
    refused = ErrorCode.invalid_topic_exception
    assert {frozenset(pair) for pair in zip(*codes_of_each, strict=True)} == {
        frozenset((NONE, refused))
    }


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("CreateTopics", creations([*NAMES, NAMES[0]]), "topics"),
        ("CreatePartitions", growths([*NAMES, NAMES[0]]), "results"),
        ("DeleteTopics", deletions([*NAMES, NAMES[0]]), "responses"),
    ],
)
def test_what_is_named_in_two_slices_is_refused(cluster, background, name, fields, field):
    """Of two that contradict each other the first would be done."""
    if name != "CreateTopics":
        run(background, begin(cluster, "CreateTopics", creations()))
    before = cluster.cache.image.topics.get(NAMES[0])
    exchange = begin(cluster, name, fields)
    run(background, exchange)
    found = codes(cluster, exchange, field)
    assert found.pop(NAMES[0]) == ErrorCode.invalid_request
    assert set(found.values()) == {NONE}
    assert cluster.cache.image.topics.get(NAMES[0]) is before


def test_settings_that_are_named_in_two_slices_are_refused(cluster, background):
    """As with topics."""
    names = [*NAMES, NAMES[0]]
    exchange = begin(cluster, "IncrementalAlterConfigs", set_each(32, GROUP_SETTING, names))
    run(background, exchange)
    responses = cluster.answer(exchange, *exchange.api).responses
    refused = [each.resource_name for each in responses if each.error_code != NONE]
    assert refused == 2 * [NAMES[0]]
    assert len(cluster.cache.image.configs) == len(NAMES) - 1


def test_an_entity_that_is_named_in_two_slices_keeps_its_first_quota(cluster, background):
    """As in one slice."""
    entries = STEPS["AlterClientQuotas"][1]["entries"]
    exchange = begin(cluster, "AlterClientQuotas", {"entries": [*entries, entries[0]]})
    run(background, exchange)
    found = [each.error_code for each in cluster.answer(exchange, *exchange.api).entries]
    assert found == [NONE] * len(entries) + [ErrorCode.invalid_request]


def test_a_user_who_is_named_in_two_lists_is_refused(cluster, background):
    """Deletion and upsertion of one user lie in different places of the request."""
    upsertions = [{"name": each, **UPSERTION} for each in NAMES]
    deletion = {"name": NAMES[-1], "mechanism": 2}
    fields = {"deletions": [deletion], "upsertions": upsertions}
    exchange = begin(cluster, "AlterUserScramCredentials", fields)
    run(background, exchange)
    results = cluster.answer(exchange, *exchange.api).results
    found = {each.user: each.error_code for each in results}
    assert len(results) == len(found) == len(NAMES)
    assert found.pop(NAMES[-1]) not in (NONE, ErrorCode.duplicate_resource)
    assert set(found.values()) == {NONE}


def test_the_rest_is_begun_when_the_time_is_over(cluster, background, monkeypatch):
    """Of topics that nobody waits for any more the last would never be created."""
    kept = []
    create = cluster.store.create_topics
    monkeypatch.setattr(cluster.store, "create_topics", lambda *asked: kept.append(asked))
    monkeypatch.setattr(cluster.store, "sync", lambda _on_done: None)
    exchange = begin(cluster, "CreateTopics", creations())
    while background.work:
        background.step()
    assert len(kept) == 1
    cluster.timer.advance_clock(1000)
    run(background, exchange)
    assert set(codes(cluster, exchange).values()) == {ErrorCode.request_timed_out}
    told = exchange.sent
    for asked in kept:
        create(*asked)
    assert sorted(cluster.cache.image.topics) == sorted(NAMES)
    assert exchange.sent is told
    assert cluster.timer.size == 0


def test_what_was_asked_for_is_done_though_the_client_goes_meanwhile(cluster, background):
    """Half of the topics would be there, and the next try be told that they exist."""
    dispatcher = cluster.dispatcher()
    exchange = begin(cluster, "CreateTopics", creations(), dispatcher)
    while not cluster.cache.image.topics:
        background.step()
    dispatcher.connection_closed(exchange.connection_id)
    background.run()
    assert sorted(cluster.cache.image.topics) == sorted(NAMES)


class Few(RequestQuotas):
    """Lets a client make so many partitions."""

    def __init__(self, left):
        self.left = left

    def may_mutate(self, request, count, is_strict):
        self.left -= count
        return self.left >= 0


def test_what_is_over_a_quota_is_refused_in_every_slice(cluster, background):
    """Each slice would have a quota of its own."""
    allowed = len(MANY) - SLICE_ENTRIES - 1
    cluster.replace(quotas=Few(allowed))
    exchange = begin(cluster, "CreateTopics", creations())
    run(background, exchange)
    found = codes(cluster, exchange)
    assert {name for name, code in found.items() if code == NONE} == set(NAMES[:allowed])
    over = ErrorCode.throttling_quota_exceeded
    assert {found[name] for name in NAMES[allowed:]} == {over}
    assert len(cluster.cache.image.topics) == allowed


@pytest.mark.parametrize("name", ["CreateTopics", "CreatePartitions", "IncrementalAlterConfigs"])
def test_what_raises_in_a_later_slice_is_answered(admin, background, monkeypatch, caplog, name):
    """Its client would wait for ever."""
    target, fields = STEPS[name]
    numbers = itertools.count()
    plan = getattr(*target)

    def plan_or_raise(*arguments):
        if next(numbers) == LAST:
            raise RuntimeError("boom")
        return plan(*arguments)

    monkeypatch.setattr(*target, plan_or_raise)
    exchange = begin(admin, name, fields)
    run(background, exchange)
    answer = admin.answer(exchange, *exchange.api)
    (entries,) = lists_of(answer)
    assert {each.error_code for each in entries} == {ErrorCode.unknown_server_error}
    assert len(entries) == len(MANY)
    assert "boom" in caplog.text
    assert not background.work


def lists_of(answer):
    """The fields with an entry for each of what was asked for."""
    found = [getattr(answer, name) for name in answer.__slots__]
    return [each for each in found if isinstance(each, tuple) and len(each) >= len(MANY)]


def test_a_malformed_acl_of_a_later_slice_ends_the_connection(admin, background, caplog):
    """The client would wait for ever for an answer that says nothing of it."""
    creations = [{**ACL, "resource_name": each} for each in NAMES]
    creations[-1]["operation"] = 0
    exchange = begin(admin, "CreateAcls", {"creations": creations})
    run(background, exchange)
    assert exchange.closed
    assert "malformed CreateAcls" in caplog.text
