"""If these fail, `getone` gives records out in another order, or what it costs grows with the
partitions that a consumer has."""

from types import SimpleNamespace
from typing import Any, cast

from odradek.client.aio.consuming.handout import Handout
from odradek.client.aio.fetching.fetcher import Fetcher
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.consuming.positions import Positions
from odradek.client.core.metrics import ClientMetrics
from odradek.clock import ManualClock
from odradek.model import TopicPartition


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
