"""If these fail, records go to other partitions than they should, or past a limit."""

import random

import pytest

from odradek.client.core.metadata import PartitionMetadata, TopicMetadata
from odradek.client.core.producing.accumulator import Accumulator, record_bytes
from odradek.client.core.producing.intake import Intake, Lot, Outcome
from odradek.client.core.producing.partitioner import partition_for_key
from odradek.client.errors import RecordTooLarge, RequestError
from odradek.clock import ManualClock
from odradek.model import TopicPartition

BATCH_BYTES = 1_000


class Place:
    """An intake with its accumulator, and a topic of some partitions."""

    def __init__(self, buffer_bytes: int = 1 << 20, partitions: int = 4) -> None:
        self.accumulator = Accumulator(linger_ms=0, batch_bytes=BATCH_BYTES)
        self.intake = Intake(
            self.accumulator,
            ManualClock(),
            random.Random(3),
            batch_bytes=BATCH_BYTES,
            buffer_bytes=buffer_bytes,
            record_max_bytes=min(5_000, buffer_bytes),
        )
        self.topic = topic(*range(partitions))

    def put(self, value=b"v", key=None, partition=None, timestamp_ms=None):
        return self.intake.put(self.topic, partition, timestamp_ms, key, value, (), object(), False)

    def partitions(self) -> list[int]:
        """Where batches wait, each as often as it has some."""
        return [each.partition.partition for each in self.accumulator.unfinished()]


def topic(*led: int) -> TopicMetadata:
    known = {index: PartitionMetadata(1 if index in led else -1) for index in range(4)}
    return TopicMetadata("t", None, False, known)


def test_the_first_record_of_a_batch_is_news_and_so_is_the_one_that_fills_it():
    place = Place(partitions=1)
    assert [place.put(partition=0) for _ in range(2)] == [Outcome.NEWS, Outcome.PUT]
    assert place.put(b"x" * BATCH_BYTES, partition=0) is Outcome.NEWS
    assert place.accumulator.has_full


def test_where_a_record_goes():
    place = Place()
    place.put(partition=2)
    place.put(key=b"some key")
    assert sorted(place.partitions()) == sorted([2, partition_for_key(b"some key", 4)])
    with pytest.raises(RequestError, match="7 is none of the 4 partitions of t"):
        place.put(partition=7)


def test_records_without_a_key_stay_together_until_a_batch_is_full_and_go_where_a_leader_is():
    place = Place()
    for _ in range(5):
        place.put()
    assert len(place.partitions()) == 1
    for _ in range(200):
        place.put(b"x" * 100)
    assert set(place.partitions()) == {0, 1, 2, 3}
    place.topic = topic(1)
    before = place.partitions().count(1)
    for _ in range(40):
        place.put(b"x" * 500)
    assert place.partitions().count(1) > before + 15


def test_limits_and_types():
    with pytest.raises(RecordTooLarge, match=r"larger than max\.request\.size \(5000\)"):
        Place().put(b"x" * 5_000)
    place = Place(buffer_bytes=300)
    with pytest.raises(RecordTooLarge, match=r"of 336 bytes is larger than buffer\.memory \(300\)"):
        place.put(b"x" * 300)
    assert place.put(b"x" * 200) is Outcome.NEWS
    assert place.put(b"y" * 200) is Outcome.NO_ROOM
    assert place.intake.refused_bytes == record_bytes(None, b"y" * 200, ())
    place.accumulator.done(place.accumulator.drain(place.accumulator.ready(0)[0][0]))
    assert place.put(bytearray(b"y" * 200)) is Outcome.NEWS
    [batch] = place.accumulator.unfinished()
    assert (batch.partition.topic, batch.record_count) == ("t", 1)
    for key, value in ((3, b""), (None, "text")):
        with pytest.raises(TypeError, match="is bytes or None, not"):
            place.put(value, key)


@pytest.mark.parametrize(
    "headers",
    [[(5, b"v")], [("\ud800", b"v")], [("n", 5)], ["nv"], [b"nv"], {"n": 1.5}, 7],
    ids=["name", "no utf-8", "value", "text", "bytes", "mapping", "number"],
)
def test_what_are_no_headers_is_refused(headers):
    """Alone, and before any record that came with it is in a batch."""
    place = Place()
    with pytest.raises(TypeError, match="header"):
        place.intake.put(place.topic, 0, None, b"k", b"v", headers, object(), False)
    with pytest.raises(TypeError, match="header"):
        Lot("t", 0, [b"a", b"b"], headers=[(), headers])
    assert place.partitions() == []


def test_headers_may_be_text():
    assert Lot("t", 0, [b"v"], headers=[{"n": "ö"}]).headers == [[("n", "ö".encode())]]


@pytest.mark.parametrize(
    "columns",
    [
        {"values": [b"a", "b"]},
        {"keys": [b"a", 5]},
        {"timestamps_ms": [1, "now"]},
        {"timestamps_ms": [1, -1]},
        {"keys": [b"a"]},
    ],
    ids=["value", "key", "time", "negative", "length"],
)
def test_columns_are_refused_before_any_of_them_is_in_a_batch(columns):
    with pytest.raises((TypeError, ValueError)):
        Lot("t", 0, **{"values": [b"a", b"b"], **columns})


@pytest.mark.parametrize("timestamp_ms", ["now", -1])
def test_what_is_no_timestamp_is_refused(timestamp_ms):
    place = Place()
    with pytest.raises((TypeError, ValueError)):
        place.put(timestamp_ms=timestamp_ms)
    assert place.partitions() == []


def test_a_batch_tells_where_its_records_are():
    place = Place(partitions=1)
    for value in (b"a", b"b"):
        place.put(value, partition=0, timestamp_ms=len(value) + 4)
    [batch] = place.accumulator.unfinished()
    assert batch.partition == TopicPartition("t", 0)
    assert [(each.offset, each.timestamp) for each in batch.metadata(10, -1)] == [(10, 5), (11, 5)]
    assert [(each.offset, each.timestamp) for each in batch.metadata(-1, 99)] == [(-1, 99)] * 2
