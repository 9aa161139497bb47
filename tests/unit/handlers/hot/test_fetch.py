"""Fetch, over real logs. What is wrong here, every consumer in every language notices."""

import pytest

from odradek.errors import ErrorCode
from odradek.model import AppendOrigin
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
)
from odradek.records.batch import split_batches
from odradek.records.builder import build_end_marker
from odradek.records.compression import Compression
from odradek.records.reader import iter_records

FETCH = 1


def delete(broker):
    broker.cluster.ask(20, 6, topics=[{"name": "orders", "topic_id": None}], timeout_ms=1000)


def values(answer):
    return [record.value for record in iter_records(b"".join(map(bytes, answer.records)))]


@pytest.mark.parametrize("version", range(19))
def test_every_version_reads(broker, batch, version):
    topic_id = broker.create()
    broker.produce(batch(b"a", b"b"))
    topic = topic_id if version >= 13 else "orders"
    answer = broker.fetch_one(version=version, topic=topic)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 2)
    assert values(answer) == [b"a", b"b"]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_old_versions_get_old_formats(broker, batch, version, magic):
    broker.create()
    broker.produce(batch(b"a", codec=Compression.GZIP))
    (records,) = broker.fetch_one(version=version).records
    assert records[16] == magic


def test_zstd_is_not_for_versions_before_10(broker, batch):
    broker.create()
    broker.produce(batch(b"a", codec=Compression.ZSTD))
    refused = broker.fetch_one(version=9)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused.records == []
    assert values(broker.fetch_one(version=10)) == [b"a"]


def test_it_waits_for_records_and_is_answered_by_the_append(broker, batch):
    broker.create()
    exchange = broker.send_fetch(FetchPartition(0, 0, 1000), max_wait_ms=500)
    assert exchange.sent is None
    broker.produce(batch(b"a"))
    assert values(broker.fetched(exchange).topics[0].partitions[0]) == [b"a"]


def test_it_waits_no_longer_than_it_is_told(broker):
    broker.create()
    exchange = broker.send_fetch(FetchPartition(0, 0, 1000), max_wait_ms=500)
    broker.wait(499)
    assert exchange.sent is None
    broker.wait(1)
    assert broker.fetched(exchange).topics[0].partitions[0].records == []


def test_a_closed_connections_fetch_is_dropped(broker, batch):
    """The answer is read by nobody; the disk and the memory are for those who do."""
    broker.create()
    exchange = broker.send_fetch(FetchPartition(0, 0, 1000), max_wait_ms=500)
    assert len(broker.context.parked_fetches) == 1
    broker.dispatcher.connection_closed(exchange.connection_id)
    broker.produce(batch(b"a"))
    assert exchange.sent is None
    assert broker.replicas.purgatories.fetch.delayed == 0


