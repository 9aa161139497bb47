"""Whatever dies, comes late, is lost or refused, and wherever clocks are set: schedules are
delivered once, neither early nor after they have expired, unless cancelled."""

from collections import Counter
from pathlib import Path

import pytest
from tests.rounds import rounds, seeds
from tests.simulation.brokers import TP, Broker
from tests.simulation.schedules.schedules import ScheduleWorld, append

from odradek.records.builder import RecordBatchBuilder

SEEDS = seeds("ODRADEK_SCHEDULE_SEEDS", 12)
STEPS = 40


class FailingWorld(ScheduleWorld):
    """Something in a releaser raises now and then that nobody has thought of."""

    failing = 0.3


def run(
    seed: int, directory: Path, make_world: type[ScheduleWorld] = ScheduleWorld
) -> ScheduleWorld:
    """Runs a cluster: through trouble, and then calm."""
    world = make_world(seed, str(directory))
    try:
        for _ in range(STEPS):
            world.step()
        world.calm_down()
    finally:
        world.close()
    return world


@pytest.mark.parametrize("part", range(2))
def test_schedules_are_delivered_once(tmp_path: Path, part: int) -> None:
    """Fails when one is early, is lost, comes twice, or comes though it was taken back or has
    expired."""
    delivered = 0
    tried: Counter[str] = Counter()
    for seed in SEEDS[part::2]:
        directory = tmp_path / str(seed)
        directory.mkdir()
        try:
            world = run(seed, directory)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        delivered += world.delivered
        tried += world.tried
    assert delivered > len(SEEDS), "next to nothing was delivered: nothing was tried"
    assert tried["refused"]
    assert tried["transactions"]


def test_a_step_that_fails_has_releasing_begin_anew(tmp_path: Path) -> None:
    """It said so once, and what was due from then on was never delivered."""
    delivered = failures = 0
    for seed in range(rounds(4)):
        directory = tmp_path / str(seed)
        directory.mkdir()
        world = run(seed, directory, FailingWorld)
        delivered += world.delivered
        failures += world.failures
    assert failures
    assert delivered


def schedule(leader: Broker, value: bytes) -> None:
    builder = RecordBatchBuilder()
    builder.append(0, None, value, [("deliver-after", b"100")])
    append(leader, TP, builder.build(), lambda error: None)


@pytest.mark.parametrize("deleted", [1, 2, 3])
def test_records_that_are_deleted_while_their_release_is_in_doubt(
    tmp_path: Path, deleted: int
) -> None:
    """Fails when the records that are left come again: a shorter batch is not known as one in the
    log.
    """
    world = ScheduleWorld(1, str(tmp_path))
    try:
        world.network.calm = world.loses_answers = True
        world.pass_time(200)
        leader = world.brokers[world.leader_id]
        for value in (b"a", b"b", b"c"):
            schedule(leader, value)
        world.pass_time(300)
        assert world.released() == [b"a", b"b", b"c"]
        world.checker.check = lambda: None  # it reads every log from its first record
        leader.replicas.delete_records(1000, False, [(TP, deleted)], lambda results: None)
        world.loses_answers = False
        world.pass_time(3_000)
        schedule(leader, b"later")
        world.pass_time(3_000)
        assert world.released() == [b"a", b"b", b"c", b"later"]
    finally:
        world.close()
