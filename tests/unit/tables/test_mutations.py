"""Breaks the source for Spark, and the tables below it, on purpose; their tests have to notice."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

TABLES = "tests/unit/tables"
SPARK = "tests/unit/pyspark_odradek"

MUTATIONS = {
    "a partition's next batch has the sequence of the one before": (
        Mutation(
            "tables/write/record_accumulator.py",
            "batch.sequence = (batch.sequence + builder.record_count) & LAST_SEQUENCE",
            "batch.sequence = batch.sequence & LAST_SEQUENCE",
        ),
        f"{TABLES}/test_record_accumulator.py",
    ),
    "a read that ends before it begins is no mistake": (
        Mutation("tables/plan/planning.py", "if start[partition] > end[partition]:", "if False:"),
        f"{SPARK}/test_planning.py",
    ),
    "a small partition starves beside a large one": (
        Mutation(
            "tables/plan/ranges.py",
            "share = max(1, budget * count // total) if count > 0 else 0",
            "share = budget * count // total if count > 0 else 0",
        ),
        f"{TABLES}/test_ranges.py",
    ),
    "a hole between segments is taken for compaction": (
        Mutation(
            "tables/scan/segments.py",
            "if reached < following and not self._was_compacted(segment):",
            "if False:",
        ),
        f"{TABLES}/segments/test_segments_under_the_cleaner.py",
    ),
    "an index is believed whatever it points at": (
        Mutation(
            "tables/scan/segments.py",
            "if index < 0 or not self._is_batch_before(entries[index][1], offset):",
            "if index < 0:",
        ),
        f"{TABLES}/segments/test_segments_under_the_cleaner.py",
    ),
    "a directory of another cluster is read": (
        Mutation(
            "tables/plan/identity.py",
            "if found is not None and cluster_id is not None and found != cluster_id:",
            "if False:",
        ),
        f"{TABLES}/test_identity.py",
    ),
    "another directory of the same name is read": (
        Mutation("tables/plan/identity.py", "if _describe(log_dir) != properties:", "if False:"),
        f"{TABLES}/test_identity.py",
    ),
    "a topic that was made anew passes for the old one": (
        Mutation(
            "tables/scan/reading.py",
            "if planned is not None and found is not None and found != planned:",
            "if False:",
        ),
        f"{TABLES}/test_reading.py",
    ),
    "checksums are not looked at": (
        Mutation("tables/scan/reading.py", "check_crc=True,", "check_crc=False,"),
        f"{TABLES}/test_reading.py",
    ),
    "an abort marker does not end the abort": (
        Mutation(
            "tables/scan/reading.py",
            "            aborting.discard(header.producer_id)\n",
            "            pass\n",
        ),
        f"{TABLES}/test_reading.py",
    ),
    "a batch that was written is written again": (
        Mutation(
            "tables/write/transaction.py",
            "if self._written is None or self._written.offset <= batch_id:",
            "if self._written is None or self._written.offset <= batch_id + 1:",
        ),
        f"{TABLES}/test_transaction.py",
    ),
    "a batch is marked as written that was not": (
        Mutation(
            "tables/write/transaction.py",
            "CommittedOffset(batch_id + 1, str(content))",
            "CommittedOffset(batch_id + 2, str(content))",
        ),
        f"{TABLES}/test_transaction.py",
    ),
    "a task takes all that is left": (
        Mutation("tasks.py", "        room -= piece.size\n", "", "pyspark_odradek"),
        f"{SPARK}/test_tasks.py",
    ),
}
MUTANTS = Mutants(
    {name: mutation._replace(tests=[test]) for name, (mutation, test) in MUTATIONS.items()}
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The tests would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
