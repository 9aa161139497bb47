"""The window of five batches: retries, gaps, epochs, and what a failed write leaves."""

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin
from odradek.records.batch import BatchHeader
from odradek.storage.producers.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from odradek.storage.producers.producer_state import MAX_SEQUENCE, ProducerStateManager

E = ErrorCode
CLIENT = AppendOrigin.CLIENT
COORDINATOR = AppendOrigin.COORDINATOR
REPLICATION = AppendOrigin.REPLICATION
TRANSACTIONAL = 0x10
CONTROL = 0x20


def header(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    producer_id: int = 9,
    attributes: int = 0,
    timestamp: int = 1000,
) -> BatchHeader:
    return BatchHeader(
        0, offset, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer_id, epoch,
        sequence, count,
    )  # fmt: skip


@pytest.fixture
def producers() -> ProducerStateManager:
    return ProducerStateManager("orders-0")


def take(producers: ProducerStateManager, *headers: BatchHeader) -> None:
    for one in headers:
        assert producers.check(one, CLIENT) is None
        producers.update(one)
    producers.commit()


def refused(producers: ProducerStateManager, one: BatchHeader) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        producers.check(one, CLIENT)
    return caught.value.code


def test_the_last_five_batches_are_known_again(producers):
    """A retry would be written twice."""
    take(producers, *[header(n * 2, 2, offset=n * 2) for n in range(6)])
    for n in range(1, 6):
        duplicate = producers.check(header(n * 2, 2), CLIENT)
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset) == (n * 2, n * 2 + 1)


