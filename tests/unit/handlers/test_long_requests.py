"""Long requests give way: who asks for little is answered before them, whatever they ask for."""

import itertools
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from tests.unit.coordinator.transactional.transactions import TransactionWorld
from tests.unit.handlers.conftest import run

from odradek.controller.configs.entries import ConfigDescriber
from odradek.controller.topics.plans import TopicPlanner
from odradek.coordinator.transactions.markers import MarkerWriter
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.long_requests import LONG_REQUEST_BYTES, SLICE_ENTRIES
from odradek.handlers.records import list_offsets
from odradek.handlers.request import LONG_ANSWER_ENTRIES, RequestQuotas
from odradek.handlers.table import API_TABLE
from odradek.handlers.topics import metadata
from odradek.handlers.unknown_topics import unknown_name_error
from odradek.protocol import messages
from odradek.replication.delayed.delete_records import DeleteRecordsResult
from odradek.server.coordination.transaction_routing import SlicedMarkers

LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, ADD_PARTITIONS = 2, 3, 18, 19, 24
OF_KIO = [key for key, api in API_TABLE.items() if not api.has_own_codec]
PADDING = bytes(LONG_REQUEST_BYTES)  # behind the body, where it is ignored


class Sessions:
    """Keeps whose connection has closed."""

    def __init__(self):
        self.closed = []

    def connection_closed(self, connection_id):
        self.closed.append(connection_id)


@pytest.fixture
def handled(cluster):
    """The requests that came to the handlers, which do nothing."""
    handled = []

    def handle(_context, request):
        handled.append(request.exchange)
        request.body()

    cluster.replace(apis={key: replace(api, handle=handle) for key, api in API_TABLE.items()})
    return handled


def padded(cluster, api_key, version):
    body = messages.encode_request(api_key, version, {})
    return cluster.exchange(api_key, version, body + PADDING)


def unknown_names(cluster, count):
    """A Metadata request that names so many topics, and does not make them."""
    topics = [{"name": f"nowhere-{number}"} for number in range(count)]
    fields = {"topics": topics, "allow_auto_topic_creation": False}
    return cluster.exchange(METADATA, 12, messages.encode_request(METADATA, 12, fields))


def ask_for_little(cluster, dispatcher):
    exchange = cluster.exchange(API_VERSIONS, 0, b"")
    exchange.connection_id = "connection-2"
    dispatcher.handle_frame(exchange)
    return exchange


@pytest.mark.parametrize("api_key", OF_KIO)
def test_a_long_request_is_decoded_while_others_are_handled(cluster, background, handled, api_key):
    """Everybody would wait until somebody's long request is decoded."""
    dispatcher = cluster.dispatcher()
    exchange = padded(cluster, api_key, API_TABLE[api_key].max_version)
    dispatcher.handle_frame(exchange)
    little = ask_for_little(cluster, dispatcher)
    assert handled == [little]
    background.step()
    assert handled == [little, exchange]
    assert not background.work


@pytest.mark.parametrize("api_key", OF_KIO)
def test_a_short_request_is_handled_at_once(cluster, background, handled, api_key):
    """Each request would cost a hand-over to a thread."""
    version = API_TABLE[api_key].max_version
    body = messages.encode_request(api_key, version, {})
    cluster.dispatcher().handle_frame(cluster.exchange(api_key, version, body))
    assert len(handled) == 1
    assert not background.work


def test_one_message_is_decoded_at_a_time(cluster, background, handled):
    """Long requests would have all threads, and nothing be synced meanwhile."""
    dispatcher = cluster.dispatcher()
    exchanges = [padded(cluster, METADATA, 12) for _ in range(3)]
    for exchange in exchanges:
        dispatcher.handle_frame(exchange)
    for _ in exchanges:
        assert len(background.work) == 1
        background.step()
    assert handled == exchanges


def test_a_long_request_and_its_answer_give_way_at_each_step(cluster, background, monkeypatch):
    """60 000 unknown names held up everybody for half a second."""
    looked_at = []

    def look(name):
        looked_at.append(name)
        return unknown_name_error(name)

    monkeypatch.setattr(metadata, "unknown_name_error", look)
    count = 10 * SLICE_ENTRIES
    dispatcher = cluster.dispatcher()
    exchange = unknown_names(cluster, count)
    dispatcher.handle_frame(exchange)
    steps = 0
    while exchange.sent is None:
        assert ask_for_little(cluster, dispatcher).sent is not None
        before = len(looked_at)
        background.step()
        assert len(looked_at) <= before + SLICE_ENTRIES
        steps += 1
    assert len(looked_at) == count
    answer = cluster.answer(exchange, METADATA, 12)
    assert [topic.name for topic in answer.topics] == [f"nowhere-{each}" for each in range(count)]
    assert {topic.error_code for topic in answer.topics} == {
        KioErrorCode.unknown_topic_or_partition
    }
    assert steps >= 10


