"""If these fail, records are sent late, twice, in another order, or never."""

import random

from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch, record_bytes
from odradek.model import TopicPartition
from odradek.records.batch import parse_header
from odradek.records.reader import iter_records

ONE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


def put(accumulator: Accumulator, *values: int, partition: TopicPartition = ONE, now: int = 0):
    return [
        accumulator.append(partition, 5, None, b"%d" % value, (), value, now) for value in values
    ]


def test_a_batch_lingers_unless_it_is_full_or_somebody_hurries() -> None:
    accumulator = Accumulator(linger_ms=5)
    assert put(accumulator, 1, 2, now=10) == [True, False]
    assert accumulator.ready(14) == ([], 15)
    assert accumulator.ready(15) == ([ONE], None)
    accumulator.hurries = True
    assert accumulator.ready(10) == ([ONE], None)
    accumulator.hurries = False
    accumulator.append(ONE, 5, None, b"x" * 20_000, (), 3, 10)
    assert accumulator.ready(10) == ([ONE], None), "a batch follows the first"


def test_a_batch_is_what_was_put_into_it() -> None:
    accumulator = Accumulator(linger_ms=0, codec=1)
    put(accumulator, 1, 2, 3)
    batch = accumulator.drain(ONE)
    assert (batch.contexts, batch.base_sequence, batch.record_count) == ([1, 2, 3], 0, 3)
    data = batch.encoded(7, 1, True)
    header = parse_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert header.is_transactional
    assert [record.value for record in iter_records(data, check_crc=True)] == [b"1", b"2", b"3"]
    assert batch.encoded(7, 1, True) is data
    assert parse_header(batch.encoded(7, 2, True)).producer_epoch == 2
    assert accumulator.used_bytes == 3 * record_bytes(None, b"1", ())
    accumulator.done(batch)
    assert accumulator.used_bytes == 0
    assert accumulator.unfinished() == []


def test_five_batches_of_a_partition_are_under_way_at_most() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1, max_in_flight=5)
    put(accumulator, *range(7))
    put(accumulator, 100, partition=OTHER)
    under_way = []
    while ONE in accumulator.ready(0)[0]:
        under_way.append(accumulator.drain(ONE))
    assert [batch.base_sequence for batch in under_way] == [0, 1, 2, 3, 4]
    assert accumulator.ready(0)[0] == [OTHER]
    accumulator.done(under_way[0])
    assert accumulator.ready(0)[0] == [ONE, OTHER]


def test_what_failed_goes_again_in_its_order_when_all_are_back() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, *range(4))
    first, second, third = (accumulator.drain(ONE) for _ in range(3))
    accumulator.retry(second, not_before_ms=50)
    assert accumulator.has_earlier_failure(third)
    assert not accumulator.has_earlier_failure(first)
    assert accumulator.ready(99) == ([], None), "two are still under way"
    accumulator.retry(first, not_before_ms=40)
    accumulator.done(third)
    assert accumulator.ready(49) == ([], 50)
    again = accumulator.drain(ONE)
    assert again is first
    assert accumulator.ready(99) == ([], None), "one at a time"
    accumulator.done(first)
    assert accumulator.drain(ONE) is second
    accumulator.done(second)
    assert accumulator.drain(ONE).base_sequence == 3


def test_a_new_epoch_numbers_from_the_beginning() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3)
    accumulator.done(accumulator.drain(ONE))
    accumulator.retry(accumulator.drain(ONE), 0)
    accumulator.renumber()
    assert accumulator.drain(ONE).base_sequence == 0
    accumulator.done(accumulator.unfinished()[0])
    assert accumulator.drain(ONE).base_sequence == 1


def test_only_what_is_not_under_way_expires() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, now=10)
    put(accumulator, 3, now=20)
    accumulator.drain(ONE)
    assert [batch.contexts for batch in accumulator.expired(10)] == [[2]]


class Log:
    """A partition's leader as the sequences of one producer see it; it may lose answers."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self.next_sequence = 0

    def append(self, batch: ProducerBatch) -> bool:
        """Whether the batch is in the log, now or already."""
        if batch.base_sequence < self.next_sequence:
            return True
        if batch.base_sequence > self.next_sequence:
            return False
        self.values += batch.contexts
        self.next_sequence += batch.record_count
        return True


def test_records_are_in_the_log_once_and_in_order_whatever_is_lost() -> None:
    """Requests and answers are lost or late by chance; requests arrive in order, as on a socket."""
    for seed in range(200):
        dice = random.Random(seed)
        accumulator = Accumulator(linger_ms=0, batch_bytes=150)
        log = Log()
        sent: list[ProducerBatch] = []
        done = 0
        for value in range(60):
            put(accumulator, value)
        while done < 60:
            choice = dice.random()
            if choice < 0.5 and accumulator.ready(0)[0]:
                sent.append(accumulator.drain(ONE))
            elif sent:
                batch = sent.pop(0)
                is_lost = dice.random() < 0.2
                taken = False if is_lost else log.append(batch)
                answer_lost = dice.random() < 0.2
                if taken and not answer_lost:
                    accumulator.done(batch)
                    done += batch.record_count
                else:
                    assert taken or is_lost or accumulator.has_earlier_failure(batch)
                    accumulator.retry(batch, 0)
        assert log.values == list(range(60)), f"seed {seed}"


def test_a_batch_that_is_too_large_goes_again_in_halves_in_its_place() -> None:
    """Records would be lost, or change their order, when a broker takes smaller batches only."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=500)
    put(accumulator, *range(60))
    first, second = accumulator.drain(ONE), accumulator.drain(ONE)
    used = accumulator.used_bytes
    accumulator.retry(second, 0)
    accumulator.split(first)
    assert first.is_done
    assert accumulator.used_bytes == used
    left = accumulator.drain(ONE)
    assert (left.base_sequence, left.contexts) == (0, first.contexts[: len(left.contexts)])
    accumulator.split(left)
    sent: list[object] = []
    sequence = 0
    while accumulator.unfinished():
        batch = accumulator.drain(ONE)
        assert batch.base_sequence == sequence
        values = [int(each.value or b"") for each in iter_records(batch.encoded(7, 0, False))]
        assert values == batch.contexts
        if batch is not second and batch.attempts == 2:
            # A half that fails for another reason comes again before what follows it.
            accumulator.retry(batch, 0)
            continue
        sequence += batch.record_count
        sent += values
        accumulator.done(batch)
    assert sent == list(range(60))
    assert accumulator.used_bytes == 0