@pytest.mark.parametrize("offset", [3, -1])
def test_offsets_out_of_range(broker, batch, offset):
    broker.create()
    broker.produce(batch(b"a", b"b"))
    assert broker.fetch_one(offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_unknown_topics_and_ids(broker):
    topic_id = broker.create()
    nowhere = broker.fetch_one(topic="nowhere")
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nowhere.aborted == []  # as in Kafka
    unknown = broker.fetch_one(version=13, topic=type(topic_id)(int=1))
    assert (unknown.error_code, unknown.aborted) == (ErrorCode.UNKNOWN_TOPIC_ID, [])
    none = broker.fetch_one(version=13, topic=None)
    assert none.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_brokers_limit_holds_whatever_the_client_says(broker_with, batch):
    broker = broker_with({"fetch.max.bytes": "1024"})
    broker.create(partitions=2)
    for partition in (0, 1):
        broker.produce(batch(b"x" * 1500), partition=partition)
    response = broker.fetch(*(FetchPartition(index, 0, 1 << 20) for index in (0, 1)))
    sizes = [sum(map(len, each.records)) for each in response.topics[0].partitions]
    assert sizes[0] > 1500
    assert sizes[1] == 0


@pytest.mark.parametrize("version", [12, 15, 16])
def test_an_epoch_of_the_past_names_the_leader(broker, version):
    """Fails when a consumer has to ask who leads, or a client is told what it does not know."""
    topic_id = broker.create()
    topic = {"version": version, "topic": topic_id if version >= 13 else "orders"}
    partition = broker.replicas.partition(broker.log().topic_partition)
    asked = FetchPartition(0, 0, 1000, current_leader_epoch=partition.leader_epoch + 1)
    answer = broker.fetch(asked, **topic).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.leader_epoch += 2
    response = broker.fetch(asked, **topic)
    answer = response.topics[0].partitions[0]
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert answer.current_leader_id == (1 if version >= 16 else -1)
    assert [each.node_id for each in response.node_endpoints] == ([1] if version >= 16 else [])


def test_readers_of_committed_records_get_the_list_of_aborted_ones(broker, batch):
    broker.create()
    broker.produce(batch(b"a"))
    assert broker.fetch_one(isolation_level=1).aborted == []
    assert broker.fetch_one(isolation_level=0).aborted is None


def write(broker, batch, producer_id):
    """Appends a record of a transaction; returns its batch."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    data = batch(b"x" * 10, is_transactional=True, **fields)
    broker.log().appender.append_as_leader([memoryview(bytearray(data))], 0)
    return data


def abort(broker, producer_id):
    """Appends the end marker of a producer's transaction."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "coordinator_epoch": 0}
    marker = bytearray(build_end_marker(commit=False, base_offset=0, timestamp_ms=0, **fields))
    appender = broker.log().appender
    appender.append_as_leader([memoryview(marker)], 0, AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("interval", ["0", "4096"])
def test_the_list_of_aborted_transactions_ends_with_what_was_read(broker, batch, interval):
    """Fails when a reader of a kilobyte is sent all that was aborted up to the end of the log."""
    broker.create(**{"index.interval.bytes": interval})
    for offset in range(0, 400, 2):
        data = write(broker, batch, offset)
        abort(broker, offset)
    broker.log().update_high_watermark(400)
    for begin in (0, 1, 101, 399):
        for max_bytes in (1, len(data) + 1, len(data) + 7, len(data) + 8, 1000, 10_000, 1 << 20):
            answer = broker.fetch_one(begin, max_bytes=max_bytes, isolation_level=1)
            found = split_batches(b"".join(map(bytes, answer.records)), drop_partial_tail=True)
            read = range(begin, found[-1].last_offset + 1)
            expected = [each for each in range(0, 400, 2) if each in read or each + 1 in read]
            assert [each for _, each in answer.aborted] == expected


def test_a_transaction_that_begins_behind_what_was_read_is_not_listed(broker, batch):
    """Fails when a reader of one record is sent all that was aborted while its transaction was
    open."""
    broker.create()
    for producer_id in (1, 2, 3):
        write(broker, batch, producer_id)
    for producer_id in (3, 2, 1):
        abort(broker, producer_id)
    broker.log().update_high_watermark(6)
    assert broker.fetch_one(0, max_bytes=1, isolation_level=1).aborted == [(1, 0)]


# Sessions


def open_session(broker, *offsets):
    asked = [FetchPartition(index, offset, 1 << 20) for index, offset in enumerate(offsets)]
    response = broker.fetch(*asked, session_epoch=0)
    assert response.session_id > 0
    return response.session_id


def go_on(broker, session_id, epoch, *asked, **fields):
    return broker.fetch(*asked, session_id=session_id, session_epoch=epoch, **fields)


def indexes(response):
    return [each.index for topic in response.topics for each in topic.partitions]


def test_a_session_tells_only_what_has_changed(broker, batch):
    broker.create(partitions=3)
    session_id = open_session(broker, 0, 0, 0)
    assert indexes(go_on(broker, session_id, 1)) == []
    broker.produce(batch(b"a"), partition=1)
    response = go_on(broker, session_id, 2)
    assert response.session_id == session_id
    assert indexes(response) == [1]


def test_a_session_takes_changes_and_forgets(broker, batch):
    broker.create(partitions=2)
    session_id = open_session(broker, 0, 0)
    broker.produce(batch(b"a"), partition=0)
    broker.produce(batch(b"b"), partition=1)
    response = go_on(broker, session_id, 1, forgotten=[ForgottenTopic("orders", None, [1])])
    assert indexes(response) == [0]
    assert indexes(go_on(broker, session_id, 2, FetchPartition(0, 1, 1000))) == []


def test_partitions_with_records_go_to_the_end_of_the_line(broker, batch):
    """With small responses the first partition would otherwise starve the others."""
    broker.create(partitions=2)
    session_id = open_session(broker, 0, 0)
    for partition in (0, 1):
        broker.produce(batch(b"x" * 100), partition=partition)
    assert indexes(go_on(broker, session_id, 1, max_bytes=1))[0] == 0
    assert indexes(go_on(broker, session_id, 2, max_bytes=1))[0] == 1


def test_an_error_is_repeated_and_its_end_is_told(broker, batch):
    broker.create()
    asked = FetchPartition(0, 5, 1000)
    session_id = broker.fetch(asked, session_epoch=0).session_id
    assert indexes(go_on(broker, session_id, 1)) == [0]
    again = go_on(broker, session_id, 2, FetchPartition(0, 0, 1000))
    assert indexes(again) == [0]
    assert indexes(go_on(broker, session_id, 3)) == []


def test_lost_sessions_and_epochs_are_noticed(broker):
    broker.create()
    assert go_on(broker, 77, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = open_session(broker, 0)
    assert go_on(broker, session_id, 2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert go_on(broker, session_id, 1).error_code == ErrorCode.NONE


def test_a_session_of_names_does_not_go_on_with_ids(broker):
    topic_id = broker.create()
    session_id = open_session(broker, 0)
    response = broker.fetch(
        FetchPartition(0, 0, 1000),
        version=13,
        topic=topic_id,
        session_id=session_id,
        session_epoch=1,
    )
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_of_ids_notices_that_its_topic_has_gone(broker, batch):
    topic_id = broker.create()
    asked = FetchPartition(0, 0, 1000)
    opened = broker.fetch(asked, version=13, topic=topic_id, session_epoch=0)
    delete(broker)
    response = broker.fetch(version=13, session_id=opened.session_id, session_epoch=1)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # As in Kafka a partition that joins the session now was never known by another name.
    more = {"version": 13, "topic": topic_id, "session_id": opened.session_id}
    response = broker.fetch(FetchPartition(1, 0, 1000), session_epoch=2, **more)
    codes = {each.index: each.error_code for each in response.topics[0].partitions}
    assert codes == {
        0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        1: ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_a_session_of_ids_notices_that_its_topic_was_made_anew(broker, batch):
    """A client that has the name would take the later topic's records for the earlier one's."""
    topic_id = broker.create()
    asked = FetchPartition(0, 0, 1000)
    opened = broker.fetch(asked, version=13, topic=topic_id, session_epoch=0)
    delete(broker)
    broker.create()
    broker.produce(batch(b"of the later topic"))
    response = broker.fetch(version=13, session_id=opened.session_id, session_epoch=1)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert not response.topics[0].partitions[0].records


def test_a_session_of_ids_follows_its_topic_through_all_that_comes_after(broker, batch):
    """A client would take a second heir's records for those of the topic that it knows, or be told
    that an id is unknown, which it takes for news that will pass."""
    topic_id = broker.create(partitions=2)
    asked = [FetchPartition(each, 0, 1000) for each in range(2)]
    opened = broker.fetch(*asked, version=13, topic=topic_id, session_epoch=0)

    def codes(epoch):
        response = broker.fetch(version=13, session_id=opened.session_id, session_epoch=epoch)
        (topic,) = response.topics
        assert topic.topic_id == topic_id
        assert not any(each.records for each in topic.partitions)
        return {each.index: each.error_code for each in topic.partitions}

    gone = dict.fromkeys(range(2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for epoch in (1, 4):
        delete(broker)
        assert codes(epoch) == gone
        broker.create()
        broker.produce(batch(b"of a later topic"))
        # As in Kafka the second partition, which the later topic has not, is unknown.
        assert codes(epoch + 1) == {**gone, 0: ErrorCode.INCONSISTENT_TOPIC_ID}
        assert codes(epoch + 2) == {**gone, 0: ErrorCode.INCONSISTENT_TOPIC_ID}


def test_a_session_of_ids_learns_a_topic_that_was_unknown(broker, batch):
    """A client that knows a new topic before this broker does would be told for ever that there is
    none, or after its deletion that its id is unknown."""
    cache = broker.cluster.cache
    before = cache.image
    topic_id = broker.create()
    now, cache.image = cache.image, before
    asked = FetchPartition(0, 0, 1000)
    opened = broker.fetch(asked, version=13, topic=topic_id, session_epoch=0)
    assert opened.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def answer(epoch):
        more = broker.fetch(version=13, session_id=opened.session_id, session_epoch=epoch)
        return more.topics[0].partitions[0]

    assert answer(1).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    cache.image = now
    broker.produce(batch(b"a"))
    assert values(answer(2)) == [b"a"]
    delete(broker)
    assert answer(3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_closing_a_session(broker):
    broker.create()
    session_id = open_session(broker, 0)
    response = broker.fetch(FetchPartition(0, 0, 10), session_id=session_id, session_epoch=-1)
    assert response.session_id == 0
    assert len(broker.sessions) == 0


def test_a_session_that_forgets_everything_ends(broker):
    broker.create()
    session_id = open_session(broker, 0)
    response = go_on(broker, session_id, 1, forgotten=[ForgottenTopic("orders", None, [0])])
    assert (response.session_id, response.topics) == (0, [])
    assert len(broker.sessions) == 0


def test_without_a_free_slot_a_client_is_served_without_a_session(broker_with):
    broker = broker_with(slots=1)
    broker.create()
    open_session(broker, 0)
    response = broker.fetch(FetchPartition(0, 0, 10), session_epoch=0)
    assert (response.session_id, indexes(response)) == (0, [0])


def test_an_idle_session_makes_room(broker_with):
    broker = broker_with(slots=1)
    broker.create()
    first = open_session(broker, 0)
    broker.wait(120_001)
    second = open_session(broker, 0)
    assert go_on(broker, first, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(broker, second, 1).error_code == ErrorCode.NONE


def test_a_larger_session_takes_the_place_of_a_smaller_old_one(broker_with):
    broker = broker_with(slots=1)
    broker.create(partitions=2)
    first = open_session(broker, 0)
    broker.wait(120_001)
    go_on(broker, first, 1)
    assert broker.fetch(FetchPartition(0, 0, 10), session_epoch=0).session_id == 0
    open_session(broker, 0, 0)


def test_a_followers_session_takes_the_place_of_a_consumers(broker_with):
    broker = broker_with(slots=1)
    broker.create()
    open_session(broker, 0)
    follower = broker.fetch(FetchPartition(0, 0, 10), session_epoch=0, replica_id=2)
    assert follower.session_id > 0
    consumer = broker.fetch(FetchPartition(0, 0, 10), session_epoch=0)
    assert consumer.session_id == 0


def test_with_little_memory_for_answers_it_is_brief(broker, batch):
    """Ten thousand clients that do not read would be owed ten thousand full answers."""
    broker.create("orders", 2)
    for partition in (0, 1, 0, 1):
        broker.produce(batch(b"v" * 1000), partition=partition)

    def fetched(left_bytes):
        asked = [FetchPartition(n, 0, 1 << 20) for n in (0, 1)]
        request = FetchRequest(-1, 0, 1, [FetchTopic("orders", None, asked)], max_bytes=1 << 20)
        body = b"".join(map(bytes, encode_fetch_request(request, 12)))
        exchange = broker.cluster.exchange(FETCH, 12, body)
        exchange.answer_left_bytes = left_bytes
        broker.dispatcher.handle_frame(exchange)
        answers = broker.fetched(exchange).topics[0].partitions
        return sum(len(bytes(part)) for answer in answers for part in answer.records)

    size_bytes = len(batch(b"v" * 1000))
    assert fetched(1 << 20) == 4 * size_bytes
    assert (fetched(1500), fetched(0)) == (1500, size_bytes)


def test_an_answered_fetch_is_forgotten(broker, batch):
    """Every connection would keep its last answer of up to 55 MiB until its next one."""
    broker.create()
    broker.send_fetch(FetchPartition(0, 0, 1000), max_wait_ms=500)
    assert len(broker.context.parked_fetches) == 1
    broker.produce(batch(b"a"))
    assert len(broker.context.parked_fetches) == 0
    broker.send_fetch(FetchPartition(0, 1, 1000), max_wait_ms=500)
    broker.wait(500)
    assert len(broker.context.parked_fetches) == 0
