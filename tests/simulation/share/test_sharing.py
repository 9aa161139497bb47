"""Share groups under everything that networks and crashes do to them; see `sharing`.

`ODRADEK_SHARE_SEEDS` runs other seeds (`500`, or `500:700`), none of them slow.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rounds import seeds
from tests.simulation.share.share_brokers import Broker, new_brokers
from tests.simulation.share.sharing import Simulation

from odradek.coordinator.share_groups.requests import ShareHeartbeatRequest
from odradek.errors import BrokerError, ErrorCode
from odradek.replication.share.states import RecordEvent

STEPS = 120
SEEDS = seeds("ODRADEK_SHARE_SEEDS", 30)
WRITE_TIMEOUT_MS = 5_000


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Broker]]:
    made = new_brokers([str(tmp_path / name) for name in "ab"])
    yield made
    for each in made:
        each.cluster.close()


@pytest.mark.parametrize("part", range(2))
def test_share_groups_deliver_to_the_end_whatever_happens(brokers: list[Broker], part: int) -> None:
    """Fails when a record that was acknowledged comes back, two members hold one, a member is told
    what the log did not take, or something waits for ever."""
    happened: Counter[str] = Counter()
    tried = SEEDS[part::2]
    for seed in tried:
        simulation = Simulation(seed, brokers)
        try:
            simulation.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            simulation.end()
        happened.update(simulation.operations)
    assert not tried or all(happened[each] for each in ("refused", "accepted")), happened


@pytest.fixture
def calm(brokers: list[Broker]) -> Iterator[Simulation]:
    """A simulation in which nothing goes wrong by itself."""
    simulation = Simulation(0, brokers)
    simulation.calm = True
    yield simulation
    simulation.end()


def test_operators_set_and_delete_what_an_empty_group_has(calm: Simulation) -> None:
    """Fails when the operators of the simulation are refused whatever they ask for."""
    _read_and_leave(calm)
    for kind in ("alter", "forget", "delete"):
        calm.ask("g0", kind)
        calm.turn()
        calm.check()
        assert calm.operations[kind] == 1, calm.operations
        assert not calm.resets


def test_a_member_ignores_what_was_answered_before_it_joined_anew(calm: Simulation) -> None:
    """Fails when a late refusal is taken for one of the member that has joined since, in a group
    that was deleted and has come to the same epoch again."""
    answers = []
    calm.beat = lambda _request, take: answers.append(take)
    member = calm.members[0]
    for _ in range(2):
        member.rejoin()
        member.epoch, member.known_at_ms = 4, calm.now_ms
        member.beat()
    answers[0](BrokerError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert member.epoch == 4
    with pytest.raises(AssertionError, match="was told that it lives"):
        answers[1](BrokerError(ErrorCode.UNKNOWN_MEMBER_ID))


def test_a_deletion_that_is_written_too_late_is_carried_out_by_who_joins(calm: Simulation) -> None:
    """Fails when what an operator was refused in time, and the log took all the same, is taken for
    the loss of what was acknowledged."""
    _read_and_leave(calm)
    calm.world.log.holds = True
    reset = calm.ask("g0", "forget")
    calm.advance(WRITE_TIMEOUT_MS)
    calm.check()
    assert reset.may_be_written, calm.operations
    calm.world.log.holds = False
    calm.world.log.commit()
    calm.check()
    assert not calm.resets
    _accept_what_is_held(calm)
    calm.check()
    calm.members[2].beat()
    calm.turn()
    calm.check()
    assert calm.read == {each for each in calm.keys if each.group_id == "g0"}


def test_a_leader_writes_into_the_state_after_the_one_that_was_deleted(calm: Simulation) -> None:
    """Fails when the simulation takes that for a fault, which Kafka does not fence either, or when
    it goes on to allow it behind the next reading of the state."""
    _read_and_leave(calm)
    calm.ask("g0", "delete")
    calm.turn()
    calm.check()
    calm.members[2].beat()
    calm.turn()
    calm.check()
    assert not calm.mixed
    _accept_what_is_held(calm)
    assert calm.mixed
    calm.check()
    for partition in calm.members[2].assigned:
        calm.move(partition)
        calm.fetch(calm.members[2], partition)
        calm.turn()
    assert not calm.mixed


def test_the_simulation_misses_what_a_group_reads_no_more(calm: Simulation) -> None:
    """Fails when partitions that a group forgot are taken for what an operator deleted."""
    _read_and_leave(calm)
    calm.check()
    group = calm.group("g0")
    assert group is not None
    group.replay_states(None)
    with pytest.raises(AssertionError, match="no operator has asked"):
        calm.check()


def _read_and_leave(simulation: Simulation) -> None:
    """A member gets records, and its group loses it without its brokers' hearing of that."""
    member = simulation.members[0]
    member.beat()
    simulation.turn()
    for partition in member.assigned:
        for _ in range(2):
            simulation.fetch(member, partition)
            simulation.turn()
    assert simulation.operations["handed out"]
    member.is_gone = True
    leave = ShareHeartbeatRequest(member.group_id, member.member_id, -1)
    simulation.beat(leave, lambda _outcome: None)
    simulation.check()


def _accept_what_is_held(simulation: Simulation) -> None:
    (broker,) = {*simulation.leaders.values()}
    for led, held in broker.held.items():
        for offset, each in held.items():
            simulation._say(broker, led, each.member, (offset, offset), RecordEvent.ACCEPT)
            simulation.turn()
    assert any(simulation.done.values())
