"""The answers of the transaction coordinator, state by state."""

import pytest
from tests.unit.coordinator.transactional.transactions import (
    ABORT,
    BILLS,
    COMMIT,
    ORDERS,
    TransactionWorld,
    raised,
)

from odradek.coordinator.records.record import CoordinatorRecord
from odradek.coordinator.records.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
)
from odradek.coordinator.transactions.markers import RETRY_MS, MarkerSender
from odradek.coordinator.transactions.requests import (
    EndTxnRequest,
    ProducerIdAndEpoch,
    TransactionFilter,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression

E = ErrorCode
LAST_EPOCH = 0x7FFF - 1
REFUSALS = [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER]


@pytest.fixture
def world():
    return TransactionWorld()


def put(world, state, epoch=5, name="t", producer_id=7, **fields):
    """Stores where an id stands, as if it had come there."""
    is_open = state not in (TransactionState.EMPTY,)
    value = TransactionValue(
        producer_id, epoch, 60_000, state, () if is_open else None, world.clock.wall_ms(), -1
    )
    if state in (
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    ):
        fields = {"partitions": (ORDERS,), "start_timestamp_ms": world.clock.wall_ms(), **fields}
    shard = world.runtime.shard(name)
    shard.replay(CoordinatorRecord(TransactionKey(name), value._replace(**fields)), -1)
    return ProducerIdAndEpoch(producer_id, epoch)


# Taking an id over


def test_an_id_gets_a_producer_id_and_the_next_epoch_each_time(world):
    """Fails when two producers of one id could not be told apart."""
    first, second = world.producer(), world.producer()
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    assert first.producer_epoch == 0


def test_an_open_transaction_is_aborted_before_the_id_is_handed_on(world):
    """Fails when a new producer inherits an open transaction, or the old one may go on."""
    old = world.producer()
    assert world.add(old) is E.NONE
    assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
    assert world.state() == "COMPLETE_ABORT"
    new = world.producer()
    assert new.producer_epoch == old.producer_epoch + 2
    assert world.add(old) is E.PRODUCER_FENCED
    assert world.end(old).error_code is E.PRODUCER_FENCED
    ((partition, marker),) = world.leaders.written
    assert (partition, marker.producer_epoch, marker.result) == (ORDERS, 1, ABORT)


def test_with_version_1_fencing_raises_the_epoch_as_well():
    """Fails when zombies of older clients are not kept out of the partitions."""
    world = TransactionWorld(version=1)
    old = world.producer()
    world.add(old)
    assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
    assert world.leaders.written[0][1].producer_epoch == old.producer_epoch + 1
    assert world.producer().producer_epoch == old.producer_epoch + 2


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_must_be_allowed(world, timeout_ms):
    """Fails when transactions could stay open for longer than the operator allows."""
    assert world.init(timeout_ms=timeout_ms).error_code is E.INVALID_TRANSACTION_TIMEOUT


def test_names_must_not_be_empty(world):
    """Fails when an empty id is taken for one."""
    producer = ProducerIdAndEpoch(1, 0)
    assert world.init("").error_code is E.INVALID_REQUEST
    assert world.add(producer, name="") is E.INVALID_REQUEST
    assert world.end(producer, name="").error_code is E.INVALID_REQUEST


def test_a_producer_goes_on_after_an_error_and_may_ask_twice(world):
    """Fails when a producer that lost an answer is fenced by itself (KIP-360)."""
    producer = world.producer()
    after = world.init(expected=producer).producer
    assert after == raised(producer)
    assert world.init(expected=producer).producer == after
    assert world.init(expected=raised(producer, -1)).error_code is E.PRODUCER_FENCED
    other = ProducerIdAndEpoch(producer.producer_id + 99, 0)
    assert world.init(expected=other).error_code is E.PRODUCER_FENCED


def test_used_up_epochs_bring_another_producer_id(world):
    """Fails when epochs run over, or a producer that asks again is fenced."""
    old = put(world, TransactionState.EMPTY, LAST_EPOCH)
    new = world.init(expected=old).producer
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0
    assert world.init(expected=old).producer == new


def test_a_refused_producer_id_is_told(world):
    """Fails when a request hangs because no producer id could be had."""
    world.id_refusal = BrokerError(E.COORDINATOR_NOT_AVAILABLE)
    assert world.init().error_code is E.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(BrokerError):
        world.value()


# Partitions


def test_partitions_are_added_once(world):
    """Fails when a partition would be marked twice, or a repeated request costs a write."""
    producer = world.producer()
    assert world.add(producer, ORDERS) is E.NONE
    appends = world.log.appends
    assert world.add(producer, ORDERS) is E.NONE
    assert world.log.appends == appends
    assert world.add(producer, BILLS, ORDERS) is E.NONE
    assert world.value().partitions == (ORDERS, BILLS)


@pytest.mark.parametrize(
    ("state", "epoch", "code"),
    [
        (TransactionState.EMPTY, 5, E.NONE),
        (TransactionState.ONGOING, 5, E.NONE),
        (TransactionState.COMPLETE_COMMIT, 5, E.NONE),
        (TransactionState.COMPLETE_ABORT, 5, E.NONE),
        (TransactionState.PREPARE_COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
        (TransactionState.PREPARE_ABORT, 5, E.CONCURRENT_TRANSACTIONS),
        (TransactionState.ONGOING, 4, E.PRODUCER_FENCED),
        (TransactionState.ONGOING, 6, E.PRODUCER_FENCED),
    ],
)
def test_who_may_add_partitions(world, state, epoch, code):
    """Fails when a partition is added for a producer that does not have the id any more."""
    producer = put(world, state)._replace(producer_epoch=epoch)
    assert world.add(producer, ORDERS, BILLS) is code


def test_unknown_ids_and_foreign_producers_are_refused(world):
    """Fails when a producer speaks for an id that is not its own."""
    stranger = ProducerIdAndEpoch(99, 5)
    assert world.add(stranger) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.end(stranger).error_code is E.INVALID_PRODUCER_ID_MAPPING
    put(world, TransactionState.ONGOING)
    assert world.add(stranger) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.end(stranger).error_code is E.INVALID_PRODUCER_ID_MAPPING
    assert world.end(stranger, version=2).error_code is E.INVALID_PRODUCER_ID_MAPPING


def test_verification_tells_which_partitions_belong_to_the_transaction(world):
    """Fails when a late write of an ended transaction is let in."""
    producer = put(world, TransactionState.ONGOING)
    verify = world.coordinator.verify_partitions
    assert verify("t", producer, [ORDERS, BILLS]) == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert verify("t", raised(producer), [ORDERS]) == [E.PRODUCER_FENCED]
    assert verify("other", producer, [ORDERS]) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert verify("", producer, [ORDERS]) == [E.INVALID_REQUEST]
    put(world, TransactionState.PREPARE_COMMIT)
    assert verify("t", producer, [ORDERS]) == [E.CONCURRENT_TRANSACTIONS]


# The end

VERSION_1 = [
    ("EMPTY", COMMIT, E.INVALID_TXN_STATE),
    ("EMPTY", ABORT, E.INVALID_TXN_STATE),
    ("ONGOING", COMMIT, E.NONE),
    ("ONGOING", ABORT, E.NONE),
    ("PREPARE_COMMIT", COMMIT, E.CONCURRENT_TRANSACTIONS),
    ("PREPARE_COMMIT", ABORT, E.INVALID_TXN_STATE),
    ("PREPARE_ABORT", COMMIT, E.INVALID_TXN_STATE),
    ("PREPARE_ABORT", ABORT, E.CONCURRENT_TRANSACTIONS),
    ("COMPLETE_COMMIT", COMMIT, E.NONE),
    ("COMPLETE_COMMIT", ABORT, E.INVALID_TXN_STATE),
    ("COMPLETE_ABORT", COMMIT, E.INVALID_TXN_STATE),
    ("COMPLETE_ABORT", ABORT, E.NONE),
]


@pytest.mark.parametrize(("state", "result", "code"), VERSION_1)
def test_ends_of_version_1(world, state, result, code):
    """Fails when an end of an older client gets another answer than Kafka's."""
    producer = put(world, TransactionState[state])
    answer = world.end(producer, result)
    assert answer.error_code is code
    assert answer.producer == (-1, -1)
    assert world.end(raised(producer), result).error_code is E.PRODUCER_FENCED
    assert world.end(raised(producer, -1), result).error_code is E.PRODUCER_FENCED


# state, what is asked, the answer to who names the epoch before, and to who names the current one.
VERSION_2 = [
    ("EMPTY", ABORT, E.PRODUCER_FENCED, E.NONE),
    ("EMPTY", COMMIT, E.PRODUCER_FENCED, E.INVALID_TXN_STATE),
    ("ONGOING", ABORT, E.PRODUCER_FENCED, E.NONE),
    ("ONGOING", COMMIT, E.PRODUCER_FENCED, E.NONE),
    ("PREPARE_COMMIT", COMMIT, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED),
    ("PREPARE_COMMIT", ABORT, E.INVALID_TXN_STATE, E.PRODUCER_FENCED),
    ("PREPARE_ABORT", ABORT, E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED),
    ("PREPARE_ABORT", COMMIT, E.INVALID_TXN_STATE, E.PRODUCER_FENCED),
    ("COMPLETE_ABORT", ABORT, E.NONE, E.NONE),
    ("COMPLETE_ABORT", COMMIT, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    ("COMPLETE_COMMIT", ABORT, E.INVALID_TXN_STATE, E.NONE),
    ("COMPLETE_COMMIT", COMMIT, E.NONE, E.INVALID_TXN_STATE),
]


@pytest.mark.parametrize(("state", "result", "retry", "current"), VERSION_2)
def test_ends_of_version_2(world, state, result, retry, current):
    """Fails when a repeated end is taken for the next one's, or the other way round (KIP-890)."""
    producer = put(world, TransactionState[state])
    world.leaders.holds = True
    before = world.end(raised(producer, -1), result, version=2)
    assert before.error_code is retry
    if retry is E.NONE:
        assert before.producer == producer
    now = world.end(producer, result, version=2)
    assert now.error_code is current
    if current is E.NONE:
        assert now.producer == raised(producer)


def test_every_end_of_version_2_raises_the_epoch(world):
    """Fails when a late write of one transaction could get into the next."""
    producer = world.producer()
    for _ in range(3):
        world.add(producer, version=2)
        after = world.end(producer, version=2).producer
        assert after == raised(producer)
        assert world.end(producer, version=2).producer == after
        producer = after
    assert [marker.producer_epoch for _, marker in world.leaders.written] == [1, 2, 3]


def test_an_end_that_uses_up_the_epochs_brings_another_producer_id(world):
    """Fails when the last epoch of a producer id ends its transactional id."""
    producer = put(world, TransactionState.ONGOING, LAST_EPOCH)
    after = world.end(producer, version=2).producer
    assert after.producer_id != producer.producer_id
    assert after.producer_epoch == 0
    assert world.end(producer, version=2).producer == after
    marker = world.leaders.written[0][1]
    assert (marker.producer_id, marker.producer_epoch) == (producer.producer_id, LAST_EPOCH + 1)
    assert world.add(after, version=2) is E.NONE


def assert_it_goes_on_with_another_id(world, old, new):
    """The last epoch was written by the markers alone, and whoever is late is fenced again."""
    assert (new.producer_id != old.producer_id, new.producer_epoch) == (True, 0)
    marker = world.leaders.written[-1][1]
    assert (marker.producer_id, marker.producer_epoch) == (old.producer_id, LAST_EPOCH + 1)
    assert world.add(new, version=2) is E.NONE
    assert world.end(new, version=2).producer == raised(new)


@pytest.mark.parametrize("asks", ["EndTxn", "InitProducerId"])
def test_a_time_out_that_uses_up_the_epochs_brings_another_producer_id(world, asks):
    """Fails when its producer is given the last epoch, in which nobody can fence it: after the next
    time-out half a transaction would be committed. Apache Kafka 4.3 answers with another producer
    id and epoch 0.
    """
    old = put(world, TransactionState.ONGOING, LAST_EPOCH)
    world.advance(60_001)
    world.coordinator.abort_timed_out()
    assert world.state() == "COMPLETE_ABORT"
    if asks == "EndTxn":
        new = world.end(old, ABORT, version=2)
    else:
        new = world.init(expected=old)
    assert new.error_code is E.NONE
    assert_it_goes_on_with_another_id(world, old, new.producer)


def test_who_takes_over_an_id_whose_epochs_are_used_up_gets_another(world):
    """Fails as above, when a successor ends the transaction."""
    old = put(world, TransactionState.ONGOING, LAST_EPOCH)
    assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
    new = world.init().producer
    assert new.producer_id != old.producer_id
    assert world.end(old, COMMIT, version=2).error_code is E.INVALID_PRODUCER_ID_MAPPING
    assert world.add(new, version=2) is E.NONE


def test_a_time_out_without_a_producer_id_is_due_again(world):
    """Fails when a transaction is open for ever because no id could be had for a moment."""
    put(world, TransactionState.ONGOING, LAST_EPOCH)
    world.id_refusal = BrokerError(E.COORDINATOR_NOT_AVAILABLE)
    world.advance(60_001)
    world.coordinator.abort_timed_out()
    assert world.state() == "ONGOING"
    world.id_refusal = None
    world.coordinator.abort_timed_out()
    assert world.state() == "COMPLETE_ABORT"


def test_a_decision_is_answered_before_its_markers_are_written(world):
    """Fails when a slow leader holds up EndTxn, or the next transaction begins too early."""
    producer = world.producer()
    world.add(producer, ORDERS, BILLS)
    world.leaders.holds = True
    assert world.end(producer).error_code is E.NONE
    assert world.state() == "PREPARE_COMMIT"
    (waiting,) = world.markers.waiting()
    assert waiting.missing == "markers in orders-0, bills-3"
    assert world.add(producer) is E.CONCURRENT_TRANSACTIONS
    assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
    world.leaders.release()
    assert world.state() == "COMPLETE_COMMIT"
    assert not world.markers.waiting()


@pytest.mark.parametrize(
    "code",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.KAFKA_STORAGE_ERROR,
        E.REQUEST_TIMED_OUT,
    ],
)
def test_markers_are_sent_until_they_are_written(world, code):
    """Fails when one failure leaves a partition's last stable offset where it is for ever."""
    producer = world.producer()
    world.add(producer, ORDERS, BILLS)
    world.leaders.refusals[BILLS] = [code, code]
    world.end(producer)
    assert [each for each, _ in world.leaders.written] == [ORDERS]
    world.advance(100)
    assert world.state() == "PREPARE_COMMIT"
    world.advance(100)
    assert [each for each, _ in world.leaders.written] == [ORDERS, BILLS]
    assert world.state() == "COMPLETE_COMMIT"
    assert not world.markers.waiting()


def test_a_leader_that_stays_away_is_told_of_once(world, caplog):
    """Fails when a partition without a leader fills the log of its coordinator."""
    caplog.set_level("INFO")
    producer = world.producer()
    world.add(producer, BILLS)
    world.leaders.refusals[BILLS] = [E.NOT_LEADER_OR_FOLLOWER] * 5
    world.end(producer)
    for _ in range(5):
        world.advance(100)
    assert world.state() == "COMPLETE_COMMIT"
    assert sum("NOT_LEADER_OR_FOLLOWER" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize("code", [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_PRODUCER_EPOCH])
def test_a_partition_that_needs_no_marker_holds_nothing_up(world, code):
    """Fails when a deleted topic keeps its transactional id from ever beginning again."""
    producer = world.producer()
    world.add(producer, ORDERS, BILLS)
    world.leaders.refusals[BILLS] = [code]
    world.end(producer)
    assert world.state() == "COMPLETE_COMMIT"


def test_leaders_answer_after_the_coordinator_has_gone(world):
    """Fails when a late answer reaches a coordinator that was replaced."""
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = True
    world.end(producer)
    world.restart()
    assert len(world.leaders.held) == 2
    world.leaders.release()
    assert world.state() == "COMPLETE_COMMIT"
    assert [marker.coordinator_epoch for _, marker in world.leaders.written] == [0, 1]


# Restarts


@pytest.mark.parametrize("version", [0, 2])
def test_the_log_brings_back_every_state(version):
    """Fails when a restart forgets where an id stood, or does not go on with what was decided."""
    world = TransactionWorld(version=version)
    producers = {name: world.producer(name) for name in ("empty", "open", "done", "going")}
    for name in ("open", "done", "going"):
        world.add(producers[name], name=name, version=version)
    world.end(producers["done"], name="done", version=version)
    world.leaders.holds = True
    world.end(producers["going"], ABORT, name="going", version=version)
    before = {name: world.value(name) for name in producers}
    world.leaders.holds = False
    world.restart()
    for name in ("empty", "open", "done"):
        # The two that are not in the log, or not in that of version 0.
        unstored = {"last_producer_epoch": -1, "previous_producer_id": -1}
        assert world.value(name)._replace(**unstored) == before[name]._replace(**unstored)
    assert world.state("going") == "COMPLETE_ABORT"
    assert world.end(producers["open"], name="open", version=version).error_code is E.NONE


def test_impossible_records_do_not_hold_an_id_up(world):
    """Fails when a foreign record makes a transactional id unusable."""
    put(world, TransactionState.PREPARE_EPOCH_FENCE, partitions=(ORDERS,), start_timestamp_ms=0)
    put(world, TransactionState.DEAD, name="dead")
    assert world.state() == "ONGOING"
    world.coordinator.abort_timed_out()
    assert world.state() == "COMPLETE_ABORT"
    assert world.producer("dead").producer_epoch == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"v"),
        (b"\x00\x00", b"v"),
        (b"\x00\x09\x00\x01t", b"v"),
        (b"\x00\x00\x00\x01t", b""),
        (b"\x00\x00\x00\x01t", b"\x00\x09"),
        (b"\x00\x00\x00\x01t", b"\x00\x01" + bytes(14) + b"\x63" + bytes(20)),
        (b"\x00\x00\x00\x01t", b"\xff" * 60),
        (b"\x00\x00\x00\x01t", b"\x00\x00" + bytes(14) + b"\x01" + b"\x7f" * 20),
        (b"\x00\x00\xff\xff", None),
    ],
)
def test_a_record_that_nobody_understands_is_passed_over(world, caplog, key, value):
    """Fails when one foreign or broken record keeps a partition of ids from being loaded."""
    before, after = world.producer("before"), None
    builder = RecordBatchBuilder()
    builder.append(0, key, value)
    world.log.append(0, bytearray(builder.build()), lambda _error: None)
    after = world.producer("after")
    caplog.clear()
    world.restart()
    assert world.add(before, name="before") is E.NONE
    assert world.add(after, name="after") is E.NONE
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith("partition 0, offset 1 is skipped: ")


