"""The series that no other exporter has: only the broker itself can know them."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.metrics.histogram import QUANTILES
from odradek.server.monitoring.exposition import COUNTER, GAUGE, UNTYPED, Exposition
from odradek.server.monitoring.time_lags import TimeLags

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer

AGES_S: Final = (0.1, 1, 10, 60, 600)
_AGE_WORDS: Final = (*(str(each) for each in AGES_S), "+Inf")


def add_own_series(
    out: Exposition, server: "BrokerServer", lags: TimeLags, *, shows_partitions: bool
) -> Iterator[None]:
    """Adds them; others may run whenever it yields."""
    _add_timer(out, server)
    yield from _add_waits(out, server)
    yield from _add_lags(out, lags, shows_partitions)
    states: dict[str, int] = {}
    for shard in server.coordinators.transactions.coordinator.shards():
        for value in list(shard.transactions.values()):
            states[value.state.name] = states.get(value.state.name, 0) + 1
        yield
    for state, count in states.items():
        out.add("odradek_transactions", GAUGE, (("state", state.lower()),), count)
    partitions = len(server.replicas.partitions)
    left_out = 0 if shows_partitions else partitions
    out.add("odradek_metrics_partitions_left_out", GAUGE, (), left_out)


def _add_timer(out: Exposition, server: "BrokerServer") -> None:
    """The wheels, level by level, and how late time-outs run."""
    timer = server.timer
    out.add("odradek_timer_pending", GAUGE, (), timer.size)
    for level, wheel in enumerate(timer.wheel.levels(), 1):
        tags = (("level", str(level)), ("tick_ms", str(wheel.tick_ms)))
        filled = sum(not bucket.empty for bucket in wheel.buckets)
        out.add("odradek_timer_filled_buckets", GAUGE, tags, filled)
    name = "odradek_timer_lateness_seconds"
    out.add(f"{name}_count", UNTYPED, (), server.lateness.count)
    for share, value in zip(QUANTILES, server.lateness.quantiles(), strict=True):
        out.add(name, GAUGE, (("quantile", str(share)),), value / 1000)


def _add_waits(out: Exposition, server: "BrokerServer") -> Iterator[None]:
    """How many operations wait in each purgatory, by their age, in cumulative buckets as in a
    histogram."""
    now_ms = server.timer.now_ms
    for purgatory in server.purgatories():
        counts = [0] * (len(AGES_S) + 1)
        oldest_ms = now_ms
        for since_ms in purgatory.waiting_since():
            counts[bisect_left(AGES_S, (now_ms - since_ms) / 1000)] += 1
            oldest_ms = min(oldest_ms, since_ms)
            yield
        total = 0
        for word, count in zip(_AGE_WORDS, counts, strict=True):
            total += count
            tags = (("purgatory", purgatory.name), ("age", word))
            out.add("odradek_purgatory_waiting", GAUGE, tags, total)
        name = ("purgatory", purgatory.name)
        oldest_s = (now_ms - oldest_ms) / 1000
        out.add("odradek_purgatory_oldest_wait_seconds", GAUGE, (name,), oldest_s)
        for reason, completed in purgatory.stats.completed_by_check.items():
            by_reason = (name, ("reason", reason))
            out.add("odradek_purgatory_completed_total", COUNTER, by_reason, completed)
        yield


def _add_lags(out: Exposition, lags: TimeLags, shows_partitions: bool) -> Iterator[None]:
    """The lags in time, of each partition and the longest of each group."""
    longest: dict[str, int] = {}
    for lag in lags.read():
        if lag is None:
            yield
            continue
        group_id, where, lag_ms = lag
        longest[group_id] = max(longest.get(group_id, 0), lag_ms)
        if shows_partitions:
            tags = (
                ("consumergroup", group_id),
                ("partition", str(where.partition)),
                ("topic", where.topic),
            )
            out.add("odradek_consumergroup_lag_seconds", GAUGE, tags, lag_ms / 1000)
    for group_id, lag_ms in longest.items():
        tags_of_group = (("consumergroup", group_id),)
        out.add("odradek_consumergroup_lag_seconds_max", GAUGE, tags_of_group, lag_ms / 1000)
