"""Long questions about offsets and topics are answered in slices, each group as of one moment."""

import gc
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as Code
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.handlers.conftest import run
from tests.unit.handlers.groups.group_client import COMMIT, FETCH, Groups

from odradek.controller.acl_control import AclControl
from odradek.coordinator.share_groups.requests import ShareOffset
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.authorization import guarded
from odradek.handlers.configs.config_fields import entry_fields
from odradek.handlers.long_requests import SLICE_ENTRIES
from odradek.handlers.share import describe_share_group_offsets, share_acknowledge, share_fetch
from odradek.handlers.share import offset_changes as share_offsets
from odradek.handlers.share.share_sessions import ShareSessionCache
from odradek.handlers.share.states import state_answers
from odradek.handlers.table import API_TABLE
from odradek.handlers.topics import describe_topic_partitions
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.model import (
    ANONYMOUS,
    AclOperation,
    ConfigResourceType,
    KafkaPrincipal,
    ResourceType,
)
from odradek.protocol import messages
from odradek.security.authorizer import Authorizer
from odradek.security.authorizer import authorizer as decisions
from odradek.security.delegation_tokens import TokenInformation

SHARE_OFFSETS, TOPIC_PARTITIONS, CREATE_ACLS = 90, 75, 30
MANY = range(4 * SLICE_ENTRIES)
NAMES = [f"t{each}" for each in MANY]
SLICES = len(MANY) // SLICE_ENTRIES
TOPIC_ID = UUID(int=7)
FEW = ["t0", "t1", "t2"]


def begin(cluster, key, version, fields):
    body = messages.encode_request(key, version, fields)
    exchange = cluster.exchange(key, version, body)
    cluster.dispatcher().handle_frame(exchange)
    return exchange


def most_in_a_turn(background, exchange, calls):
    most = len(calls)
    while exchange.sent is None:
        before = len(calls)
        background.step()
        most = max(most, len(calls) - before)
    return most


def counted(monkeypatch, owner, name):
    """Calls of a function, which does what it does."""
    calls = []
    function = getattr(owner, name)

    def count(*arguments, **named):
        calls.append(name)
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, count)
    return calls


# OffsetFetch


@pytest.fixture
def world():
    return ConsumerWorld(dict.fromkeys(FEW, SLICE_ENTRIES))


@pytest.fixture
def groups(cluster, world, background):
    return Groups(cluster, world)


def of_topics(version, topics):
    """A question about one group."""
    if version >= 8:
        return {"groups": [{"group_id": "g", "topics": topics}]}
    return {"group_id": "g", "topics": topics}


def topics_of(cluster, exchange, version):
    answer = cluster.answer(exchange, FETCH, version)
    if version < 8:
        return answer.topics
    (group,) = answer.groups
    return group.topics


def commit(world, groups, offset):
    partitions = [{"partition_index": n, "committed_offset": offset} for n in range(SLICE_ENTRIES)]
    for name in FEW:
        topics = [{"name": name, "partitions": partitions}]
        assert groups.ask(COMMIT, 9, group_id="g", topics=topics)


@pytest.mark.parametrize("version", [1, 7, 9])
@pytest.mark.parametrize("are_topics", [False, True])
def test_many_offsets_are_fetched_in_slices(cluster, background, groups, version, are_topics):
    """A consumer of 20 000 topics held up everybody when it came."""
    if are_topics:
        topics = [{"name": each, "partition_indexes": [0]} for each in NAMES]
    else:
        topics = [{"name": "t", "partition_indexes": list(MANY)}]
    exchange = begin(cluster, FETCH, version, of_topics(version, topics))
    assert run(background, exchange) >= SLICES
    answered = topics_of(cluster, exchange, version)
    assert [(each.name, [at.partition_index for at in each.partitions]) for each in answered] == [
        (each["name"], each["partition_indexes"]) for each in topics
    ]