def test_a_batch_that_cannot_be_read_is_skipped(world, caplog):
    """Fails when a damaged batch keeps a partition of ids from being loaded."""
    before = world.producer("before")
    builder = RecordBatchBuilder(Compression.GZIP)
    builder.append(0, b"k" * 100, b"v" * 100)
    data = bytearray(builder.build())
    data[-30:] = bytes(30)
    world.log.append(0, data, lambda _error: None)
    after = world.producer("after")
    world.restart()
    assert world.add(before, name="before") is E.NONE
    assert world.add(after, name="after") is E.NONE
    assert "are skipped" in caplog.text


# Time


def test_a_transaction_that_is_open_for_too_long_is_aborted(world):
    """Fails when a dead producer holds up the readers of its partitions for ever."""
    producer = world.producer(timeout_ms=5_000)
    world.add(producer)
    world.advance(5_000)
    world.coordinator.abort_timed_out()
    assert world.state() == "ONGOING"
    world.advance(1)
    world.coordinator.abort_timed_out()
    assert world.state() == "COMPLETE_ABORT"
    assert world.end(producer, version=2).error_code in (E.PRODUCER_FENCED, E.INVALID_TXN_STATE)


def test_silent_ids_are_forgotten_unless_they_are_in_use():
    """Fails when ids are kept for ever, or one with an open transaction is forgotten."""
    world = TransactionWorld(transactional_id_expiration_ms=1_000)
    world.add(world.producer("open"), name="open")
    world.producer("silent")
    world.advance(1_000)
    world.producer("used")
    world.coordinator.expire_ids()
    assert world.state("open") == "ONGOING"
    assert world.state("used") == "EMPTY"
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.value("silent")
    world.restart()
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.value("silent")


