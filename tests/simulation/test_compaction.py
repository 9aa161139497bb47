"""Compaction beside everything else that happens to a log; see `compaction`.

`ODRADEK_COMPACTION_SEEDS` runs other seeds (`500`, or `500:700`). Some mutants show what they
notice.
"""

import shutil
from pathlib import Path

import pytest
from tests.mutants import Mutation, assert_noticed, copy_sources
from tests.rounds import seeds
from tests.simulation.compaction import Simulation

STEPS = 100
PER_TEST = 10
SEEDS = seeds("ODRADEK_COMPACTION_SEEDS", 50)

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
    "what a full disk refused counts": Mutation(
        "storage/log/appender.py", "            self._producers.rollback()\n", ""
    ),
}


@pytest.mark.parametrize("first", SEEDS[::PER_TEST])
def test_compaction_takes_what_it_may_and_nothing_else(tmp_path: Path, first: int) -> None:
    """Fails when a committed record is lost, an aborted one shown, or something comes back."""
    for seed in range(first, min(first + PER_TEST, SEEDS.stop)):
        directory = tmp_path / str(seed)
        simulation = Simulation(seed, str(directory))
        try:
            simulation.run(STEPS)
            assert simulation.world.findings() == []
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {len(simulation.history)}: {error}") from error
        finally:
            simulation.world.crash(simulation.manager)
            shutil.rmtree(directory)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    tests = ["tests/simulation/test_compaction.py"]
    assert_noticed(copy_sources(tmp_path), MUTATIONS[name], tests, ODRADEK_COMPACTION_SEEDS="600")