def test_many_topics_are_fetched_by_their_ids_in_slices(cluster, background, groups, world):
    """As by their names."""
    world.set_topics(**dict.fromkeys(NAMES, 1))
    topics = [{"topic_id": world.topic_id(each), "partition_indexes": [0]} for each in NAMES]
    exchange = begin(cluster, FETCH, 10, of_topics(10, topics))
    assert run(background, exchange) >= SLICES
    found = [each.topic_id for each in topics_of(cluster, exchange, 10)]
    assert found == [each["topic_id"] for each in topics]


def test_many_groups_are_fetched_in_slices(cluster, background, groups):
    """As many topics."""
    fields = {"groups": [{"group_id": each, "topics": None} for each in NAMES]}
    exchange = begin(cluster, FETCH, 9, fields)
    assert run(background, exchange) >= SLICES
    assert [each.group_id for each in cluster.answer(exchange, FETCH, 9).groups] == NAMES


@pytest.mark.parametrize("topics", [None, FEW])
def test_the_offsets_of_a_group_are_those_of_one_moment(cluster, background, groups, world, topics):
    """Of a transaction some offsets would be new and others old."""
    commit(world, groups, 5)
    asked = topics and [
        {"name": each, "partition_indexes": list(range(SLICE_ENTRIES))} for each in topics
    ]
    exchange = begin(cluster, FETCH, 9, of_topics(9, asked))
    background.step()
    assert exchange.sent is None
    commit(world, groups, 6)
    world.set_topics(t0=SLICE_ENTRIES)
    run(background, exchange)
    found = topics_of(cluster, exchange, 9)
    assert [each.name for each in found] == FEW
    assert {at.committed_offset for each in found for at in each.partitions} == {5}
    assert set(world.committed("g").values()) == {6}


# DescribeShareGroupOffsets


@pytest.fixture
def share(cluster, background, monkeypatch):
    """Coordinators that know a start of each partition, and what they were asked for."""
    asked = []

    def describe(_group_id, wanted, on_done, _defer):
        asked.append(wanted)
        keys = [
            (topic_id, index) for topic_id in sorted(wanted or ()) for index in wanted[topic_id]
        ]
        on_done([ShareOffset(*key, start_offset=7) for key in sorted(keys)])

    monkeypatch.setattr(describe_share_group_offsets, "serves_share_groups", lambda _: True)
    cluster.replace(share_groups=SimpleNamespace(describe_offsets=describe))
    return asked


def test_many_share_groups_are_described_in_slices(cluster, background, share):
    """A tool that asks for everything held up the clients."""
    fields = {"groups": [{"group_id": each, "topics": None} for each in NAMES]}
    exchange = begin(cluster, SHARE_OFFSETS, 1, fields)
    assert most_in_a_turn(background, exchange, share) <= SLICE_ENTRIES
    answer = cluster.answer(exchange, SHARE_OFFSETS, 1)
    assert [each.group_id for each in answer.groups] == NAMES


def test_many_topics_of_a_share_group_are_described_in_slices(
    cluster, background, share, monkeypatch
):
    """As many groups."""
    looks = counted(monkeypatch, MetadataImage, "topic")
    topics = [{"topic_name": each, "partitions": [0]} for each in NAMES]
    fields = {"groups": [{"group_id": "g", "topics": topics}]}
    exchange = begin(cluster, SHARE_OFFSETS, 1, fields)
    assert most_in_a_turn(background, exchange, looks) <= SLICE_ENTRIES
    assert len(looks) == len(MANY)
    (group,) = cluster.answer(exchange, SHARE_OFFSETS, 1).groups
    assert [each.topic_name for each in group.topics] == NAMES