# The log


def test_nothing_changes_until_it_is_committed(world):
    """Fails when an answer leaves, or a marker is written, for what could still be lost."""
    producer = world.producer()
    world.add(producer)
    world.log.holds = True
    assert world.end(producer) is None
    assert world.state() == "ONGOING"
    assert not world.leaders.written
    world.log.holds = False
    world.log.commit()
    assert world.state() == "COMPLETE_COMMIT"
    assert len(world.leaders.written) == 1


def test_a_late_answer_does_not_keep_the_markers_back(world):
    """Fails when a decision that is committed after its client's time-out is never carried out."""
    producer = world.producer()
    world.add(producer)
    answers = []
    world.log.holds = True
    world.coordinator.end(EndTxnRequest("t", producer, COMMIT, 0), answers.append)
    world.advance(5_000)
    assert [each.error_code for each in answers] == [E.COORDINATOR_NOT_AVAILABLE]
    world.log.holds = False
    world.log.commit()
    assert world.state() == "COMPLETE_COMMIT"
    assert len(world.leaders.written) == 1


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failures_of_the_log_are_told_as_clients_know_them(world, refusal, told):
    """Fails when a client is told what it takes for final though it may try again."""
    producer = world.producer()
    world.log.refusal = refusal
    assert world.add(producer) is told
    assert world.init().error_code is told
    world.log.refusal = None
    assert world.state() == "EMPTY"
    assert world.add(producer) is E.NONE