def refuse(*_arguments):
    raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class RefusedMarkers(MarkerWriter):
    """Keeps the markers that come to it."""

    def __init__(self):
        self.markers = []

    def write(self, marker, partitions, on_done):
        self.markers.append(marker)
        for each in partitions:
            on_done(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refuse_to_delete(_timeout_ms, _internal_topics_allowed, entries, on_done):
    error = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    on_done([DeleteRecordsResult(each, error=error) for each, _ in entries])


def marker_of(producer_id, coordinator_epoch=0):
    return {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "coordinator_epoch": coordinator_epoch,
        "topics": [{"name": "t", "partition_indexes": [0]}],
    }


MANY = range(10 * SLICE_ENTRIES)
GIVE_WAY = {
    "DescribeGroups": {"groups": [f"g{each}" for each in MANY]},
    "ConsumerGroupDescribe": {"group_ids": [f"g{each}" for each in MANY]},
    "ShareGroupDescribe": {"group_ids": [f"g{each}" for each in MANY]},
    "DescribeConfigs": {
        "resources": [{"resource_type": 2, "resource_name": f"t{each}"} for each in MANY]
    },
    "DescribeProducers": {"topics": [{"name": "t", "partition_indexes": list(MANY)}]},
    "OffsetForLeaderEpoch": {
        "topics": [{"topic": "t", "partitions": [{"partition": each} for each in MANY]}]
    },
    "DescribeTopicPartitions": {
        "topics": [{"name": f"t{each}"} for each in MANY],
        "response_partition_limit": len(MANY),
    },
    "CreateTopics": {"topics": [{"name": f"no name {each}"} for each in MANY]},
    "DeleteTopics": {"topics": [{"name": f"t{each}"} for each in MANY]},
    "DeleteRecords": {
        "topics": [{"name": "t", "partitions": [{"partition_index": each} for each in MANY]}]
    },
    "WriteTxnMarkers": {"markers": [marker_of(each) for each in MANY]},
    "FindCoordinator": {"coordinator_keys": [f"g{each}" for each in MANY]},
}
STEPS_OF_AN_ENTRY = {
    "WriteTxnMarkers": 4
}  # it is written; the answer has a topic in it, and a code


@pytest.mark.parametrize("name", GIVE_WAY)
def test_many_entries_are_answered_in_slices(cluster, background, name):
    """A tool that asks for everything at once would hold up the clients."""
    cluster.create("__consumer_offsets")
    groups = ("describe_group", "describe_consumer_group", "describe_share_group", "describe")
    cluster.replace(
        replicas=SimpleNamespace(
            partition=refuse, producers=refuse, delete_records=refuse_to_delete
        ),
        groups=SimpleNamespace(flush=cluster.flush, **dict.fromkeys(groups, refuse)),
        markers=SlicedMarkers(RefusedMarkers(), background.defer),
        share_groups=SimpleNamespace(**dict.fromkeys(groups, refuse)),
    )
    api = next(api for api in API_TABLE.values() if api.name == name)
    version = api.max_version
    body = messages.encode_request(api.key, version, GIVE_WAY[name])
    exchange = cluster.exchange(api.key, version, body)
    cluster.dispatcher().handle_frame(exchange)
    steps = len(MANY) * STEPS_OF_AN_ENTRY.get(name, 1)
    assert run(background, exchange) >= steps // SLICE_ENTRIES
    answer = cluster.answer(exchange, api.key, version)
    assert not hasattr(answer, "error_code") or answer.error_code is KioErrorCode.none
    assert entries(answer) == len(MANY)


class CountingWorld(TransactionWorld):
    """Counts how often a transactional id is asked about."""

    asked = 0

    @property
    def partitions(self):
        """How many partitions ids are divided among."""
        self.asked += 1
        return 1

    @partitions.setter
    def partitions(self, _count):
        """Leaves it at one."""


def test_many_transactions_are_verified_in_slices(cluster, background):
    """Another broker that asks about 10 000 transactions at once held up everybody."""
    cluster.create("t")
    world = CountingWorld()
    cluster.replace(transactions=world.coordinator)
    topics = [{"name": "t", "partitions": [0]}]
    fields = {"producer_id": 5, "producer_epoch": 0, "verify_only": True, "topics": topics}
    names = [f"x{each}" for each in MANY]
    transactions = [{"transactional_id": each, **fields} for each in names]
    body = messages.encode_request(ADD_PARTITIONS, 5, {"transactions": transactions})
    exchange = cluster.exchange(ADD_PARTITIONS, 5, body)
    world.asked = 0
    cluster.dispatcher().handle_frame(exchange)
    most = world.asked
    while world.asked < len(MANY):
        before = world.asked
        background.step()
        most = max(most, world.asked - before)
    assert most <= SLICE_ENTRIES
    assert run(background, exchange) >= len(MANY) // SLICE_ENTRIES
    answered = cluster.answer(exchange, ADD_PARTITIONS, 5).results_by_transaction
    assert [each.transactional_id for each in answered] == names


def test_a_marker_does_not_come_behind_one_that_was_asked_for_later(cluster, background):
    """A coordinator that lost its connection asks again, and its producer writes on under the same
    epoch: the next transaction would end in the middle, by the marker of the one before."""
    markers = RefusedMarkers()
    cluster.replace(markers=SlicedMarkers(markers, background.defer))
    api = next(api for api in API_TABLE.values() if api.name == "WriteTxnMarkers")
    last = MANY[-1]
    requests = [GIVE_WAY["WriteTxnMarkers"], {"markers": [marker_of(last, coordinator_epoch=1)]}]
    exchanges = []
    for each in requests:
        body = messages.encode_request(api.key, api.max_version, each)
        exchanges.append(cluster.exchange(api.key, api.max_version, body))
    cluster.dispatcher().handle_frame(exchanges[0])
    while not markers.markers:
        background.step()
    cluster.dispatcher().handle_frame(exchanges[1])
    for each in exchanges:
        run(background, each)
    written = [each.coordinator_epoch for each in markers.markers if each.producer_id == last]
    assert written == [0, 1]


def entries(answer):
    """How many entries an answer has in its one list, or in that of its one topic."""
    lists = [value for value in vars_of(answer) if isinstance(value, tuple)]
    assert len(lists) == 1
    if len(lists[0]) > 1:
        return len(lists[0])
    return entries(lists[0][0])


def vars_of(message):
    return [getattr(message, field.name) for field in fields(message)]


def test_a_short_question_with_a_long_answer_gives_way(cluster, background):
    """A client that lists all topics would hold up the others."""
    for number in range(3):
        cluster.create(f"wide-{number}", SLICE_ENTRIES)
    while background.work:
        background.step()
    exchange = cluster.exchange(
        METADATA, 12, messages.encode_request(METADATA, 12, {"topics": None})
    )
    dispatcher = cluster.dispatcher()
    dispatcher.handle_frame(exchange)
    assert exchange.sent is None
    assert ask_for_little(cluster, dispatcher).sent is not None
    run(background, exchange)
    topics = cluster.answer(exchange, METADATA, 12).topics
    assert [len(topic.partitions) for topic in topics] == 3 * [SLICE_ENTRIES]


@pytest.mark.parametrize("validate_only", [False, True])
def test_settings_of_new_topics_are_looked_up_in_slices(
    cluster, background, monkeypatch, validate_only
):
    """The settings of 10 000 topics were looked up at once when they had been made."""
    looks = []
    look = ConfigDescriber.created_entries
    monkeypatch.setattr(
        ConfigDescriber,
        "created_entries",
        lambda *arguments: looks.append(arguments) or look(*arguments),
    )
    topics = [
        {"name": f"t{each}", "num_partitions": 1, "replication_factor": 1}
        for each in range(2 * SLICE_ENTRIES)
    ]
    body = messages.encode_request(
        CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 1000, "validate_only": validate_only}
    )
    exchange = cluster.exchange(CREATE_TOPICS, 7, body)
    cluster.dispatcher().handle_frame(exchange)
    most = len(looks)
    while exchange.sent is None:
        before = len(looks)
        background.step()
        most = max(most, len(looks) - before)
    assert len(looks) == len(topics)
    assert most <= SLICE_ENTRIES
    assert {topic.error_code for topic in cluster.answer(exchange, CREATE_TOPICS, 7).topics} == {
        KioErrorCode.none
    }


