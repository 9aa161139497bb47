"""If these fail, a pipeline needs a heap for a hundred of its records at once, however large."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import odradek
from pyspark_odradek.pipelines import PipelineSettings, archive, compact, read_table
from pyspark_odradek.pipelines.ends.directories import ClaimedLock, put_table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

TIME_MS = 1_700_000_000_000
SMALL, LARGE, LARGE_BYTES = 200, 48, 1 << 20
# One of 32 MiB that was looked at ten rows too late.
LARGEST_GROUP_BYTES = 43 << 20


@pytest.fixture(scope="module")
def settings(spark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An archive of large records, small ones and large ones again, in two files of an hour."""
    target = str(tmp_path_factory.mktemp("large") / "archive")
    with odradek.Broker() as broker:
        own = {"retention.ms": "-1", "max.message.bytes": str(2 * LARGE_BYTES)}
        broker.create_topic("large", partitions=1, config=own)
        settings = PipelineSettings(
            broker.bootstrap_servers, "large", to=target, source=target, file_bytes=1 << 30
        )
        content = random.Random(36)
        for size in (*[LARGE_BYTES] * LARGE, *[0] * SMALL, *[LARGE_BYTES] * LARGE):
            broker.produce("large", content.randbytes(size), timestamp=TIME_MS)
        archive.build(spark, settings).run()
        broker.produce("large", b"", timestamp=TIME_MS)
        archive.build(spark, settings).run()
        yield settings


def test_row_groups_are_bounded_by_bytes(spark, settings) -> None:
    """Parquet looked at their size after 100 rows: 75 records of 1.5 MB ended a heap of 1 GB."""
    assert are_bounded(settings.to)
    before = set(files_in(settings.to))
    compact.build(spark, settings).run()
    [compacted] = set(files_in(settings.to)) - before
    assert are_bounded(compacted)
    copy = f"{settings.to}-copy"
    table = read_table(spark, settings.to)
    assert table is not None
    put_table(spark, table.coalesce(1), copy, ClaimedLock(spark, copy, "latest", "large"))
    assert are_bounded(copy)


def files_in(place: Path | str) -> list[Path]:
    return sorted(Path(place).rglob("*.parquet")) or [Path(place)]


def are_bounded(place: Path | str) -> bool:
    """Whether no row group has more bytes than it may; then no page has either."""
    groups = [
        metadata.row_group(number)
        for metadata in (pq.ParquetFile(path).metadata for path in files_in(place))
        for number in range(metadata.num_row_groups)
    ]
    assert sum(group.num_rows for group in groups) >= 2 * LARGE + SMALL
    return max(group.total_byte_size for group in groups) < LARGEST_GROUP_BYTES