def test_while_a_change_is_being_written_nobody_waits_for_his_turn(world):
    """Fails when a producer that says its end again is never answered, and all that come later
    wait behind it."""
    producer = world.producer()
    world.add(producer)
    world.log.holds = True
    world.coordinator.end(EndTxnRequest("t", producer, COMMIT, 0), lambda _answer: None)
    for _ in range(2):
        assert world.end(producer).error_code is E.CONCURRENT_TRANSACTIONS
        assert world.add(producer, BILLS) is E.CONCURRENT_TRANSACTIONS
        assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
        assert world.end(raised(producer)).error_code is E.PRODUCER_FENCED
        assert world.add(raised(producer)) is E.PRODUCER_FENCED
        world.advance(5_000)
    world.log.holds = False
    world.log.commit()
    assert world.state() == "COMPLETE_COMMIT"
    assert world.end(producer).error_code is E.NONE


def test_an_id_that_is_being_made_is_not_made_twice(world):
    """Fails when two producers that begin at once both get an id of their own."""
    world.log.holds = True
    assert world.init() is None
    assert world.init().error_code is E.CONCURRENT_TRANSACTIONS
    world.log.holds = False
    world.log.commit()
    assert world.state() == "EMPTY"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_the_end_of_a_transaction_is_written_until_the_log_takes_it(world, caplog, refusal):
    """Fails when one refusal leaves an id in PREPARE_COMMIT, and its producer without a next
    transaction, for ever."""
    caplog.set_level("INFO")
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = True
    world.end(producer)
    world.log.refusal = refusal
    world.leaders.release()
    for _ in range(3):
        assert world.state() == "PREPARE_COMMIT"
        assert world.add(producer) is E.CONCURRENT_TRANSACTIONS
        (waiting,) = world.markers.waiting()
        assert waiting.missing == "the log of the coordinator to say that t has ended"
        world.advance(100)
    world.log.refusal = None
    world.advance(100)
    assert world.state() == "COMPLETE_COMMIT"
    assert len(world.leaders.written) == 1, "what is marked is not marked again"
    assert not world.markers.waiting()
    assert sum(refusal.name in each.getMessage() for each in caplog.records) == 1