def test_what_left_the_window_is_out_of_order(producers):
    """An old retry would be appended behind newer records."""
    take(producers, *[header(n, offset=n) for n in range(6)])
    assert refused(producers, header(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gaps_and_overlaps_are_refused(producers):
    """A lost batch would go unnoticed, or a record be written twice."""
    take(producers, header(0, 3))
    assert refused(producers, header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, header(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, header(2, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(producers, header(3))


def test_sequences_wrap(producers):
    """A producer would stop for ever after 2^31 records."""
    take(producers, header(MAX_SEQUENCE - 1, 2), header(0, 1, offset=2))
    take(producers, header(1, offset=3))


def test_a_batch_may_cross_the_wrap(producers):
    """The batch that wraps would make its successor out of order."""
    take(producers, header(MAX_SEQUENCE - 1, 4), header(2, 1, offset=4))
    duplicate = producers.check(header(MAX_SEQUENCE - 1, 4), CLIENT)
    assert duplicate is not None


def test_epochs_only_rise_and_begin_at_zero(producers):
    """A zombie could write, or the first batch of an epoch be lost."""
    take(producers, header(0, epoch=3))
    assert refused(producers, header(1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(producers, header(1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(producers, header(0, epoch=4, offset=1))
    assert producers.get(9).batches[0].first_offset == 1


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL])
def test_an_unknown_producer_may_begin_anywhere(producers, attributes):
    """A producer whose state expired, or whose topic was made anew, would be stuck."""
    take(producers, header(5, attributes=attributes))


def test_a_failed_write_is_forgotten(producers):
    """A retry of a batch that was never written would be answered as written."""
    take(producers, header(0))
    producers.update(header(1, offset=1))
    producers.update(header(2, offset=2))
    producers.update(header(0, producer_id=10, offset=3))
    producers.rollback()
    assert producers.get(10) is None
    assert producers.get(9).last_sequence == 0
    take(producers, header(1, offset=1))


def test_a_failed_write_leaves_no_transaction_open(producers):
    """Readers of committed data would wait for ever for a record that is not there."""
    producers.update(header(0, attributes=TRANSACTIONAL, offset=5))
    assert producers.first_unstable_offset == 5
    producers.rollback()
    assert producers.first_unstable_offset == -1


def test_a_transaction_is_undecided_until_its_marker_is_replicated(producers):
    """Readers of committed data would see a transaction that may still be lost."""
    take(producers, header(0, attributes=TRANSACTIONAL, offset=5))
    take(producers, header(0, attributes=TRANSACTIONAL, offset=6, producer_id=10))
    done = producers.complete(header(-1, offset=7, attributes=TRANSACTIONAL | CONTROL), False, 3)
    producers.commit()
    assert (done.first_offset, done.last_offset, done.is_aborted) == (5, 7, True)
    assert producers.last_stable_offset(done) == 6
    assert producers.first_unstable_offset == 5
    producers.on_high_watermark(7)
    assert producers.first_unstable_offset == 5
    producers.on_high_watermark(8)
    assert producers.first_unstable_offset == 6
    assert producers.get(9).coordinator_epoch == 3


def test_a_failed_marker_leaves_the_transaction_open(producers):
    """An aborted transaction would pass for decided although its marker is missing."""
    take(producers, header(0, attributes=TRANSACTIONAL, offset=5))
    producers.complete(header(-1, offset=6, attributes=TRANSACTIONAL | CONTROL), True, 1)
    producers.rollback()
    producers.on_high_watermark(100)
    assert producers.first_unstable_offset == 5


def test_a_log_that_starts_elsewhere_has_no_marker_to_be_replicated(producers):
    """Readers of committed data would wait for a marker that the log does not have any more."""
    take(producers, header(0, attributes=TRANSACTIONAL, offset=5))
    producers.complete(header(-1, offset=6, attributes=TRANSACTIONAL | CONTROL), True, 1)
    producers.commit()
    assert producers.first_unstable_offset == 5
    producers.load([], 100)
    assert producers.first_unstable_offset == -1


def test_silent_producers_are_forgotten_unless_in_a_transaction(producers):
    """Memory would grow with every producer that ever was."""
    take(producers, header(0, timestamp=100))
    take(producers, header(0, timestamp=100, producer_id=10, attributes=TRANSACTIONAL))
    take(producers, header(0, timestamp=900, producer_id=11))
    assert producers.remove_expired(1000, 500) == 1
    assert [state.producer_id for state in producers.active()] == [10, 11]


def test_a_snapshot_brings_back_the_last_batch(producers):
    """After a restart the next batch would be out of order."""
    take(producers, header(MAX_SEQUENCE, 3, offset=20, epoch=4, timestamp=77))
    take(producers, header(0, producer_id=10, offset=23, attributes=TRANSACTIONAL))
    again = ProducerStateManager("orders-0")
    again.load(decode_snapshot(encode_snapshot(producers.active())), 24)
    assert again.first_unstable_offset == 23
    state = again.get(9)
    assert (state.epoch, state.last_sequence, state.last_timestamp) == (4, 1, 77)
    assert again.check(header(MAX_SEQUENCE, 3, epoch=4), CLIENT).first_offset == 20
    assert again.check(header(2, epoch=4), CLIENT) is None


def test_a_broken_snapshot_is_noticed(producers):
    """A flipped bit would become a wrong sequence."""
    take(producers, header(0, 3, offset=20))
    data = encode_snapshot(producers.active())
    for size_bytes in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size_bytes])
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(flipped))


def test_commits_of_a_coordinator_have_no_sequence_and_are_no_duplicates(producers):
    """The second commit of offsets in a transaction would be dropped as a retry of the first."""
    for offset in range(3):
        one = header(-1, offset=offset, attributes=TRANSACTIONAL)
        assert producers.check(one, COORDINATOR) is None
        producers.update(one)
    stale = header(-1, epoch=-1, attributes=TRANSACTIONAL)
    with pytest.raises(BrokerError) as caught:
        producers.check(stale, COORDINATOR)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    again = ProducerStateManager("orders-0")
    again.load(decode_snapshot(encode_snapshot(producers.active())), 3)
    assert again.get(9).last_offset == 2


def test_what_the_leader_has_taken_a_follower_takes(producers):
    """A follower that checks for itself could stop for ever where its leader went on."""
    take(producers, header(4, epoch=3))
    for one in (header(4, epoch=3), header(9, epoch=3), header(7, epoch=1)):
        assert producers.check(one, REPLICATION) is None
    producers.check_marker(header(-1, epoch=1), -1, REPLICATION, 2)


def test_records_outside_of_an_open_transaction_are_refused(producers):
    """They would be hidden with the transaction, and be lost to readers when it aborts."""
    take(producers, header(0, attributes=TRANSACTIONAL))
    assert refused(producers, header(1)) == ErrorCode.INVALID_TXN_STATE
    assert producers.check(header(1, attributes=TRANSACTIONAL), CLIENT) is None


def test_a_replaced_coordinator_cannot_end_a_transaction(producers):
    """A zombie would commit what its successor has aborted."""
    take(producers, header(0, attributes=TRANSACTIONAL))
    end = header(-1, offset=1, attributes=TRANSACTIONAL | CONTROL)
    producers.check_marker(end, 5, COORDINATOR, 0)
    producers.complete(end, False, 5)
    with pytest.raises(BrokerError) as caught:
        producers.check_marker(end, 4, COORDINATOR, 0)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    producers.check_marker(end, 6, COORDINATOR, 0)


@pytest.mark.parametrize(
    ("version", "epoch", "is_taken"),
    [(0, 2, False), (0, 3, True), (1, 3, True), (2, 3, False), (2, 4, True)],
)
def test_the_epoch_of_an_end_marker_by_the_version_of_transactions(
    producers, version, epoch, is_taken
):
    """A marker that comes late would end the producer's next transaction."""
    take(producers, header(0, epoch=3, attributes=TRANSACTIONAL))
    end = header(-1, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
    if is_taken:
        producers.check_marker(end, 0, COORDINATOR, version)
        return
    with pytest.raises(BrokerError) as caught:
        producers.check_marker(end, 0, COORDINATOR, version)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def end(producers, epoch, version=2, *, is_written=True):
    """Writes the end marker of the producer's transaction, unless the disk refuses it."""
    marker = header(-1, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
    producers.check_marker(marker, 0, COORDINATOR, version)
    producers.complete(marker, True, 0)
    if is_written:
        producers.commit()
    else:
        producers.rollback()


def test_a_marker_whose_answer_was_lost_may_be_written_again(producers):
    """A transaction would never be over: its coordinator sends the marker until it is taken."""
    take(producers, header(0, epoch=3, attributes=TRANSACTIONAL))
    end(producers, 4)
    end(producers, 4)
    take(producers, header(0, epoch=4, attributes=TRANSACTIONAL))
    with pytest.raises(BrokerError):
        end(producers, 4)


def test_the_last_epoch_ends_its_own_transaction(producers):
    """A transaction would never be over: no marker can have a higher epoch."""
    last = 0x7FFF
    take(producers, header(0, epoch=last, attributes=TRANSACTIONAL))
    end(producers, last)
    assert producers.first_unstable_offset == 0
    producers.on_high_watermark(1)
    assert producers.first_unstable_offset == -1


def begin(producers, sequence=0, *, epoch=0, producer_id=9, bumps_epochs=False, now_ms=0):
    return producers.begin_verification(producer_id, epoch, sequence, bumps_epochs, now_ms)


def test_what_was_verified_before_a_marker_may_not_be_written_behind_it(producers):
    """A late write would open a transaction that nobody ends: readers would wait for ever."""
    number = begin(producers)
    assert begin(producers) == number, "two writes may wait for the same answer"
    assert producers.is_verification_valid(9, 0, number)
    end(producers, 0, version=0)
    assert not producers.is_verification_valid(9, 0, number)
    again = begin(producers)
    assert again != number
    assert not producers.is_verification_valid(9, 0, number)
    take(producers, header(0, attributes=TRANSACTIONAL))
    assert producers.is_verification_valid(9, 0, again)
    assert not producers.is_verification_valid(9, 1, again + 1)


def test_a_verified_write_of_an_epoch_that_is_over_is_refused_for_its_epoch(producers):
    """INVALID_TXN_STATE would be the end of a producer that only has to learn its new epoch."""
    number = begin(producers)
    end(producers, 1)
    assert producers.is_verification_valid(9, 0, number)
    assert refused(producers, header(0, attributes=TRANSACTIONAL)) is E.INVALID_PRODUCER_EPOCH


def test_a_write_that_was_not_verified_comes_before_those_behind_it(producers):
    """A gap: the producer sends the earlier one again, which is out of order then, or lost."""
    begin(producers, 4)
    begin(producers, 3)
    begin(producers, 5)
    for sequence in (4, 5):
        late = header(sequence, attributes=TRANSACTIONAL)
        assert refused(producers, late) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(producers, *(header(each, attributes=TRANSACTIONAL) for each in (3, 4, 5)))


@pytest.mark.parametrize("bumps_epochs", [False, True])
def test_a_write_that_the_disk_refused_comes_before_those_behind_it(producers, bumps_epochs):
    """A gap, as after a verification that failed; and an answer still under way would not count."""
    number = begin(producers, 3, bumps_epochs=bumps_epochs)
    producers.update(header(3, attributes=TRANSACTIONAL))
    producers.rollback()
    assert producers.is_verification_valid(9, 0, number)
    begin(producers, 4, bumps_epochs=bumps_epochs)
    late = header(4, attributes=TRANSACTIONAL)
    assert refused(producers, late) is E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_end_marker_that_the_disk_refused_leaves_the_verification(producers):
    """A first write would be told that its transaction has ended, which it has not."""
    number = begin(producers, 0)
    end(producers, 0, is_written=False)
    assert producers.is_verification_valid(9, 0, number)


def test_a_refusal_brings_no_verification_back_that_a_write_has_ended(producers):
    """One full disk, and every producer with a transaction in the log would be refused."""
    begin(producers, 0)
    take(producers, header(0, attributes=TRANSACTIONAL))
    producers.update(header(0, offset=1, producer_id=10))
    producers.rollback()
    take(producers, header(1, offset=1, attributes=TRANSACTIONAL))


def test_sequences_of_an_epoch_before_do_not_count(producers):
    """A producer would be refused for a write that its epoch before has not made."""
    begin(producers, 3)
    begin(producers, 0, epoch=1)
    begin(producers, 2, epoch=1)
    begin(producers, 2)
    assert refused(producers, header(1, epoch=1, attributes=TRANSACTIONAL))
    take(producers, header(0, epoch=1, attributes=TRANSACTIONAL))


def test_a_write_that_was_not_verified_comes_before_those_of_a_known_producer(producers):
    """Apache Kafka 4.3 refuses it too, though it follows the last one that is in the log."""
    take(producers, *(header(each, attributes=TRANSACTIONAL) for each in range(8)))
    end(producers, 0, version=0)
    begin(producers, 2)
    late = header(8, attributes=TRANSACTIONAL)
    assert refused(producers, late) is E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_raises_its_epochs_begins_at_0(producers):
    """Of five writes at once the first is not verified, the second is: it would come before."""
    begin(producers, 1, bumps_epochs=True)
    gap = header(1, attributes=TRANSACTIONAL)
    assert refused(producers, gap) is E.OUT_OF_ORDER_SEQUENCE_NUMBER
    take(producers, header(0, attributes=TRANSACTIONAL), gap)


def test_verifications_that_no_write_has_followed_are_forgotten(producers):
    """A producer that only asks would be remembered for ever."""
    number = begin(producers, now_ms=1_000)
    producers.remove_expired(5_999, 5_000)
    assert producers.is_verification_valid(9, 0, number)
    producers.remove_expired(6_000, 5_000)
    assert not producers.is_verification_valid(9, 0, number)


def test_open_transactions_are_found_in_their_order(producers):
    """Readers of committed data would see records of a transaction that is open."""
    for index in range(3):
        producer_id = 30 - index
        one = header(0, offset=index, producer_id=producer_id, attributes=TRANSACTIONAL)
        take(producers, one)
    assert producers.first_unstable_offset == 0
    copy = ProducerStateManager("copy")
    copy.load(list(reversed(producers.active())), 3)
    marker = header(-1, offset=3, producer_id=30, attributes=TRANSACTIONAL | CONTROL)
    for each in (producers, copy):
        each.complete(marker, True, 0)
        each.commit()
        each.on_high_watermark(4)
        assert each.first_unstable_offset == 1