@pytest.mark.parametrize("are_refused", [False, True])
def test_topics_that_are_made_because_they_are_asked_for_give_way(
    cluster, background, monkeypatch, are_refused
):
    """A client of 2016 that subscribes to 60 000 names held up everybody for 20 seconds."""
    plans = []
    plan = TopicPlanner.plan_topic

    def plan_or_refuse(*arguments):
        plans.append(arguments)
        if are_refused:
            raise BrokerError(ErrorCode.POLICY_VIOLATION)
        return plan(*arguments)

    monkeypatch.setattr(TopicPlanner, "plan_topic", plan_or_refuse)
    names = [f"t{each}" for each in range(3 * SLICE_ENTRIES + 1)]
    body = messages.encode_request(METADATA, 1, {"topics": [{"name": each} for each in names]})
    exchange = cluster.exchange(METADATA, 1, body)
    cluster.dispatcher().handle_frame(exchange)
    counts = [0, len(plans)]
    while exchange.sent is None:
        background.step()
        counts.append(len(plans))
    assert max(after - before for before, after in itertools.pairwise(counts)) <= SLICE_ENTRIES
    topics = cluster.answer(exchange, METADATA, 1).topics
    assert [each.name for each in topics] == names
    expected = KioErrorCode.policy_violation if are_refused else KioErrorCode.none
    assert {each.error_code for each in topics} == {expected}