def test_an_end_that_raises_before_it_is_appended_is_tried_again(world):
    """Fails when one mistake of ours leaves an id in PREPARE_COMMIT for ever."""
    asked = []

    def complete(transactional_id, on_committed):
        asked.append(transactional_id)
        if len(asked) == 1:
            raise ZeroDivisionError
        on_committed(None)

    sender = MarkerSender(0, world.leaders, world.markers, complete)
    state = TransactionState.PREPARE_COMMIT
    with pytest.raises(ZeroDivisionError):
        sender.send("t", TransactionValue(7, 5, 60_000, state, (), world.clock.wall_ms(), -1))
    assert [each.missing for each in world.markers.waiting()] == [
        "the log of the coordinator to say that t has ended"
    ]
    world.advance(RETRY_MS)
    assert asked == ["t", "t"]
    assert not world.markers.waiting()


def test_the_end_of_a_transaction_may_take_its_time(world):
    """Fails when an end that is written late is written twice, or ends the next transaction."""
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = True
    world.end(producer)
    world.log.holds = True
    world.leaders.release()
    appends = world.log.appends
    world.advance(60_000)
    assert world.log.appends == appends
    assert world.state() == "PREPARE_COMMIT"
    world.log.holds = False
    world.log.lose()
    world.advance(100)
    assert world.state() == "COMPLETE_COMMIT"
    assert not world.markers.waiting()


