"""If these fail, a restart of a broker that takes a minute ends every query that was reading."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import odradek
from odradek.cli.free_port import free_port
from odradek.client.errors import KafkaError
from odradek.client.sync import cluster, waiting
from odradek.clock import ManualClock
from odradek.tables.plan.options import ClientOptions
from odradek.tables.topic import Topic

PATIENCE_MS = ClientOptions("nowhere:1").patience_ms


def rest_when_back_after(
    away_ms: int, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[pa.RecordBatch]:
    """The records that are left to read when the broker goes away for so long in the middle of a
    read.

    The time that passes is that of the reader's pauses.
    """
    clock, listeners = ManualClock(), (f"PLAINTEXT://127.0.0.1:{free_port()}",)
    monkeypatch.setattr(cluster, "SystemClock", lambda: clock)
    with ExitStack() as back:

        def sleep(seconds: float) -> None:
            before_ms = clock.monotonic_ms()
            clock.advance(max(1, round(seconds * 1000)))
            if before_ms < away_ms <= clock.monotonic_ms():
                back.enter_context(odradek.Broker(folder, listeners))

        monkeypatch.setattr(waiting, "time", SimpleNamespace(sleep=sleep))
        with odradek.Broker(folder, listeners) as broker:
            broker.create_topic("t", partitions=2)
            broker.produce("t", "first", partition=0)
            broker.produce("t", "second", partition=1)
            batches = Topic("t", bootstrap_servers=broker.bootstrap_servers).batches()
            assert next(batches)["value"].to_pylist() == [b"first"]
        yield from batches


def test_a_read_goes_on_when_the_broker_is_back_within_its_patience(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [batch] = rest_when_back_after(PATIENCE_MS - 5_000, monkeypatch, tmp_path)
    assert batch["value"].to_pylist() == [b"second"]


def test_a_read_ends_with_an_error_when_the_broker_stays_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(KafkaError):
        list(rest_when_back_after(PATIENCE_MS + 5_000, monkeypatch, tmp_path))
