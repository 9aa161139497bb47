"""Long commits give way as other long requests do, and hold by what is true when they are made."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.unit.coordinator.consumer.consumers import ConsumerWorld
from tests.unit.handlers.conftest import run
from tests.unit.handlers.groups.group_client import COMMIT, Groups

from odradek.errors import ErrorCode
from odradek.handlers.groups import offset_commit
from odradek.handlers.long_requests import LONG_REQUEST_BYTES, SLICE_ENTRIES
from odradek.protocol import messages

VERSION = 9
TOPICS = [f"t{number}" for number in range(LONG_REQUEST_BYTES // (16 * SLICE_ENTRIES))]
COUNTS = dict.fromkeys(TOPICS, SLICE_ENTRIES)


@pytest.fixture
def world():
    return ConsumerWorld(COUNTS)


@pytest.fixture
def groups(cluster, world, background):
    return Groups(cluster, world)


def begin(cluster, offset, topics=TOPICS, dispatcher=None, generation=-1, member=""):
    """Commits an offset of all partitions of topics; the exchange."""
    partitions = [{"partition_index": n, "committed_offset": offset} for n in range(SLICE_ENTRIES)]
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": [{"name": name, "partitions": partitions} for name in topics],
    }
    exchange = cluster.exchange(COMMIT, VERSION, messages.encode_request(COMMIT, VERSION, fields))
    (dispatcher or cluster.dispatcher()).handle_frame(exchange)
    return exchange


def codes(cluster, exchange):
    """The one error of each topic; the answer has the partitions of the request in its order."""
    topics = cluster.answer(exchange, COMMIT, VERSION).topics
    assert [topic.name for topic in topics] == TOPICS
    for topic in topics:
        assert [each.partition_index for each in topic.partitions] == list(range(SLICE_ENTRIES))
        assert len({each.error_code for each in topic.partitions}) == 1
    return [int(topic.partitions[0].error_code) for topic in topics]


def offsets_by_topic(world):
    """The offsets that the group has, of each topic the one that all partitions have."""
    found = {}
    for (topic, _), offset in world.committed("g").items():
        assert found.setdefault(topic, offset) == offset
    return found


def test_many_offsets_are_committed_in_slices(cluster, world, groups, background):
    """The loop was busy until each of 60 000 topics was looked up, and logged as unknown."""
    exchange = begin(cluster, 5)
    assert run(background, exchange) == len(TOPICS)
    assert codes(cluster, exchange) == [0] * len(TOPICS)
    assert offsets_by_topic(world) == dict.fromkeys(TOPICS, 5)


def test_few_offsets_wait_for_the_end_of_their_read(cluster, world, groups, background):
    """Commits of one read would each have an append of their own."""
    exchange = begin(cluster, 5, TOPICS[:1])
    assert exchange.batched
    assert not background.work
    assert not world.committed("g")


def test_a_long_commit_comes_behind_a_short_one(cluster, world, groups, background):
    """A commit that its client sent before would overwrite the one that it sent after."""
    dispatcher = cluster.dispatcher()
    short = begin(cluster, 5, TOPICS[:1], dispatcher)
    long = begin(cluster, 6, dispatcher=dispatcher)
    assert not long.batched
    dispatcher.end_of_read()
    assert short.sent is not None
    run(background, long)
    assert offsets_by_topic(world) == dict.fromkeys(TOPICS, 6)


def refused_first(cluster, exchange):
    return codes(cluster, exchange) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        *[0] * (len(TOPICS) - 1),
    ]


def test_nothing_is_committed_of_a_topic_that_goes_meanwhile(cluster, world, groups, background):
    """A later topic of the name would be read from where nobody has ever been."""
    exchange = begin(cluster, 5)
    world.set_topics(**dict.fromkeys(TOPICS[1:], SLICE_ENTRIES))
    run(background, exchange)
    assert refused_first(cluster, exchange)
    assert offsets_by_topic(world) == dict.fromkeys(TOPICS[1:], 5)


def test_a_topic_that_is_made_anew_meanwhile_is_another(cluster, world, groups, background):
    """It would be read from an offset of its predecessor."""
    exchange = begin(cluster, 5)
    world.set_topics(**dict.fromkeys(TOPICS[1:], SLICE_ENTRIES))
    world.set_topics(**COUNTS)
    run(background, exchange)
    assert refused_first(cluster, exchange)
    assert offsets_by_topic(world) == dict.fromkeys(TOPICS[1:], 5)


def test_a_commit_of_which_all_topics_go_is_answered(cluster, world, groups, background):
    """Its client would wait for ever for an append of nothing."""
    exchange = begin(cluster, 5)
    world.set_topics()
    run(background, exchange)
    assert codes(cluster, exchange) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(TOPICS)


def test_a_generation_that_ends_meanwhile_commits_nothing(cluster, world, groups, background):
    """A member whose partitions are another's by now would overwrite what that one commits."""
    joined = groups.stable()
    exchange = begin(cluster, 5, generation=1, member=joined.member_id)
    groups.sync(groups.join(9, joined.member_id, protocols=({"name": "range", "metadata": b"2"},)))
    assert groups.group().generation_id == 2
    run(background, exchange)
    assert codes(cluster, exchange) == [ErrorCode.ILLEGAL_GENERATION] * len(TOPICS)
    assert not world.committed("g")