def test_many_partitions_of_a_share_group_are_described_in_slices(
    cluster, background, share, monkeypatch
):
    """The leader's log is looked at for the lag of each."""
    cluster.create("t", len(MANY))
    cluster.create("u", 2)
    while background.work:
        background.step()
    described = counted(monkeypatch, describe_share_group_offsets, "_partition")
    asked = {"t": list(MANY), "u": [0, 1], "nowhere": list(MANY)}
    topics = [{"topic_name": name, "partitions": indexes} for name, indexes in asked.items()]
    fields = {"groups": [{"group_id": "g", "topics": topics}]}
    exchange = begin(cluster, SHARE_OFFSETS, 0, fields)
    assert most_in_a_turn(background, exchange, described) <= SLICE_ENTRIES
    (group,) = cluster.answer(exchange, SHARE_OFFSETS, 0).groups
    found = {each.topic_name: each.partitions for each in group.topics}
    assert {name: [at.partition_index for at in each] for name, each in found.items()} == asked
    assert {at.start_offset for at in (*found["t"], *found["u"])} == {7}
    assert {at.start_offset for at in found["nowhere"]} == {-1}


def test_many_partitions_of_a_topic_that_there_is_not_are_answered_in_slices(
    cluster, background, share
):
    """As those that there are."""
    topics = [{"topic_name": "nowhere", "partitions": list(MANY)}]
    fields = {"groups": [{"group_id": "g", "topics": topics}]}
    exchange = begin(cluster, SHARE_OFFSETS, 1, fields)
    assert run(background, exchange) >= SLICES
    (group,) = cluster.answer(exchange, SHARE_OFFSETS, 1).groups
    assert len(group.topics[0].partitions) == len(MANY)


@pytest.mark.parametrize("key", [91, 92])
def test_many_offsets_of_a_share_group_are_changed_in_slices(
    cluster, background, share, monkeypatch, key
):
    """Its topics are looked for twice, before the change and for the answer."""
    looks = counted(monkeypatch, MetadataImage, "topic")
    done = []

    def change(_group_id, asked, on_done):
        done.append(asked)
        on_done({})

    monkeypatch.setattr(share_offsets, "serves_share_groups", lambda _: True)
    cluster.replace(share_groups=SimpleNamespace(alter_offsets=change, delete_offsets=change))
    topic = {"partitions": [{"partition_index": 0, "start_offset": 0}]} if key == 91 else {}
    topics = [{"topic_name": each, **topic} for each in NAMES]
    exchange = begin(cluster, key, 0, {"group_id": "g", "topics": topics})
    assert most_in_a_turn(background, exchange, looks) <= SLICE_ENTRIES
    assert len(looks) == 2 * len(MANY)
    assert len(done) == 1
    answer = cluster.answer(exchange, key, 0)
    assert [each.topic_name for each in answer.responses] == NAMES


def test_many_partitions_of_a_share_group_are_altered_in_slices(
    cluster, background, share, monkeypatch
):
    """As many topics."""
    cluster.create("t", len(MANY))
    while background.work:
        background.step()
    asked = []

    def alter(_group_id, starts, on_done):
        asked.append(starts)
        on_done(dict.fromkeys(starts))

    monkeypatch.setattr(share_offsets, "serves_share_groups", lambda _: True)
    cluster.replace(share_groups=SimpleNamespace(alter_offsets=alter))
    partitions = [{"partition_index": each, "start_offset": each} for each in (*MANY, len(MANY))]
    fields = {"group_id": "g", "topics": [{"topic_name": "t", "partitions": partitions}]}
    exchange = begin(cluster, 91, 0, fields)
    assert run(background, exchange) >= 2 * SLICES
    assert [starts for each in asked for starts in each.values()] == list(MANY)
    (topic,) = cluster.answer(exchange, 91, 0).responses
    codes = [each.error_code for each in topic.partitions]
    assert codes == [*[Code.none] * len(MANY), Code.unknown_topic_or_partition]


STATES = {
    83: ("initialize", {"state_epoch": 1, "start_offset": 0}),
    84: ("read", {"leader_epoch": 1}),
    85: ("write", {"state_epoch": 1, "leader_epoch": 1, "start_offset": 0, "state_batches": []}),
    86: ("delete", {}),
    87: ("summarize", {"leader_epoch": 1}),
}


