"""Every version of the APIs of transactions, through the dispatcher, and verified writes."""

import random
from uuid import UUID

import pytest
from tests.clocks import OwnClock
from tests.late_background import LateBackground
from tests.unit.coordinator.fakes import World
from tests.unit.coordinator.transactional.transactions import ABORT, ORDERS, TransactionWorld
from tests.unit.handlers.conftest import run
from tests.unit.handlers.hot.conftest import PRODUCE, HotBroker

from odradek.coordinator.transactions.requests import ProducerIdAndEpoch
from odradek.coordinator.transactions.writes import TransactionWrites
from odradek.errors import ErrorCode
from odradek.handlers.long_requests import SLICE_ENTRIES
from odradek.handlers.records.produce import steps_before_append
from odradek.handlers.records.unpacking import HEAVY_BYTES
from odradek.handlers.transactions.transaction_verification import TransactionVerifier
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.protocol import messages
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.compression import Compression
from odradek.replication.schedule.manager import ScheduleManager
from odradek.replication.schedule.services import ReleaseServices
from odradek.timer import MockTimer

INIT, ADD, ADD_OFFSETS, END, MARKERS, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 27, 28
DELETE_TOPICS, DESCRIBE, LIST = 20, 65, 66
E = ErrorCode
NOISE = random.Random(0).randbytes(2 * HEAVY_BYTES)


class LivingClock(OwnClock):
    """A clock by which clients live, too, though the test moves it."""

    def __init__(self, clock):
        self._clock = clock

    def monotonic_ms(self):
        return self._clock.monotonic_ms()

    def wall_ms(self):
        return self._clock.wall_ms()


class Coordinators(TransactionWrites):
    """The way to the one coordinator. While it `holds`, questions are under way until `release`;
    with a `refusal`, they do not arrive. If it `raises`, the fault is ours."""

    def __init__(self, coordinator):
        self.raises = None
        self.refusal = None
        self.holds = False
        self._coordinator = coordinator
        self._held = []

    def add_or_verify(self, request, verify_only, on_done):
        if self.raises is not None:
            raise self.raises
        if self.refusal is not None:
            on_done([self.refusal] * len(request.partitions))
        elif self.holds:
            self._held.append((request, verify_only, on_done))
        else:
            self._coordinator.add_or_verify(request, verify_only, on_done)

    def release(self):
        self.holds = False
        held, self._held = self._held, []
        for each in held:
            self._coordinator.add_or_verify(*each)


@pytest.fixture
def broker(cluster, tmp_path):
    """A broker with logs whose coordinator keeps its own log in a list."""
    hot = HotBroker(cluster, str(tmp_path))
    hot.world = TransactionWorld()
    hot.timer = MockTimer()
    hot.living = LivingClock(hot.timer.manual_clock)
    hot.coordinators = Coordinators(hot.world.coordinator)
    hot.background = LateBackground(is_late=False)
    verifier = TransactionVerifier(
        hot.coordinators, hot.replicas.producers, cluster.config, hot.living
    )
    cluster.replace(
        transactions=hot.world.coordinator,
        groups=World().groups,
        markers=hot.world.leaders,
        verifier=verifier,
        before_append=steps_before_append(
            hot.replicas,
            verifier,
            hot.background,
            hot.living,
            hot.timer,
            cluster.config,
            ScheduleManager(ReleaseServices(hot.living, hot.timer, hot.replicas, None, None, None)),
        ),
    )
    hot.create(partitions=2)
    hot.create("__consumer_offsets")
    hot.dispatcher = cluster.dispatcher()
    yield hot
    hot.log_manager.shutdown(-1)


def init(broker, version=4, name="t", **fields):
    return broker.cluster.ask(
        INIT, version, transactional_id=name, transaction_timeout_ms=1000, **fields
    )


def who(producer):
    """The id and epoch of an answer."""
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)


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


def plain_records():
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"v")
    return bytearray(builder.build())


