"""Compaction beside everything else that happens to a log; see `compaction`.

`ODRADEK_COMPACTION_SEEDS` runs other seeds (`500`, or `500:700`). Some mutants show what they
notice.
"""

import shutil
from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation
from tests.rounds import seeds
from tests.simulation.compaction import Simulation, Transaction
from tests.unit.storage.cleaner.compacted import BACKOFF_MS

STEPS = 100
PER_TEST = 10
SEEDS = seeds("ODRADEK_COMPACTION_SEEDS", 50)
# These found something: a cut of what compaction had kept a producer's last batch by; a mutant
# (what retention took is aborted for ever).
FOUND = [6776, 1608]

CLEANING = "storage/cleaner/cleaning.py"
ENTRIES = "for segment in self.log.segments.all() for entry in segment.transactions.entries()\n"
MUTATIONS = {
    "what is aborted behind the round counts as committed": Mutation(
        CLEANING,
        ENTRIES,
        ENTRIES + "            if entry.last_offset < self._cleanable.first_uncleanable_offset\n",
    ),
    "the entry of a marker behind the round is lost": Mutation(
        "storage/cleaner/cleaned_transactions.py",
        "        if entry is not None:\n            self.retained.append(entry)\n",
        "",
    ),
    "what is not decided counts": Mutation(
        "storage/cleaner/cleanable.py",
        "min(log.last_stable_offset, log.segments.active",
        "min(log.log_end_offset, log.segments.active",
    ),
    "a round outlives a cut": Mutation(CLEANING, "            or local.cuts != self._cuts\n", ""),
    "a round outlives its settings": Mutation(
        CLEANING, "            or _policy(self.log.config) != self._policy\n", ""
    ),
    "a round may not lose its segments": Mutation(
        CLEANING, "        if not doomed:\n", "        if doomed is None:\n"
    ),
    "a marker goes whose transaction a snapshot has open": Mutation(
        "storage/cleaner/cleaned_transactions.py",
        " and not ends_earlier_one\n",
        "\n",
    ),
    "what retention took is aborted for ever": Mutation(
        "storage/cleaner/cleaned_transactions.py",
        "            if entry.last_offset >= offset:\n",
        "            if entry.last_offset >= 0:\n",
    ),
    "the end of an epoch that is gone is damage": Mutation(
        "storage/manager/epoch_check.py",
        "        if before is None or before.base_offset >= start_offset:\n",
        "        if before is None:\n",
    ),
    "a recovery takes no snapshots": Mutation(
        "storage/producers/replay.py",
        "                take_snapshot(file_system, directory, producers)\n",
        "",
    ),
    "a cut where nothing is left loses the end": Mutation(
        "storage/log/log.py", "        self._keep_end()\n", ""
    ),
    "retention takes what not all have": Mutation(
        "storage/log/retention.py", "        if end_offset > high_watermark or (", "        if ("
    ),
    "retention takes one segment too many": Mutation(
        "storage/log/retention.py", "excess - segment.size_bytes >= 0", "excess > 0"
    ),
    "a cut that is interrupted leaves a gap": Mutation(
        "storage/log/local_log.py", "cut_off[::-1]", "cut_off"
    ),
    "what a full disk refused counts": Mutation(
        "storage/log/appender.py", "            self._producers.rollback()\n", ""
    ),
}
MUTANTS = Mutants(
    MUTATIONS, ["tests/simulation/test_compaction.py"], ODRADEK_COMPACTION_SEEDS="600"
)


@pytest.mark.parametrize("first", SEEDS[::PER_TEST])
def test_compaction_takes_what_it_may_and_nothing_else(tmp_path: Path, first: int) -> None:
    """Fails when a committed record is lost, an aborted one shown, or something comes back."""
    for seed in range(first, min(first + PER_TEST, SEEDS.stop)):
        run(seed, tmp_path / str(seed))


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_not_found_again(tmp_path: Path, seed: int) -> None:
    """Fails when a finding comes back."""
    run(seed, tmp_path / str(seed))


def run(seed: int, directory: Path) -> None:
    simulation = Simulation(seed, str(directory))
    try:
        simulation.run(STEPS)
        assert simulation.world.findings() == []
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, step {len(simulation.history)}: {error}") from error
    finally:
        simulation.world.crash(simulation.manager)
        shutil.rmtree(directory)


def test_a_cut_may_take_the_batch_for_which_an_earlier_one_went(tmp_path: Path) -> None:
    """Fails when the model takes it for a fault: compaction keeps the last batch of a producer, a
    cut takes that one, and only the leader's snapshot knows of the one before, as in Kafka."""
    simulation = Simulation(0, str(tmp_path))
    first, second = Transaction(1, 0), Transaction(1, 3)
    simulation._write(first, [(b"k", b"1")])
    simulation._decide(first, is_commit=True, bumps_epoch=False)
    simulation._mark(first)
    simulation._write(None, [(b"k", b"2")])
    simulation.roll()
    simulation._write(second, [(b"k", b"3")])
    simulation._replicate()
    simulation.background.catch_up()
    simulation._advance(BACKOFF_MS)
    simulation.check()
    assert sorted(simulation.records) == [2, 3]
    simulation.cut_to(3)
    simulation.copy()
    simulation.world.crash(simulation.manager)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