def test_topics_for_which_there_is_no_time_are_asked_for_again(cluster, background):
    """A client would wait for minutes, for more topics than it gives up waiting for."""
    names = [f"t{each}" for each in range(3 * SLICE_ENTRIES)]
    body = messages.encode_request(METADATA, 1, {"topics": [{"name": each} for each in names]})
    exchange = cluster.exchange(METADATA, 1, body)
    cluster.dispatcher().handle_frame(exchange)
    while len(cluster.cache.image.topics) < SLICE_ENTRIES:
        background.step()
    cluster.context.clock.advance(5_000)
    run(background, exchange)
    codes = [each.error_code for each in cluster.answer(exchange, METADATA, 1).topics]
    made = len(cluster.cache.image.topics)
    assert made < len(names)
    assert set(codes[:made]) == {KioErrorCode.none}
    assert set(codes[made:]) == {KioErrorCode.leader_not_available}


def test_a_malformed_long_request_loses_its_connection(cluster, background, caplog):
    """It would be decoded again on the loop, or its client wait for ever."""
    exchange = cluster.exchange(METADATA, 1, b"\x00\x7f\xff\xff" + PADDING)
    cluster.dispatcher().handle_frame(exchange)
    background.step()
    assert exchange.closed
    assert "malformed Metadata version 1" in caplog.text


def answer_with(cluster, api_key, answer, fail=None):
    """Answers an API by a function, and by another one where that fails."""
    row = API_TABLE[api_key]
    fail = fail or row.fail

    def handle(_context, request):
        request.body()
        answer(request)

    row = replace(row, handle=handle, fail=fail)
    cluster.replace(apis={**API_TABLE, api_key: row})
    exchange = cluster.exchange(api_key, 1, messages.encode_request(api_key, 1, {"topics": []}))
    cluster.dispatcher().handle_frame(exchange)
    return exchange


def broken(topic):
    return {"name": f"t{topic}", "no_such_field": 1}


def answer_broken(request, _code=None):
    request.answer(topics=[broken(number) for number in range(LONG_ANSWER_ENTRIES)])


def test_a_long_answer_that_cannot_be_encoded_fails_as_a_short_one(cluster, background, caplog):
    """A mistake in one answer would end the broker, or leave the client without one."""
    exchange = answer_with(cluster, METADATA, answer_broken)
    assert exchange.sent is None
    run(background, exchange)
    assert cluster.answer(exchange, METADATA, 1).topics == ()
    assert "failed unexpectedly" in caplog.text


def test_an_answer_that_says_so_and_cannot_be_encoded_ends_the_connection(cluster, background):
    """The broker would try it for ever."""
    exchange = answer_with(cluster, METADATA, answer_broken, fail=answer_broken)
    run(background, exchange)
    assert exchange.closed
    assert not background.work