def records(producer, sequence=0, value=b"v", codec=Compression.NONE):
    builder = RecordBatchBuilder(
        codec,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    builder.append(1000, None, value)
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


@pytest.mark.parametrize("version", [7, 9, 11, 12])
@pytest.mark.parametrize("codec", Compression)
def test_what_one_step_has_made_of_a_batch_is_understood_by_the_next(broker, version, codec):
    """Fails when a batch that was unpacked before cannot be verified: every heavy one of a
    transaction would be refused."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    for sequence in range(2):
        batch = records(producer, sequence, NOISE, codec)
        assert broker.produce(batch, version=version, txn="t").error_code == E.NONE
    stranger = ProducerIdAndEpoch(producer.producer_id + 1, 0)
    batch = records(stranger, 0, NOISE, codec)
    refused = broker.produce(batch, version=version, txn="t")
    assert refused.error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert broker.log().log_end_offset == 2


def test_writes_after_the_first_are_not_verified_again(broker):
    """Fails when every write of a transaction asks its coordinator."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    assert broker.produce(records(producer), txn="t").error_code == E.NONE
    broker.world.runtime.shutdown()
    assert broker.produce(records(producer, 1), txn="t").error_code == E.NONE
    refused = broker.produce(records(producer, 0), txn="t", partition=1)
    assert refused.error_code == E.NOT_ENOUGH_REPLICAS


UNREACHABLE = (
    E.NETWORK_EXCEPTION,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
)


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("refusal", UNREACHABLE)
def test_a_write_that_nobody_could_verify_is_sent_again(broker, version, refusal):
    """Fails when a transaction ends because its coordinator was away for a moment."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    broker.coordinators.refusal = refusal
    assert produce_codes(broker, producer, version, [0]) == [E.NOT_ENOUGH_REPLICAS]
    broker.coordinators.refusal = None
    assert produce_codes(broker, producer, version, [0]) == [E.NONE]


def test_a_request_has_the_records_of_one_producer(broker):
    """Fails when a producer's records are verified as those of another."""
    first, other = init(broker), init(broker, name="u")
    add(broker, 3, first, 0)
    add(broker, 3, other, 1, name="u")
    partitions = [ProducePartition(0, records(first)), ProducePartition(1, records(other))]
    request = ProduceRequest("t", 1, 1000, [ProduceTopic("orders", None, partitions)])
    exchange = broker.handle(PRODUCE, 11, encode_produce_request(request, 11))
    broker.dispatcher.end_of_read()
    answer = broker.decode(decode_produce_response, exchange, PRODUCE, 11)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [E.INVALID_PRODUCER_ID_MAPPING] * 2


def produce_codes(broker, producer, version, sequences):
    return [
        broker.produce(records(producer, each), version=version, txn="t").error_code
        for each in sequences
    ]


def test_a_producer_that_adds_by_writing_begins_at_0(broker):
    """Fails when the second of two writes gets in before the first, which is out of order then: a
    client would be told that records are delivered that are not there."""
    broker.produce(plain_records(), version=12)
    producer = init(broker)
    codes = produce_codes(broker, producer, 12, [1, 0, 1])
    assert codes == [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.NONE, E.NONE]


def test_a_write_whose_verification_failed_comes_before_those_behind_it(broker):
    """Fails when the write that was refused cannot get in any more once it may."""
    broker.produce(plain_records(), version=12)
    producer = init(broker)
    codes = produce_codes(broker, producer, 9, [0])
    add(broker, 3, producer, 0)
    codes += produce_codes(broker, producer, 9, [1, 0, 1])
    assert codes == [E.INVALID_TXN_STATE, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.NONE, E.NONE]


def abort_marker(producer, by=0):
    return build_end_marker(
        commit=False,
        base_offset=0,
        timestamp_ms=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch + by,
        coordinator_epoch=0,
    )


def begin_offset_commit(broker, producer, version, group="g"):
    """Commits an offset in a transaction; the exchange, which may not be answered yet."""
    partition = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    fields = {
        "transactional_id": "t",
        "group_id": group,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    body = messages.encode_request(TXN_OFFSET_COMMIT, version, fields)
    exchange = broker.cluster.exchange(TXN_OFFSET_COMMIT, version, body)
    broker.dispatcher.handle_frame(exchange)
    return exchange


def commit_offset(broker, producer, version, group="g"):
    return offset_committed(broker, begin_offset_commit(broker, producer, version, group), version)


def offset_committed(broker, exchange, version):
    """The one code of an answer."""
    answer = broker.cluster.answer(exchange, TXN_OFFSET_COMMIT, version)
    ((result,),) = [each.partitions for each in answer.topics]
    return result.error_code


def test_a_write_whose_transaction_ends_while_it_is_verified_is_refused(broker):
    """Fails when a late first write opens a transaction that hangs."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    broker.coordinators.holds = True
    exchange = broker.send_produce(records(producer), version=11, txn="t")
    broker.log().producers.complete(parse_header(abort_marker(producer), 0), False, 0)
    broker.coordinators.release()
    assert broker.produced(exchange, 11).error_code == E.INVALID_TXN_STATE
    assert broker.log().log_end_offset == 0


def test_a_write_whose_transaction_ends_while_it_is_unpacked_is_refused(broker):
    """Fails when a heavy batch is verified first, and a transaction that hangs begins with it."""
    producer = init(broker)
    add(broker, 3, producer, 0)
    broker.background.is_late = True
    heavy = records(producer, 0, NOISE, Compression.ZSTD)
    exchange = broker.send_produce(heavy, version=11, txn="t")
    broker.world.end(who(producer), ABORT)
    broker.log().producers.complete(parse_header(abort_marker(producer), 0), False, 0)
    broker.background.catch_up()
    assert broker.produced(exchange, 11).error_code == E.TRANSACTION_ABORTABLE
    assert broker.log().log_end_offset == 0


def test_a_write_that_comes_before_the_marker_of_the_transaction_before_is_asked_about_again(
    broker,
):
    """Fails when a producer is told INVALID_TXN_STATE, after which it ends, because the question to
    its coordinator took longer than the last marker."""
    producer = init(broker)
    broker.coordinators.holds = True
    exchange = broker.send_produce(records(producer), version=12, txn="t")
    broker.log().producers.complete(parse_header(abort_marker(producer), 0), False, 0)
    broker.coordinators.release()
    broker.timer.advance_clock(20)
    assert broker.produced(exchange, 12).error_code == E.NONE
    broker.coordinators.holds = True
    exchange = broker.send_produce(records(producer), version=12, txn="t", partition=1)
    ended = parse_header(abort_marker(producer, by=1), 0)
    broker.log(partition=1).producers.complete(ended, False, 0)
    broker.coordinators.release()
    broker.timer.advance_clock(20)
    assert broker.produced(exchange, 12).error_code == E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("refusal", "version", "code"),
    [
        (E.NETWORK_EXCEPTION, 5, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 3, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NETWORK_EXCEPTION, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_NOT_AVAILABLE, 5, E.COORDINATOR_NOT_AVAILABLE),
        (E.CONCURRENT_TRANSACTIONS, 5, E.CONCURRENT_TRANSACTIONS),
        (E.PRODUCER_FENCED, 5, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, 4, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, 3, E.INVALID_TXN_STATE),
    ],
)
def test_offsets_are_refused_in_words_that_producers_know(broker, refusal, version, code):
    """Fails when a producer ends because its group's coordinator did not reach the other one."""
    producer = init(broker)
    broker.coordinators.refusal = refusal
    assert commit_offset(broker, producer, version) == code
    broker.coordinators.refusal = None
    assert commit_offset(broker, producer, 5) == E.NONE


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_offsets_of_a_topic_that_goes_while_it_is_verified_are_refused(broker, is_made_anew):
    """Fails when a later topic of the name is read from an offset of its predecessor."""
    producer = init(broker)
    broker.coordinators.holds = True
    exchange = begin_offset_commit(broker, producer, 5)
    broker.cluster.ask(DELETE_TOPICS, 5, topic_names=["orders"], timeout_ms=1000)
    if is_made_anew:
        broker.create()
    broker.coordinators.release()
    assert offset_committed(broker, exchange, 5) == E.UNKNOWN_TOPIC_OR_PARTITION
    fetched = broker.context.groups.fetch_offsets("g", None, -1, require_stable=True)
    assert not fetched.unstable


def test_offsets_of_older_producers_may_go_unverified(broker):
    """Fails when the setting that says so holds for records only."""
    producer = init(broker)
    assert commit_offset(broker, producer, 4) == E.TRANSACTION_ABORTABLE
    leave_unverified(broker)
    assert commit_offset(broker, producer, 4) == E.NONE
    assert produce_codes(broker, producer, 12, [0]) == [E.NONE]
    assert broker.world.state() == "ONGOING", "who adds by writing is always asked about"


def leave_unverified(broker):
    name = "transaction.partition.verification.enable"
    config = {"name": name, "config_operation": 0, "value": "false"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    broker.cluster.ask(44, 1, resources=[resource])


@pytest.mark.parametrize(
    ("producer", "code"),
    [
        ((-1, -1), E.INVALID_PRODUCER_ID_MAPPING),
        ((-(2**63), 0), E.INVALID_PRODUCER_ID_MAPPING),
        ((5, -1), E.INVALID_PRODUCER_EPOCH),
        ((5, -(2**15)), E.INVALID_PRODUCER_EPOCH),
        ((2**63 - 1, 2**15 - 1), E.NONE),
    ],
)
def test_offsets_of_no_producer_are_refused(broker, producer, code):
    """Fails when the offsets of a transaction get into the log that nobody can ever end."""
    leave_unverified(broker)
    assert commit_offset(broker, ProducerIdAndEpoch(*producer), 3) == code


@pytest.mark.parametrize("patience_ms", [60, 120])
def test_a_first_write_waits_for_the_end_of_the_transaction_before(broker, patience_ms):
    """Fails when a producer is sent away, to come back seconds later, because it was quicker than
    the markers of its last transaction; or when it waits for ever."""
    before = init(broker)
    assert broker.produce(records(before), version=12, txn="t").error_code == E.NONE
    broker.world.leaders.holds = True
    ended = broker.world.end(who(before), version=2)
    write = broker.send_produce(records(ended.producer), version=12, txn="t")
    broker.timer.advance_clock(patience_ms)
    asked = broker.log().producers
    asked.complete(parse_header(abort_marker(ended.producer), 0), True, 0)
    broker.world.leaders.release()
    assert broker.world.state() == "COMPLETE_COMMIT"
    broker.timer.advance_clock(20)
    code = E.NONE if patience_ms < 100 else E.CONCURRENT_TRANSACTIONS
    assert broker.produced(write, 12).error_code == code


def test_a_question_that_raises_as_it_is_asked_again_is_answered(broker):
    """Fails when a producer is never answered, and its connection is silent for good."""
    before = init(broker)
    broker.produce(records(before), version=12, txn="t")
    broker.world.leaders.holds = True
    ended = broker.world.end(who(before), version=2)
    write = broker.send_produce(records(ended.producer), version=12, txn="t")
    broker.coordinators.raises = KeyError("ours")
    broker.timer.advance_clock(20)
    assert broker.produced(write, 12).error_code == E.UNKNOWN_SERVER_ERROR
    broker.coordinators.raises = None
    broker.world.leaders.release()
    again = broker.produce(records(ended.producer), version=12, txn="t", partition=1)
    assert again.error_code == E.NONE


def test_a_producer_that_adds_its_partitions_itself_is_answered_at_once(broker):
    """Fails when a producer of the older protocol waits for what its next request is about."""
    before = init(broker)
    add(broker, 3, before, 0)
    broker.produce(records(before), version=11, txn="t")
    broker.world.leaders.holds = True
    broker.world.end(who(before))
    answer = broker.produce(records(before, 1), version=11, txn="t", partition=1)
    assert answer.error_code == E.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "unknown"])
@pytest.mark.parametrize("version", [3, 4])
def test_many_partitions_are_added_while_others_are_served(broker, version, is_there):
    """A transaction of 50 000 partitions held up everybody for a tenth of a second."""
    count = 6 * SLICE_ENTRIES + 1
    cluster = broker.cluster
    if is_there:
        broker.world.log.max_bytes = 1 << 20
        partitions = tuple(PartitionImage(each, 1, 0, 0, (1,), (1,)) for each in range(count))
        many = TopicImage("many", UUID(int=7), partitions)
        cluster.cache.image = cluster.cache.image.with_topics([many])
    late = LateBackground()
    cluster.replace(background=late)
    producer = init(broker)
    topics = [{"name": "many", "partitions": list(range(count))}]
    older = {f"v3_and_below_{key}": value for key, value in identity(producer).items()}
    fields = {**older, "v3_and_below_topics": topics}
    if version >= 4:
        fields = {"transactions": [{**identity(producer), "verify_only": False, "topics": topics}]}
    exchange = cluster.exchange(ADD, version, messages.encode_request(ADD, version, fields))
    cluster.dispatcher().handle_frame(exchange)
    assert run(late, exchange) > 2 * 6
    code = E.NONE if is_there else E.UNKNOWN_TOPIC_OR_PARTITION
    answer = cluster.answer(exchange, ADD, version)
    (topic,) = (
        answer.results_by_transaction[0].topic_results
        if version >= 4
        else answer.results_by_topic_v3_and_below
    )
    assert [each.partition_index for each in topic.results_by_partition] == list(range(count))
    assert {each.partition_error_code for each in topic.results_by_partition} == {code}
    assert len(broker.world.value().partitions or ()) == (count if is_there else 0)


def identity(producer):
    return {
        "transactional_id": "t",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def test_only_a_living_clock_is_waited_on(broker):
    """Fails when a test that holds the clock has to move it for every transaction."""
    broker.living.keeps_pace = False
    before = init(broker)
    broker.produce(records(before), version=12, txn="t")
    broker.world.leaders.holds = True
    ended = broker.world.end(who(before), version=2)
    answer = broker.produce(records(ended.producer), version=12, txn="t", partition=1)
    assert answer.error_code == E.CONCURRENT_TRANSACTIONS