@pytest.mark.parametrize("key", STATES)
@pytest.mark.parametrize("are_topics", [False, True])
def test_many_states_of_a_share_group_are_asked_for_in_slices(
    cluster, background, monkeypatch, key, are_topics
):
    """A new leader of 10 000 partitions reads all their states."""
    name, fields = STATES[key]
    asked = []

    def refuse(*arguments):
        asked.append(arguments[0].partition)
        arguments[-1](BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    monkeypatch.setattr(state_answers, "serves_share_groups", lambda _: True)
    cluster.replace(share_states=SimpleNamespace(**{name: refuse}))
    partitions = [{"partition": each, **fields} for each in MANY]
    if are_topics:
        topics = [{"topic_id": TOPIC_ID, "partitions": [each]} for each in partitions]
    else:
        topics = [{"topic_id": TOPIC_ID, "partitions": partitions}]
    version = API_TABLE[key].max_version
    exchange = begin(cluster, key, version, {"group_id": "g", "topics": topics})
    asks = len(asked)
    while len(asked) < len(MANY):
        before = len(asked)
        background.step()
        asks = max(asks, len(asked) - before)
    assert asks <= SLICE_ENTRIES
    assert run(background, exchange) >= SLICES
    assert asked == list(MANY)
    answered = [
        at for each in cluster.answer(exchange, key, version).results for at in each.partitions
    ]
    assert [each.partition for each in answered] == list(MANY)
    assert {each.error_code for each in answered} == {Code.coordinator_load_in_progress}


@pytest.mark.parametrize("key", [78, 79])
def test_many_partitions_of_a_share_session_are_looked_for_in_slices(
    cluster, background, monkeypatch, key
):
    """A member that reads 10 000 partitions, or acknowledges their records, held up everybody."""
    handler = {78: share_fetch, 79: share_acknowledge}[key]
    monkeypatch.setattr(handler, "serves_share_groups", lambda _: True)
    manager = SimpleNamespace(fetch=lambda _params, _partitions, on_done: on_done([]))
    sessions = ShareSessionCache(1, manager)
    cluster.replace(share_partitions=manager, share_sessions=sessions)
    said = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}] if key == 79 else []
    if key == 79:
        sessions.open("g", "m", "connection-1")
    ids = [UUID(int=each + 1) for each in MANY]
    partition = {"partition_index": 0, "acknowledgement_batches": said}
    topics = [{"topic_id": each, "partitions": [partition]} for each in ids]
    looks = counted(monkeypatch, MetadataImage, "topic_by_id")
    epoch = {"share_session_epoch": key - 78}
    exchange = begin(cluster, key, 2, {"group_id": "g", "member_id": "m", "topics": topics} | epoch)
    # The last slice of partitions and the first of the answer may come in one turn.
    assert most_in_a_turn(background, exchange, looks) <= 2 * SLICE_ENTRIES
    assert len(looks) == 2 * len(MANY)
    answer = cluster.answer(exchange, key, 2)
    assert [each.topic_id for each in answer.responses] == ids


# DescribeTopicPartitions


