"""If these fail, records are sent late, twice, in another order, or never."""

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.rounds import rounds

from odradek.client.core.producing.accumulator import (
    LAST_PRODUCER_EPOCH,
    Accumulator,
    ProducerBatch,
    record_bytes,
)
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
    batch = accumulator.drain(ONE, 7, 1)
    assert (batch.contexts, batch.base_sequence, batch.record_count) == ([1, 2, 3], 0, 3)
    data = batch.encoded(True)
    header = parse_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert header.is_transactional
    assert [record.value for record in iter_records(data, check_crc=True)] == [b"1", b"2", b"3"]
    assert batch.encoded(True) is data
    assert batch.encoded_bytes == len(data)
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
    assert accumulator.ready(0)[0] == [OTHER, ONE], "who had a turn is behind the others"


def test_one_batch_is_under_way_until_its_broker_knows_the_producer() -> None:
    """A broker that does not takes any number: a second batch would pass a first one that was
    refused for the moment."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, *range(5))
    first = accumulator.drain(ONE, 7, 0)
    assert accumulator.ready(0) == ([], None)
    accumulator.done(first)
    second = accumulator.drain(ONE, 7, 0)
    assert accumulator.ready(0)[0] == [ONE]
    accumulator.done(second)
    accumulator.drain(ONE, 8, 0)
    assert accumulator.ready(0) == ([], None), "another id is another producer"


def test_one_batch_is_under_way_until_a_topic_made_anew_knows_the_producer() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, *range(6))
    old, new = UUID(int=1), UUID(int=2)
    accumulator.done(accumulator.drain(ONE, 7, 0, topic_id=old))
    late = accumulator.drain(ONE, 7, 0, topic_id=old)
    first = accumulator.drain(ONE, 7, 0, topic_id=new)
    assert accumulator.ready(0) == ([], None)
    accumulator.done(late)
    assert accumulator.ready(0) == ([], None), "that was the old one"
    accumulator.done(first)
    accumulator.drain(ONE, 7, 0, topic_id=new)
    assert accumulator.ready(0)[0] == [ONE]


def test_what_is_on_its_way_to_an_old_leader_is_not_overtaken() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2)
    batch = accumulator.drain(ONE, node_id=1)
    assert accumulator.is_under_way_to_another(ONE, 2)
    assert not accumulator.is_under_way_to_another(ONE, 1)
    accumulator.retry(batch, 0)
    assert not accumulator.is_under_way_to_another(ONE, 2)


def test_what_is_on_its_way_to_a_topic_that_was_deleted_is_not_overtaken() -> None:
    """The new topic of the name takes any number: it would take the next batch before this one,
    which is refused for the old one, and then for its place."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2)
    old, new = UUID(int=1), UUID(int=2)
    accumulator.drain(ONE, node_id=1, topic_id=old)
    assert accumulator.is_under_way_to_another(ONE, 1, new)
    assert not accumulator.is_under_way_to_another(ONE, 1, old)


def test_what_failed_goes_again_in_its_order_when_all_are_back() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, *range(4))
    first, second, third = (accumulator.drain(ONE) for _ in range(3))
    accumulator.retry(second, not_before_ms=50)
    assert accumulator.has_earlier(third)
    assert not accumulator.has_earlier(first)
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


@pytest.mark.parametrize("is_sent_again", [True, False])
def test_what_may_have_been_overtaken_is_told(is_sent_again: bool) -> None:
    """The log refused the first for its place, and did not say whether it has the second."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3)
    accumulator.done(accumulator.drain(ONE, 7, 0))
    first, second = (accumulator.drain(ONE, 7, 0) for _ in range(2))
    accumulator.lost_place(first)
    accumulator.retry(first, 0)
    assert accumulator.overtaken(ONE) == []
    second.is_perhaps_in_log = True
    if is_sent_again:
        accumulator.retry(second, 0)
    else:
        accumulator.give_up(second)
    assert accumulator.overtaken(ONE) == [first]


def numbers(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


def test_behind_a_gap_a_new_epoch_of_the_partition_begins() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3)
    put(accumulator, 4, 5, partition=OTHER)
    accumulator.done(accumulator.drain(ONE, 7, 0))
    accumulator.drain(OTHER, 7, 0)
    refused = accumulator.drain(ONE, 7, 0)
    assert numbers(refused) == (7, 0, 1)
    accumulator.give_up(refused)
    assert numbers(accumulator.drain(ONE, 7, 0)) == (7, 1, 0)
    assert numbers(accumulator.drain(OTHER, 7, 0)) == (7, 0, 1), "it has none"


@pytest.mark.parametrize("gap", [Accumulator.give_up, Accumulator.lost_place])
def test_a_gap_of_one_partition_changes_no_number_of_another(
    gap: Callable[[Accumulator, ProducerBatch], None],
) -> None:
    """The other's batch failed and may be in its log: by new numbers it would be there twice."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2)
    put(accumulator, 3, 4, 5, partition=OTHER)
    refused = accumulator.drain(ONE, 7, 0)
    accumulator.done(accumulator.drain(OTHER, 7, 0))
    unknown = accumulator.drain(OTHER, 7, 0)
    unknown.unanswered = 1
    accumulator.retry(unknown, 0)
    gap(accumulator, refused)
    assert accumulator.drain(OTHER, 7, 0) is unknown
    assert numbers(unknown) == (7, 0, 1)
    accumulator.done(unknown)
    assert numbers(accumulator.drain(OTHER, 7, 0)) == (7, 0, 2)