def test_an_exception_in_a_later_slice_is_answered(cluster, background, caplog):
    """The client would wait for ever."""

    def topics():
        for number in range(SLICE_ENTRIES):
            yield {"name": f"t{number}"}
        raise RuntimeError("boom")

    exchange = answer_with(cluster, METADATA, lambda request: request.answer(topics=topics()))
    assert exchange.sent is None
    run(background, exchange)
    assert cluster.answer(exchange, METADATA, 1).topics == ()
    assert "boom" in caplog.text


def ask_for_many_offsets(cluster, is_denied):
    """They have a codec of their own; `is_denied` is asked for each partition."""

    def handle(context, request):
        list_offsets.handle_allowed(context, request, is_denied)

    row = replace(API_TABLE[LIST_OFFSETS], handle=handle)
    cluster.replace(apis={**API_TABLE, LIST_OFFSETS: row})
    partitions = [{"partition_index": each} for each in MANY]
    fields = {"topics": [{"name": "t", "partitions": partitions}]}
    body = messages.encode_request(LIST_OFFSETS, 7, fields)
    exchange = cluster.exchange(LIST_OFFSETS, 7, body)
    cluster.dispatcher().handle_frame(exchange)
    return exchange


def codes_of_offsets(cluster, exchange):
    """The errors of the answer, which has one entry for each partition that was asked for."""
    [topic] = cluster.answer(exchange, LIST_OFFSETS, 7).topics
    assert [each.partition_index for each in topic.partitions] == list(MANY)
    return {each.error_code for each in topic.partitions}


def test_many_offsets_are_found_in_slices(cluster, background):
    """The loop was busy until all of them were found."""
    exchange = ask_for_many_offsets(cluster, lambda _: True)
    assert run(background, exchange) >= len(MANY) // SLICE_ENTRIES
    assert codes_of_offsets(cluster, exchange) == {KioErrorCode.topic_authorization_failed}


def test_offsets_that_cannot_be_found_in_a_later_slice_are_answered(cluster, background, caplog):
    """The frame has been let go of: another request's would be read for the answer."""

    def is_denied(topic_partition):
        if topic_partition.partition == SLICE_ENTRIES:
            raise RuntimeError("boom")
        return True

    exchange = ask_for_many_offsets(cluster, is_denied)
    run(background, exchange)
    assert codes_of_offsets(cluster, exchange) == {KioErrorCode.unknown_server_error}
    assert "boom" in caplog.text


def test_nothing_is_kept_for_a_connection_that_closed_meanwhile(cluster, background, handled):
    """Remains of its request would stay for ever: it was taken up after the end."""
    sessions = Sessions()
    cluster.replace(share_sessions=sessions)
    dispatcher = cluster.dispatcher()
    exchange = padded(cluster, METADATA, 12)
    dispatcher.handle_frame(exchange)
    dispatcher.connection_closed(exchange.connection_id)
    background.step()
    assert handled == [exchange]
    assert sessions.closed == 2 * [exchange.connection_id]


def test_the_frame_is_kept_until_it_is_decoded(cluster, background, handled):
    """The next request would be received into one that is being read; or memory be kept."""
    exchange = padded(cluster, METADATA, 12)
    cluster.dispatcher().handle_frame(exchange)
    assert len(exchange.frame) > LONG_REQUEST_BYTES
    background.step()
    with pytest.raises(AssertionError, match="after its release"):
        _ = exchange.frame


class CountedTime(RequestQuotas):
    """Notes what requests are charged, by the cluster's clock."""

    def __init__(self, clock):
        self.clock = clock
        self.took_ns = []

    def busy_ns(self):
        return self.clock.monotonic_ms() * 1_000_000

    def took(self, request, api, time_ns):
        self.took_ns.append(time_ns)


def test_the_time_on_threads_and_in_slices_is_charged(cluster, background, monkeypatch):
    """A client's quota of time would be spent by short requests alone."""
    clock = cluster.context.clock
    quotas = CountedTime(clock)
    cluster.replace(quotas=quotas)
    decode, encode = messages.decode_request, messages.encode_response

    def slow(function):
        def take_a_while(*arguments):
            clock.advance(7)
            return function(*arguments)

        return take_a_while

    monkeypatch.setattr(messages, "decode_request", slow(decode))
    monkeypatch.setattr(messages, "encode_response", slow(encode))
    exchange = unknown_names(cluster, 10 * SLICE_ENTRIES)
    cluster.dispatcher().handle_frame(exchange)
    run(background, exchange)
    assert [each for each in quotas.took_ns if each] == [7_000_000, 7_000_000]
