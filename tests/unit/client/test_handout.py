"""If these fail, `getone` gives records out in another order, or what it costs grows with the
partitions that a consumer has."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.aio.consuming.handout import Handout
from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.deserializers import Deserializer
from odradek.client.core.consuming.fetched import BadRecord, FetchedChunk
from odradek.client.core.consuming.positions import Positions
from odradek.client.core.metrics import ClientMetrics
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder


class CountedPositions(Positions):
    """Positions that know how often all of them were looked at."""

    looks = 0

    def in_turn(self) -> list[TopicPartition]:
        self.looks += 1
        return super().in_turn()


def handout_of(count: int) -> tuple[Handout, CountedPositions]:
    """The held records of so many partitions, two of each."""
    positions = CountedPositions()
    positions.assign(TopicPartition("t", index) for index in range(count))
    for partition, state in positions.items():
        state.held += [record(partition.partition, offset) for offset in (0, 1)]
    fetcher = cast(
        Fetcher, SimpleNamespace(metrics=ClientMetrics(ManualClock(), "c"), pump=lambda: None)
    )
    return Handout(positions, fetcher, None, None, ()), positions


FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def fetched_of(
    deserializer: Deserializer | None, *interceptors: Any, of_keys: Deserializer | None = None
) -> tuple[Handout, Positions]:
    """Two partitions with the records `b"0"` to `b"3"`, fetched and not read yet."""
    positions = Positions()
    positions.assign((FIRST, SECOND))
    for partition, state in positions.items():
        builder = RecordBatchBuilder(0)
        for offset in range(4):
            builder.append(1, b"%d" % offset, b"%d" % offset, [])
        state.seek(0)
        state.fetched(FetchedChunk(partition, 0, memoryview(builder.build()), None))
    fetcher = cast(
        Fetcher,
        SimpleNamespace(
            metrics=ClientMetrics(ManualClock(), "c"), pump=lambda: None, used_up=lambda: None
        ),
    )
    return Handout(positions, fetcher, of_keys, deserializer, interceptors), positions


def record(partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, 0, None, None, None, 0)


def taken(handout: Handout) -> Any:
    found = handout.take_one(500)
    return found and (found.partition, found.offset)


def test_partitions_are_not_looked_at_for_each_record() -> None:
    """Of a thousand that have a record each, a record would cost a thousand looks."""
    handout, positions = handout_of(100)
    found = [taken(handout) for _ in range(200)]
    assert found == [(index, offset) for index in range(100) for offset in (0, 1)]
    assert positions.looks == 1
    assert taken(handout) is None


def test_what_is_paused_is_passed_over_and_comes_when_it_is_resumed() -> None:
    handout, positions = handout_of(3)
    states = [state for _, state in positions.items()]
    assert taken(handout) == (0, 0)
    states[0].is_paused = states[1].is_paused = True
    assert [taken(handout) for _ in range(3)] == [(2, 0), (2, 1), None]
    states[0].is_paused = states[1].is_paused = False
    assert [taken(handout) for _ in range(4)] == [(0, 1), (1, 0), (1, 1), None]


def test_what_is_dropped_is_not_given_out() -> None:
    handout, positions = handout_of(2)
    assert taken(handout) == (0, 0)
    positions.assign([TopicPartition("t", 1)])
    assert [taken(handout) for _ in range(3)] == [(1, 0), (1, 1), None]


def test_less_than_no_records_are_none() -> None:
    handout, _ = handout_of(1)
    assert handout.take((), -1) == {}
    assert [taken(handout) for _ in range(2)] == [(0, 0), (0, 1)]


def test_what_an_interceptor_emptied_keeps_nothing_from_being_put_back() -> None:
    """A read that was interrupted would lose the records of the other partitions."""
    handout, positions = handout_of(2)
    emptied, other = positions.in_turn()
    for state in [state for _, state in positions.items()]:
        state.seek(2)
    handout.put_back({other: [record(1, 1)], emptied: []})
    assert taken(handout) == (1, 1)


Move = Callable[[Positions], None]


def seek(partition: TopicPartition) -> Move:
    def move(positions: Positions) -> None:
        state = positions.get(partition)
        assert state is not None
        state.seek(40)

    return move


def give_up_and_take_again(positions: Positions) -> None:
    positions.assign([FIRST])
    positions.assign([FIRST, SECOND])


@pytest.mark.parametrize("reads_one", [False, True])
@pytest.mark.parametrize("moved", [FIRST, SECOND])
@pytest.mark.parametrize("by", ["deserializer", "interceptor", "deserializer of keys"])
def test_a_seek_amid_a_read_counts(by: str, moved: TopicPartition, reads_one: bool) -> None:
    """The consumer went on behind the records that the read had taken, as if nobody had sought."""
    handout, positions, seen = moving(by, seek(moved))
    if reads_one:
        found = [taken(handout) for _ in range(8)]
    else:
        read = handout.take((), 100)
        found = [(each.partition, each.offset) for some in read.values() for each in some]
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(4)]
    assert len(seen) == 8
    assert {each: state.position for each, state in positions.items()} == {
        FIRST: 4,
        SECOND: 4,
    } | {moved: 40}


@pytest.mark.parametrize("reads_one", [False, True])
@pytest.mark.parametrize("by", ["deserializer", "interceptor", "deserializer of keys"])
def test_what_was_given_up_amid_a_read_is_not_given_out(by: str, reads_one: bool) -> None:
    """Another member may have them. Nothing is known of the partition when it is back."""
    handout, positions, _ = moving(by, give_up_and_take_again)
    if reads_one:
        assert [taken(handout) for _ in range(4)] == [(0, offset) for offset in range(4)]
    else:
        assert [*handout.take((), 100)] == [FIRST]
    assert {each: state.position for each, state in positions.items()} == {FIRST: 4, SECOND: None}
    assert taken(handout) is None


def moving(by: str, move: Move) -> tuple[Handout, Positions, list[bytes]]:
    """A consumer that is moved at the end of its first read, and the values that it has seen."""
    seen: list[bytes] = []

    def deserialize(value: bytes) -> bytes:
        seen.append(value)
        if len(seen) == 8:
            move(positions)
        return value

    def on_consume(records: Any) -> Any:
        seen.extend(each.value for some in records.values() for each in some)
        move(positions)
        return records

    interceptors = [SimpleNamespace(on_consume=on_consume)] if by == "interceptor" else []
    of_values = deserialize if by == "deserializer" else None
    of_keys = deserialize if by == "deserializer of keys" else None
    handout, positions = fetched_of(of_values, *interceptors, of_keys=of_keys)
    return handout, positions, seen


def test_a_deserializer_that_moves_and_raises_stays_where_it_went() -> None:
    """It passes over what it cannot read."""

    def deserialize(value: bytes) -> bytes:
        if value == b"0":
            seek(FIRST)(positions)
            raise ValueError("no value")
        return value

    handout, positions = fetched_of(deserialize)
    with pytest.raises(BadRecord):
        handout.take([FIRST], 100)
    state = positions.get(FIRST)
    assert state is not None
    assert state.position == 40