@pytest.mark.parametrize("partitions", [0, 2])
def test_many_topics_are_looked_for_in_slices(cluster, background, monkeypatch, partitions):
    """All were looked for in one turn, and only the answer was made in slices."""
    if partitions:
        topics = [
            {"name": each, "num_partitions": partitions, "replication_factor": 1} for each in NAMES
        ]
        run(background, begin(cluster, 19, 7, {"topics": topics, "timeout_ms": 1000}))
    looks = counted(monkeypatch, MetadataImage, "topic")
    limit = len(MANY) - 1
    fields = {"topics": [{"name": each} for each in NAMES], "response_partition_limit": limit}
    exchange = begin(cluster, TOPIC_PARTITIONS, 0, fields)
    assert most_in_a_turn(background, exchange, looks) <= SLICE_ENTRIES
    answer = cluster.answer(exchange, TOPIC_PARTITIONS, 0)
    shown = sorted(NAMES)[: len(MANY) // 2] if partitions else sorted(NAMES)
    assert [each.name for each in answer.topics] == shown
    if partitions:
        assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (shown[-1], 1)
    else:
        assert answer.next_cursor is None


def test_many_partitions_of_a_topic_are_shown_in_slices(cluster, background, monkeypatch):
    """A topic of 2000 partitions would be one entry."""
    cluster.create("t", len(MANY))
    while background.work:
        background.step()
    fields = counted(monkeypatch, describe_topic_partitions, "partition_fields")
    exchange = begin(
        cluster, TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": len(MANY)}
    )
    assert most_in_a_turn(background, exchange, fields) <= SLICE_ENTRIES
    (topic,) = cluster.answer(exchange, TOPIC_PARTITIONS, 0).topics
    assert [each.partition_index for each in topic.partitions] == list(MANY)


# DescribeDelegationToken


class Counting(KafkaPrincipal):
    """Counts how often it is compared."""

    compared = 0
    __hash__ = KafkaPrincipal.__hash__

    def __eq__(self, other):
        Counting.compared += 1
        return tuple(self) == tuple(other)


def test_the_tokens_of_many_owners_are_found_by_one_look_at_each(cluster, background):
    """Each of 10 000 owners was compared with each token, in one turn, and so was the answer
    made."""
    owner = Counting("User", "a")
    tokens = [TokenInformation(f"id-{each}", owner, owner, (), 0, 0, 0) for each in MANY]
    described = SimpleNamespace(all=lambda: tokens, hmac_of=lambda _: b"")
    cluster.replace(tokens=described)
    owners = [{"principal_type": "User", "principal_name": each} for each in (*NAMES, "a")]
    exchange = cluster.exchange(41, 3, messages.encode_request(41, 3, {"owners": owners}))
    exchange.principal = KafkaPrincipal("User", "b")
    cluster.dispatcher().handle_frame(exchange)
    assert run(background, exchange) >= SLICES
    assert Counting.compared <= 2 * len(tokens)
    answer = cluster.answer(exchange, 41, 3)
    assert [each.token_id for each in answer.tokens] == [each.token_id for each in tokens]


# What a caller may see


ACL = {
    "resource_type": ResourceType.GROUP,
    "resource_name": "g",
    "resource_pattern_type": 3,
    "principal": str(ANONYMOUS),
    "host": "*",
    "operation": AclOperation.ALL,
    "permission_type": 3,
}


@pytest.fixture
def authorizer(cluster, background):
    """Lets the caller do everything with group `g`, and nothing with topics."""
    authorizer = Authorizer()
    cluster.cache.on_published(authorizer.apply)
    cluster.replace(acls=AclControl(cluster.store, cluster.cache))
    run(background, begin(cluster, CREATE_ACLS, 3, {"creations": [ACL]}))
    return authorizer


def fetched(version):
    return of_topics(version, [{"name": each, "partition_indexes": [0]} for each in NAMES])


OF_TOPICS = [
    (FETCH, 7, fetched(7)),
    (FETCH, 9, fetched(9)),
    (
        SHARE_OFFSETS,
        1,
        {
            "groups": [
                {
                    "group_id": "g",
                    "topics": [{"topic_name": each, "partitions": [0]} for each in NAMES],
                }
            ]
        },
    ),
]


@pytest.mark.parametrize(("key", "version", "fields"), OF_TOPICS)
def test_topics_that_a_caller_may_not_describe_are_found_in_slices(
    cluster, background, authorizer, share, groups, monkeypatch, key, version, fields
):
    """Each has a line in the log: all of them took seconds in one turn."""
    cluster.replace(apis=guarded(API_TABLE, authorizer))
    asked = counted(monkeypatch, decisions, "decide")
    exchange = begin(cluster, key, version, fields)
    assert most_in_a_turn(background, exchange, asked) <= SLICE_ENTRIES + 1
    assert len(asked) == len(MANY) + 1
    answer = cluster.answer(exchange, key, version)
    topics = answer.topics if version < 8 and key == FETCH else answer.groups[0].topics
    assert [getattr(each, "name", None) or each.topic_name for each in topics] == NAMES
    assert {at.error_code for each in topics for at in each.partitions} == {
        Code.topic_authorization_failed
    }


OF_NAMES = [{"topic_name": each} for each in NAMES]
CHANGES = [
    (47, "topics", [{"name": each, "partitions": [{"partition_index": 0}]} for each in NAMES]),
    (91, "responses", [{**each, "partitions": [{"partition_index": 0}]} for each in OF_NAMES]),
    (92, "responses", OF_NAMES),
]


@pytest.mark.parametrize(("key", "answered", "topics"), CHANGES)
def test_topics_that_a_caller_may_not_read_are_found_in_slices(
    cluster, background, authorizer, monkeypatch, key, answered, topics
):
    """As those that it may not describe, when it changes the offsets of its group."""
    cluster.replace(apis=guarded(API_TABLE, authorizer))
    asked = counted(monkeypatch, decisions, "decide")
    exchange = begin(cluster, key, 0, {"group_id": "g", "topics": topics})
    assert most_in_a_turn(background, exchange, asked) <= SLICE_ENTRIES + 1
    assert len(asked) == len(MANY) + 1
    assert len(getattr(cluster.answer(exchange, key, 0), answered)) == len(MANY)


def test_acls_are_read_in_slices_before_their_caller_is_refused(cluster, background, authorizer):
    """A malformed one ends the connection, so all are read, whoever sends them."""
    cluster.replace(apis=guarded(API_TABLE, authorizer))
    creations = [{**ACL, "resource_name": each} for each in NAMES]
    exchange = begin(cluster, CREATE_ACLS, 3, {"creations": creations})
    assert run(background, exchange) >= 2 * SLICES  # to be read, and to be answered
    codes = [each.error_code for each in cluster.answer(exchange, CREATE_ACLS, 3).results]
    assert codes == len(MANY) * [Code.cluster_authorization_failed]


@pytest.mark.parametrize(("key", "version"), [(FETCH, 9), (SHARE_OFFSETS, 1)])
def test_groups_that_a_caller_may_not_describe_are_found_in_slices(
    cluster, background, authorizer, share, groups, monkeypatch, key, version
):
    """As topics; what is allowed is answered first."""
    cluster.replace(apis=guarded(API_TABLE, authorizer))
    asked = counted(monkeypatch, decisions, "decide")
    names = [*NAMES, "g"]
    fields = {"groups": [{"group_id": each, "topics": None} for each in names]}
    exchange = begin(cluster, key, version, fields)
    assert most_in_a_turn(background, exchange, asked) <= SLICE_ENTRIES
    found = {
        each.group_id: each.error_code for each in cluster.answer(exchange, key, version).groups
    }
    assert list(found) == ["g", *NAMES]
    assert found.pop("g") is Code.none
    assert set(found.values()) == {Code.group_authorization_failed}


def test_topics_that_a_caller_may_not_see_are_left_out_in_slices(
    cluster, background, authorizer, groups, world, monkeypatch
):
    """All that a group has was looked at in one turn, of a question that is short."""
    world.set_topics(**dict.fromkeys(NAMES, 1))
    topics = [
        {"name": each, "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        for each in NAMES
    ]
    assert groups.ask(COMMIT, 9, group_id="g", topics=topics)
    assert len(world.committed("g")) == len(MANY)
    cluster.replace(apis=guarded(API_TABLE, authorizer))
    seen = counted(monkeypatch, decisions, "decide")
    exchange = begin(cluster, FETCH, 9, of_topics(9, None))
    assert most_in_a_turn(background, exchange, seen) <= SLICE_ENTRIES + 1
    assert len(seen) == len(MANY) + 1
    assert not topics_of(cluster, exchange, 9)


# What the collector looks at


def test_the_settings_of_an_answer_are_nothing_to_the_collector(cluster):
    """20 000 new topics have 600 000 settings in an answer: the collector looked at each of them,
    again and again, for a second in which nobody was served."""
    topic = ConfigResource(ConfigResourceType.TOPIC, cluster.create("t").name)
    entries = cluster.controller.describe_configs(topic, None)
    kinds = {gc.is_tracked(entry_fields(each)) for each in entries}
    assert kinds == {gc.is_tracked({"name": "plain"})}