def test_a_coordinator_that_lost_its_log_ends_nothing_more(world):
    """Fails when two brokers write the same end."""
    producer = world.producer()
    world.add(producer)
    world.leaders.holds = True
    world.end(producer)
    world.log.refusal = E.NOT_LEADER_OR_FOLLOWER
    world.leaders.release()
    world.runtime.shutdown()
    world.log.refusal = None
    appends = world.log.appends
    world.advance(1_000)
    assert world.log.appends == appends
    assert not world.markers.waiting()


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_time_out_that_is_refused_is_due_again(world, refusal):
    """Fails when a dead producer holds up the readers of its partitions for ever."""
    world.add(world.producer(timeout_ms=5_000))
    world.advance(5_001)
    world.log.refusal = refusal
    world.coordinator.abort_timed_out()
    assert world.state() == "ONGOING"
    world.log.refusal = None
    world.coordinator.abort_timed_out()
    assert world.state() == "COMPLETE_ABORT"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_an_expiry_that_is_refused_is_due_again(refusal):
    """Fails when a silent id is kept for good, or is gone here and back after a restart."""
    world = TransactionWorld(transactional_id_expiration_ms=1_000)
    world.producer("silent")
    world.advance(1_000)
    world.log.refusal = refusal
    world.coordinator.expire_ids()
    assert world.state("silent") == "EMPTY"
    world.log.refusal = None
    world.coordinator.expire_ids()
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.value("silent")


