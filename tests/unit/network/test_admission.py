"""Limits that keep strangers from taking everything: connections, log lines, buffers."""

import logging

import pytest

from odradek.clock import ManualClock
from odradek.log_limit import LimitedLog
from odradek.network.connection_quotas import ConnectionQuotas
from odradek.network.memory.receive_buffers import READ_BUFFER_BYTES, BufferPool, size_class
from odradek.network.memory.request_memory import RequestMemory


def test_quota_per_address_and_in_all() -> None:
    """Goal: one address cannot take every connection, and all together stay under the limit."""
    quotas = ConnectionQuotas(4, 2, {"10.0.0.9": 3, "10.0.0.0": 0})
    assert [quotas.admit("10.0.0.1") is None for _ in range(3)] == [True, True, False]
    assert quotas.admit("10.0.0.0") is not None
    assert quotas.admit("10.0.0.9") is None
    assert quotas.admit("10.0.0.9") is None
    assert "max.connections" in (quotas.admit("10.0.0.9") or "")
    quotas.leave("10.0.0.1")
    assert quotas.admit("10.0.0.9") is None


def test_brokers_are_let_in_over_a_full_one() -> None:
    """Clients could cut a broker off from its controller and its followers."""
    quotas = ConnectionQuotas(1, 1)
    assert quotas.admit("10.0.0.1") is None
    assert quotas.admit("10.0.0.2") is not None
    assert quotas.admit("10.0.0.2", is_protected=True) is None
    assert quotas.admit("10.0.0.2", is_protected=True) is not None
    quotas.leave("10.0.0.2")
    assert quotas.total == 1


def test_a_flood_is_one_line_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: what a stranger causes in a loop does not fill the log."""
    clock = ManualClock()
    log = LimitedLog(logging.getLogger("test"), clock, interval_ms=1000)
    for _ in range(50):
        log.warning("refused")
    clock.advance(1000)
    log.warning("refused")
    assert [record.message for record in caplog.records] == [
        "refused",
        "refused (49 similar lines left out)",
    ]


def test_the_pool_keeps_a_bounded_amount() -> None:
    """Goal: a burst of large frames does not stay in memory for ever."""
    pool = BufferPool(retained_max_bytes=1 << 20)
    buffers = [pool.take(READ_BUFFER_BYTES + 1) for _ in range(10)]
    for buffer in buffers:
        pool.give(buffer)
    assert pool.retained_bytes == 1 << 20
    assert pool.take(READ_BUFFER_BYTES + 1) in buffers


def test_size_classes_hold_what_was_asked() -> None:
    """Goal: a buffer is never smaller than the frame it is taken for."""
    for size in (0, 1, READ_BUFFER_BYTES, READ_BUFFER_BYTES + 1, 1 << 20, (1 << 20) + 1):
        assert size <= size_class(size) <= max(READ_BUFFER_BYTES, 2 * size)


def test_memory_may_be_exceeded_by_one_frame_only() -> None:
    """Goal: a frame larger than what is left still gets through, the next one waits."""
    memory = RequestMemory(100)
    woken: list[int] = []
    assert memory.try_charge(60)
    assert memory.try_charge(60)
    assert not memory.try_charge(1)
    memory.wait(lambda: woken.append(1))
    memory.release(10)
    assert woken == []
    memory.release(50)
    assert woken == [1]
