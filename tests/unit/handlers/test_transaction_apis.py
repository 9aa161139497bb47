"""Every version of the APIs of transactions, through the dispatcher, and verified writes."""

import pytest
from tests.unit.coordinator.transactional.transactions import ORDERS, TransactionWorld
from tests.unit.handlers.hot.conftest import HotBroker

from odradek.errors import ErrorCode
from odradek.handlers.transactions.transaction_verification import TransactionVerification
from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder, build_end_marker

INIT, ADD, ADD_OFFSETS, END, MARKERS, DESCRIBE, LIST = 22, 24, 25, 26, 27, 65, 66
E = ErrorCode


@pytest.fixture
def broker(cluster, tmp_path):
    """A broker with logs whose coordinator keeps its own log in a list."""
    hot = HotBroker(cluster, str(tmp_path))
    hot.world = TransactionWorld()
    verification = TransactionVerification(hot.world.coordinator, hot.replicas, cluster.config)
    cluster.replace(
        transactions=hot.world.coordinator,
        markers=hot.world.leaders,
        before_append=(verification,),
    )
    hot.create(partitions=2)
    hot.dispatcher = cluster.dispatcher()
    yield hot
    hot.log_manager.shutdown(-1)


def init(broker, version=4, name="t", **fields):
    return broker.cluster.ask(
        INIT, version, transactional_id=name, transaction_timeout_ms=1000, **fields
    )


def add(broker, version, producer, *partitions, name="t", verify_only=False):
    topics = [{"name": "orders", "partitions": list(partitions)}]
    fields = {
        "transactional_id": name,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    if version >= 4:
        wish = {**fields, "verify_only": verify_only, "topics": topics}
        answer = broker.cluster.ask(ADD, version, transactions=[wish])
        (result,) = answer.results_by_transaction
        topics = result.topic_results
    else:
        older = {f"v3_and_below_{key}": value for key, value in fields.items()}
        answer = broker.cluster.ask(ADD, version, v3_and_below_topics=topics, **older)
        topics = answer.results_by_topic_v3_and_below
    return [each.partition_error_code for topic in topics for each in topic.results_by_partition]


@pytest.mark.parametrize("version", range(6))
def test_ids_are_taken_over(broker, version):
    """Fails when a version of InitProducerId cannot be read or is answered wrongly."""
    first, second = init(broker, version), init(broker, version)
    assert (first.error_code, second.error_code) == (E.NONE, E.NONE)
    assert second.producer_epoch == first.producer_epoch + 1
    assert init(broker, version, name="").error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_all_or_none(broker, version):
    """Fails when a partition that does not exist leaves half of a transaction."""
    producer = init(broker)
    assert add(broker, version, producer, 0, 7) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.world.state() == "EMPTY"
    assert add(broker, version, producer, 0, 1) == [E.NONE, E.NONE]
    assert broker.world.state() == "ONGOING"


@pytest.mark.parametrize(
    ("version", "code"),
    [(0, E.INVALID_PRODUCER_EPOCH), (1, E.INVALID_PRODUCER_EPOCH)]
    + [(version, E.PRODUCER_FENCED) for version in range(2, 6)],
)
def test_fenced_producers_are_told_in_words_they_know(broker, version, code):
    """Fails when an old client meets an error code that it cannot read."""
    old = init(broker)
    init(broker)
    assert add(broker, version, old, 0) == [code]
    ended = broker.cluster.ask(
        END,
        version,
        transactional_id="t",
        producer_id=old.producer_id,
        producer_epoch=old.producer_epoch,
        committed=True,
    )
    assert ended.error_code == code
    if version <= 4:
        offsets = broker.cluster.ask(
            ADD_OFFSETS,
            version,
            transactional_id="t",
            producer_id=old.producer_id,
            producer_epoch=old.producer_epoch,
            group_id="g",
        )
        assert offsets.error_code == code


@pytest.mark.parametrize("version", range(6))
def test_ends_answer_whom_the_producer_is_next(broker, version):
    """Fails when a producer of version 2 does not hear its next epoch."""
    producer = init(broker)
    add(broker, 5 if version == 5 else 3, producer, 0)
    ended = broker.cluster.ask(
        END,
        version,
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )
    assert ended.error_code == E.NONE
    if version == 5:
        assert ended.producer_epoch == producer.producer_epoch + 1
    assert broker.world.state() == "COMPLETE_COMMIT"
    assert [partition for partition, _ in broker.world.leaders.written] == [ORDERS]


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_written_by_request(broker, version):
    """Fails when the markers of another broker's coordinator do not get into the log."""
    marker = {
        "producer_id": 5,
        "producer_epoch": 1,
        "transaction_result": True,
        "coordinator_epoch": 3,
        "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
    }
    answer = broker.cluster.ask(MARKERS, version, markers=[marker])
    codes = [each.error_code for each in answer.markers[0].topics[0].partitions]
    assert codes == [E.NONE, E.NONE]
    assert len(broker.world.leaders.written) == 2
    assert broker.cluster.ask(MARKERS, version, markers=[]).markers == ()


@pytest.mark.parametrize("version", range(3))
def test_tools_see_where_ids_stand(broker, version):
    """Fails when an operator cannot find the transaction that holds readers up."""
    add(broker, 3, init(broker), 0, 1)
    init(broker, name="idle")
    listed = broker.cluster.ask(LIST, version, state_filters=("Ongoing", "Odd"))
    assert [each.transactional_id for each in listed.transaction_states] == ["t"]
    assert listed.unknown_state_filters == ("Odd",)
    described = broker.cluster.ask(DESCRIBE, 0, transactional_ids=("t", "nobody"))
    known, unknown = described.transaction_states
    assert (known.transaction_state, known.topics[0].partitions) == ("Ongoing", (0, 1))
    assert unknown.error_code == E.TRANSACTIONAL_ID_NOT_FOUND


def records(producer, sequence=0):
    builder = RecordBatchBuilder(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    builder.append(1000, None, b"v")
    return bytearray(builder.build())


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE), (12, E.NONE)],
)
def test_a_first_write_is_verified_or_adds_its_partition(broker, version, code):
    """Fails when records get into a log that no transaction will ever end."""
    producer = init(broker)
    answer = broker.produce(records(producer), version=version, txn="t")
    assert answer.error_code == code
    assert broker.world.state() == ("ONGOING" if code is E.NONE else "EMPTY")
    assert broker.log().log_end_offset == (1 if code is E.NONE else 0)


def test_writes_after_the_first_are_not_verified_again(broker):
    """Fails when every write of a transaction asks its coordinator."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    assert broker.produce(records(producer), txn="t").error_code == E.NONE
    broker.world.runtime.shutdown()
    assert broker.produce(records(producer, 1), txn="t").error_code == E.NONE
    refused = broker.produce(records(producer, 0), txn="t", partition=1)
    assert refused.error_code == E.NOT_ENOUGH_REPLICAS


def test_a_write_whose_transaction_ends_while_it_is_verified_is_refused(broker):
    """Fails when a late first write opens a transaction that hangs."""
    producer = init(broker)
    broker.world.log.holds = True
    exchange = broker.send_produce(records(producer), version=12, txn="t")
    assert exchange.sent is None
    marker = build_end_marker(
        commit=False,
        base_offset=0,
        timestamp_ms=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=0,
    )
    broker.log().producers.complete(parse_header(marker, 0), False, 0)
    broker.world.log.holds = False
    broker.world.log.commit()
    assert broker.produced(exchange, 12).error_code == E.INVALID_TXN_STATE
    assert broker.log().log_end_offset == 0