def test_what_fails_in_a_later_slice_is_answered(cluster, world, groups, background, caplog):
    """The frame has been let go of: another request's would be read for the answer."""

    def is_denied(topic):
        if topic == TOPICS[-1]:
            raise RuntimeError("boom")
        return False

    def handle(context, request):
        offset_commit.handle_allowed(context, request, lambda _group: True, is_denied)

    row = replace(cluster.context.apis[COMMIT], handle=handle)
    cluster.replace(apis={**cluster.context.apis, COMMIT: row})
    exchange = begin(cluster, 5)
    run(background, exchange)
    assert codes(cluster, exchange) == [ErrorCode.UNKNOWN_SERVER_ERROR] * len(TOPICS)
    assert "boom" in caplog.text
    assert not world.committed("g")


TXN_OFFSET_COMMIT = 28
MANY = range(4 * SLICE_ENTRIES)


def commit_in_transaction(cluster, topics):
    fields = {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": 5,
        "producer_epoch": 0,
        "topics": topics,
    }
    body = messages.encode_request(TXN_OFFSET_COMMIT, 5, fields)
    exchange = cluster.exchange(TXN_OFFSET_COMMIT, 5, body)
    cluster.dispatcher().handle_frame(exchange)
    return exchange


def outcomes(cluster, exchange):
    topics = cluster.answer(exchange, TXN_OFFSET_COMMIT, 5).topics
    return {topic.name: [int(each.error_code) for each in topic.partitions] for topic in topics}


def test_many_topics_of_a_transaction_are_looked_up_and_answered_in_slices(cluster, background):
    """The loop was busy until each of 20 000 unknown topics was looked up, and again until all of
    them were answered."""
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": None}]
    names = [f"nowhere-{each}" for each in MANY]
    exchange = commit_in_transaction(
        cluster, [{"name": each, "partitions": partitions} for each in names]
    )
    looks, entries = len(MANY), 2 * len(MANY)
    assert run(background, exchange) >= (looks + entries) // SLICE_ENTRIES
    unknown = [int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert outcomes(cluster, exchange) == dict.fromkeys(names, unknown)


def test_many_offsets_of_a_topic_are_committed_together_in_a_transaction(
    cluster, world, groups, background
):
    """As many topics; a part of a commit would be lost with its connection."""
    cluster.create("t0", SLICE_ENTRIES)
    while background.work:
        background.step()
    cluster.replace(verifier=SimpleNamespace(verify=lambda _id, _writes, _ability, on: on({})))
    partitions = [
        {"partition_index": each, "committed_offset": 5, "committed_metadata": ""}
        for each in (-1, *MANY)
    ]
    exchange = commit_in_transaction(cluster, [{"name": "t0", "partitions": partitions}])
    assert run(background, exchange) >= 2 * len(MANY) // SLICE_ENTRIES
    unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known = [0] * SLICE_ENTRIES
    left = [unknown] * (len(MANY) - SLICE_ENTRIES)
    assert outcomes(cluster, exchange) == {"t0": [unknown, *known, *left]}
