"""If these fail, Spark's Python processes go through all their imports after every task."""

import subprocess
import sys

import pytest
from tests.deadlines import deadline_s

import odradek

# What a process of Spark's does, each kind of them one of these; then garbage is collected.
WORK = """
import gc, sys
from types import SimpleNamespace
import pyarrow as pa
from pyspark_odradek.sink import write_batches
from pyspark_odradek.sink_options import parse_sink_options
from pyspark_odradek.source import DefaultSource
from pyspark_odradek.workers import freeze_imports
_, name, work, servers = sys.argv
source = DefaultSource({"kafka.bootstrap.servers": servers, "subscribe": "orders"})
reader = source.reader(source.schema())
tasks = reader.partitions() if work == "read" else []
sys.modules["__main__"].__spec__ = SimpleNamespace(name=name)
freeze_imports.cache_clear()
match work:
    case "describe":
        source.schema()
    case "plan":
        assert len(reader.partitions()) == 1
    case "read":
        assert [batch.num_rows for batch in reader.read(tasks[0])] == [1]
    case "write":
        options = {"kafka.bootstrap.servers": servers, "topic": "orders"}
        rows = pa.RecordBatch.from_pydict({"value": ["two spools"]})
        write_batches(parse_sink_options(options, streaming=False), iter([rows]))
print(len(gc.get_objects()))
"""


@pytest.mark.parametrize(
    ("name", "work", "is_worker"),
    [
        ("pyspark.daemon", "describe", True),
        ("pyspark.daemon", "plan", True),
        ("pyspark.daemon", "read", True),
        ("pyspark.daemon", "write", True),
        # Who reads in a process of their own has their own way with its garbage.
        ("my.job", "read", False),
    ],
)
def test_a_worker_has_little_to_collect_after_its_work(
    name: str, work: str, is_worker: bool
) -> None:
    with odradek.Broker() as broker:
        broker.produce("orders", "a spool of thread")
        command = [sys.executable, "-c", WORK, name, work, broker.bootstrap_servers]
        shown = subprocess.run(
            command, capture_output=True, text=True, timeout=deadline_s(120), check=True
        )
    assert (int(shown.stdout) < 5_000) == is_worker