def test_upkeep_does_not_pile_up_while_a_change_is_being_written():
    """Fails when what is due again is remembered every time, as long as replicas are slow."""
    world = TransactionWorld(transactional_id_expiration_ms=1_000)
    world.add(world.producer("open", timeout_ms=1_000), name="open")
    world.producer("silent")
    world.advance(1_001)
    world.log.holds = True
    for _ in range(3):
        world.coordinator.abort_timed_out()
        world.coordinator.expire_ids()
    assert len(world.log.held) == 2
    world.log.holds = False
    world.log.commit()
    assert world.state("open") == "COMPLETE_ABORT"
    with pytest.raises(BrokerError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        world.value("silent")


def test_without_the_topic_nobody_coordinates():
    """Fails when a request for an id is answered before there is anything to keep it in."""
    world = TransactionWorld(partitions=None)
    producer = ProducerIdAndEpoch(1, 0)
    assert world.init().error_code is E.NOT_COORDINATOR
    assert world.add(producer) is E.NOT_COORDINATOR
    assert world.end(producer).error_code is E.NOT_COORDINATOR
    assert world.coordinator.verify_partitions("t", producer, [ORDERS]) == [E.NOT_COORDINATOR]


# Administration


def test_lists_are_filtered(world):
    """Fails when a tool sees ids that it did not ask for."""
    put(world, TransactionState.EMPTY, name="a-1", producer_id=1)
    put(world, TransactionState.ONGOING, name="a-2", producer_id=2)
    world.advance(10)

    def names(pattern=None, **fields):
        found = world.coordinator.list_transactions(TransactionFilter(**fields), pattern)
        return {each.transactional_id for each in found}

    assert names() == {"a-1", "a-2"}
    assert names(states=frozenset({TransactionState.ONGOING}), has_states=True) == {"a-2"}
    assert names(has_states=True) == set()
    assert names(producer_ids=frozenset({1})) == {"a-1"}
    assert names(duration_ms=9, producer_ids=frozenset({2})) == {"a-2"}
    assert names(duration_ms=10, producer_ids=frozenset({2})) == set()
    assert names("a-.*") == {"a-1", "a-2"}
    assert names("a-[2-9]") == {"a-2"}
    assert names("a") == set()
    with pytest.raises(BrokerError, match="INVALID_REGULAR_EXPRESSION"):
        names("(")
