"""The client's core through everything that a network does: lost, late and repeated requests.

A producer's queues before a broker that checks sequence numbers: every record is in the log once
and in order. A consumer's positions before a log with gaps, whose answers may come after a seek:
what is given out is what the log has, in order, without a gap.
"""

import random
from collections import deque

import pytest
from tests.rounds import rounds

from odradek.client.core.consuming.fetched import FetchedChunk
from odradek.client.core.consuming.positions import PartitionPosition
from odradek.client.core.producing.accumulator import Accumulator, ProducerBatch
from odradek.model import TopicPartition
from odradek.records.batch import parse_header
from odradek.records.builder import RecordBatchBuilder
from odradek.records.reader import iter_records

ONE = TopicPartition("t", 0)
SEEDS = range(rounds(30))
RECORDS = 300
REMEMBERED = 5
STEPS = 100_000


class SequenceLog:
    """A partition's log as an idempotent producer sees it."""

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._next = 0
        self._recent: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        self.values: list[int] = []

    def append(self, data: bytes) -> str:
        """Appends a batch, or refuses it; returns the outcome."""
        header = parse_header(data)
        if len(data) > self._max_batch_bytes:
            return "too large"
        place = header.base_sequence, header.record_count
        if place in self._recent:
            return "done"
        if header.base_sequence != self._next:
            return "out of order"
        self._next += header.record_count
        self._recent.append(place)
        self.values += [int(record.value or b"") for record in iter_records(data, check_crc=True)]
        return "done"


class ProducerSimulation:
    """A producer's queues, a connection that breaks, and a log behind it."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._accumulator = Accumulator(
            linger_ms=5,
            batch_bytes=self._rng.choice([100, 400, 2000]),
            max_in_flight=self._rng.choice([1, 3, 5]),
        )
        self.log = SequenceLog(self._rng.choice([150, 300, 10_000]))
        self._now_ms = 0
        self._sent = 0
        self._requests: deque[ProducerBatch] = deque()
        self._answers: deque[tuple[ProducerBatch, str]] = deque()
        self.breaks = 0

    def run(self) -> None:
        """Until everything is delivered."""
        steps = [self._send, self._take, self._take, self._answer, self._answer, self._wait]
        for _ in range(STEPS):
            if self._sent == RECORDS and not self._accumulator.unfinished():
                break
            self._rng.choice(steps)()
            if self._rng.random() < 0.02:
                self._break()
        assert not self._accumulator.unfinished(), "it never ends"
        assert self._accumulator.used_bytes == 0

    def _send(self) -> None:
        for _ in range(min(self._rng.randrange(8), RECORDS - self._sent)):
            self._accumulator.append(ONE, 0, None, b"%d" % self._sent, (), self._sent, self._now_ms)
            self._sent += 1

    def _wait(self) -> None:
        self._now_ms += self._rng.randrange(10)
        while self._accumulator.ready(self._now_ms)[0]:
            self._requests.append(self._accumulator.drain(ONE, 7, 0))

    def _take(self) -> None:
        """The broker takes a request."""
        if self._requests:
            batch = self._requests.popleft()
            self._answers.append((batch, self.log.append(batch.encoded(False))))

    def _answer(self) -> None:
        """The client has an answer."""
        if not self._answers:
            return
        batch, outcome = self._answers.popleft()
        if outcome == "done":
            self._accumulator.done(batch)
        elif outcome == "too large":
            assert batch.record_count > 1, "no record is too large alone"
            self._accumulator.split(batch)
        else:
            assert self._accumulator.has_earlier(batch), "it was sent in order"
            self._accumulator.retry(batch, self._now_ms + self._rng.randrange(5))

    def _break(self) -> None:
        """Loses what is under way: on its way there, or on its way back."""
        self.breaks += 1
        lost = [batch for batch, _ in self._answers] + list(self._requests)
        if self._rng.random() < 0.5:
            while self._requests:  # the broker had received all of it
                self._take()
        self._requests.clear()
        self._answers.clear()
        for batch in lost:
            self._accumulator.retry(batch, self._now_ms + self._rng.randrange(20))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_in_the_log_once_and_in_order(seed: int) -> None:
    simulation = ProducerSimulation(seed)
    simulation.run()
    assert simulation.log.values == list(range(RECORDS))


def log_with_gaps(rng: random.Random) -> list[tuple[int, bytes, list[int]]]:
    """Batches: where each ends, its bytes, the offsets of its records."""
    batches = []
    offset = 0
    for _ in range(60):
        builder = RecordBatchBuilder(base_offset=offset)
        last = offset + rng.randrange(1, 6)
        offsets = [each for each in range(offset, last) if rng.random() < 0.8] or [offset]
        for each in offsets:
            builder.append_at(each, 0, None, b"%d" % each)
        batches.append((last, builder.build(last - 1), offsets))
        offset = last
    return batches


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_given_out_is_what_the_log_has(seed: int) -> None:
    rng = random.Random(seed)
    batches = log_with_gaps(rng)
    end = batches[-1][0]
    offsets = [each for _, _, found in batches for each in found]
    state = PartitionPosition()
    state.seek(0)
    answers: list[tuple[int, bytes]] = []
    given: list[int] = []
    begun = 0
    seeks = 0
    for _ in range(STEPS):
        if state.position == end:
            break
        chance = rng.random()
        wanted = state.fetch_offset
        if chance < 0.35 and not state.is_full and wanted is not None:
            behind = [data for last, data, _ in batches if last > wanted][: rng.randrange(1, 5)]
            data = b"".join(behind)
            cut = rng.randrange(1, len(behind[-1])) if len(behind) > 1 else 0
            answers.append((wanted, data[: len(data) - cut]))
            if rng.random() < 0.2:
                answers.append(answers[-1])  # comes twice
        elif chance < 0.6 and answers:
            asked, data = answers.pop(rng.randrange(len(answers)))
            is_lost = rng.random() < 0.2
            if not is_lost and not state.is_full and state.fetch_offset == asked and data:
                state.fetched(FetchedChunk(ONE, asked, memoryview(data), None))
        elif chance < 0.95 and state.chunk is not None:
            given += [each.offset for each in state.take(rng.randrange(1, 7), None, None)]
        elif chance > 0.99 and seeks < 5:
            seeks += 1
            assert given == [each for each in offsets if begun <= each < (state.position or 0)]
            begun = rng.randrange(end)
            state.seek(begun)
            given = []
    assert given == [each for each in offsets if each >= begun]