def test_what_was_sent_behind_a_gap_is_sent_by_its_old_numbers_first() -> None:
    """It may be in the log, and only its answer is lost: by new numbers it would be there twice."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3, 4)
    given_up, lost, refused = (accumulator.drain(ONE, 7, 0) for _ in range(3))
    accumulator.retry(lost, 0)
    accumulator.give_up(given_up)
    accumulator.retry(refused, 0)
    assert accumulator.drain(ONE, 7, 0) is lost
    assert numbers(lost) == (7, 0, 1)
    assert not accumulator.has_earlier(lost)
    accumulator.lost_place(lost)
    accumulator.retry(lost, 0)
    found = []
    for _ in range(2):
        batch = accumulator.drain(ONE, 7, 0)
        found.append((batch, numbers(batch)))
        accumulator.done(batch)
    assert found == [(lost, (7, 1, 0)), (refused, (7, 1, 1))]
    assert numbers(accumulator.drain(ONE, 7, 0)) == (7, 1, 2)


def test_what_comes_back_behind_a_gap_has_its_old_numbers_if_it_may_be_in_the_log() -> None:
    """By new ones it would be there twice; what was refused is sent by new ones."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3)
    accumulator.done(accumulator.drain(ONE, 7, 0))
    refused, lost = accumulator.drain(ONE, 7, 0), accumulator.drain(ONE, 7, 0)
    lost.unanswered = 1
    accumulator.lost_place(refused)
    accumulator.retry(lost, 0)
    accumulator.retry(refused, 0)
    assert not refused.is_numbered
    assert numbers(lost) == (7, 0, 2)


def test_nothing_follows_a_gap_while_what_is_behind_it_is_under_way() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3, 4)
    accumulator.done(accumulator.drain(ONE, 7, 0))  # its broker knows the producer
    first, second = accumulator.drain(ONE, 7, 0), accumulator.drain(ONE, 7, 0)
    accumulator.lost_place(first)
    accumulator.give_up(first)
    assert accumulator.ready(0) == ([], None)
    accumulator.give_up(second)
    assert numbers(accumulator.drain(ONE, 7, 0)) == (7, 1, 0)


def test_nothing_follows_a_gap_though_the_broker_knows_the_producer() -> None:
    """The batch behind a gap would be in the log by its old number, and come again by another."""
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, 3, 4)
    accumulator.done(accumulator.drain(ONE, 7, 0))
    first, second = accumulator.drain(ONE, 7, 0), accumulator.drain(ONE, 7, 0)
    accumulator.lost_place(first)
    accumulator.give_up(first)
    assert accumulator.ready(0) == ([], None)
    accumulator.done(second)
    assert numbers(accumulator.drain(ONE, 7, 0)) == (7, 1, 0)


def test_a_newer_epoch_or_another_id_is_taken_when_nothing_has_old_numbers() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, *range(6))
    first = accumulator.drain(ONE, 7, 0)
    assert numbers(accumulator.drain(ONE, 7, 1)) == (7, 0, 1)
    accumulator.done(accumulator.unfinished()[1])
    accumulator.retry(first, 0)
    assert numbers(accumulator.drain(ONE, 8, 0)) == (7, 0, 0)
    accumulator.done(first)
    assert numbers(accumulator.drain(ONE, 7, 3)) == (7, 3, 0)
    accumulator.done(accumulator.unfinished()[0])
    assert numbers(accumulator.drain(ONE, 8, 0)) == (8, 0, 0)
    accumulator.done(accumulator.unfinished()[0])
    assert numbers(accumulator.drain(ONE, 8, 0)) == (8, 0, 1)


def test_an_id_whose_epochs_have_come_to_their_end_is_spent() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2)
    accumulator.give_up(accumulator.drain(ONE, 7, LAST_PRODUCER_EPOCH))
    assert accumulator.spent_producer_id == 7
    assert numbers(accumulator.drain(ONE, 8, 0)) == (8, 0, 0)


def test_what_is_under_way_expires_too_and_keeps_its_place_until_it_is_answered() -> None:
    accumulator = Accumulator(linger_ms=0, batch_bytes=1)
    put(accumulator, 1, 2, now=10)
    put(accumulator, 3, now=20)
    under_way = accumulator.drain(ONE)
    assert accumulator.oldest_ms == 10
    assert [batch.contexts for batch in accumulator.expired(10)] == [[1], [2]]
    under_way.is_told = True
    assert [batch.contexts for batch in accumulator.expired(10)] == [[2]]
    accumulator.give_up(accumulator.unfinished()[1])
    assert accumulator.oldest_ms == 20
    assert accumulator.has_earlier(accumulator.drain(ONE))


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
    for seed in range(rounds(200)):
        rng = random.Random(seed)
        accumulator = Accumulator(linger_ms=0, batch_bytes=150)
        log = Log()
        sent: list[ProducerBatch] = []
        done = 0
        for value in range(60):
            put(accumulator, value)
        while done < 60:
            choice = rng.random()
            if choice < 0.5 and accumulator.ready(0)[0]:
                sent.append(accumulator.drain(ONE))
            elif sent:
                batch = sent.pop(0)
                is_lost = rng.random() < 0.2
                taken = False if is_lost else log.append(batch)
                answer_lost = rng.random() < 0.2
                if taken and not answer_lost:
                    accumulator.done(batch)
                    done += batch.record_count
                else:
                    assert taken or is_lost or accumulator.has_earlier(batch)
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
        values = [int(each.value or b"") for each in iter_records(batch.encoded(False))]
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


def test_a_batch_that_nothing_holds_back_is_ready_on_a_clock_below_zero() -> None:
    """It would wait for 0, which a clock that stands never comes to."""
    accumulator = Accumulator(linger_ms=5)
    put(accumulator, 1, now=-501)
    assert accumulator.ready(-501) == ([], -496)
    accumulator.hurries = True
    assert accumulator.ready(-501) == ([ONE], None)
