"""Which quota holds, and for how long it keeps a client away."""

import sys

import pytest

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey
from odradek.clock import ManualClock
from odradek.metadata.image import MetadataImage
from odradek.metadata.quota_changes import alter_client_quotas
from odradek.security.quotas import ClientRates, Limit, MutationBuckets, QuotaLimits, limits

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTES, QuotaKey.CONSUMER_BYTES
PRECEDENCE = [
    (QuotaEntity("alice", "app"), ("alice", "app")),
    (QuotaEntity("alice", DEFAULT), ("alice", "app")),
    (QuotaEntity(DEFAULT, "app"), ("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), ("alice", "app")),
    (QuotaEntity(user="alice"), ("alice", None)),
    (QuotaEntity(user=DEFAULT), ("alice", None)),
    (QuotaEntity(client_id="app"), (None, "app")),
    (QuotaEntity(client_id=DEFAULT), (None, "app")),
]


def limits_with(quotas):
    found = QuotaLimits()
    change = alter_client_quotas(MetadataImage("c"), quotas)
    if change.delta is not None:
        found.apply(change.delta)
    return found


def test_the_finest_quota_holds():
    """Kafka's order of eight: another one would throttle somebody else's clients."""
    quotas = {entity: {PRODUCE: 100.0 + at} for at, (entity, _) in enumerate(PRECEDENCE)}
    while quotas:
        held = limits_with(quotas)
        entity = next(iter(quotas))
        who = dict(PRECEDENCE)[entity]
        assert held.find(PRODUCE, "alice", "app") == Limit(quotas[entity][PRODUCE], PRODUCE, *who)
        assert held.find(CONSUME, "alice", "app") is None
        del quotas[entity]
    assert not limits_with({})


def test_a_quota_that_goes_holds_no_longer():
    """The remembered use of a client would bound it for ever."""
    entity = QuotaEntity(user="alice")
    change = alter_client_quotas(MetadataImage("c"), {entity: {PRODUCE: 5.0}})
    held = QuotaLimits()
    held.apply(change.delta)
    assert held.find(PRODUCE, "alice", "x").per_second == 5
    held.apply(alter_client_quotas(change.delta.image, {entity: {PRODUCE: None}}).delta)
    assert held.find(PRODUCE, "alice", "x") is None
    assert not held


def test_remembered_answers_are_bounded(monkeypatch):
    """A client that makes up client ids would fill the memory."""
    monkeypatch.setattr(limits, "KNOWN_LIMITS", 3)
    held = limits_with({QuotaEntity(user="alice"): {PRODUCE: 5.0}})
    for number in range(10):
        held.find(PRODUCE, "bob", f"made-up-{number}")
    assert len(held._known) <= 3


@pytest.mark.parametrize("elapsed_ms", [0, 400])
def test_the_throttle_is_kafkas(elapsed_ms):
    """(O - T) / T x W: a client would be kept away for too long, or come back too early."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = ClientRates(clock, 11, 1000)
    limit = Limit(1000, PRODUCE, "alice", None)
    assert rates.charge(limit, 10_000) == 0
    clock.advance(elapsed_ms)
    window_ms = 10_000 + elapsed_ms
    observed = 15_000 * 1000 / window_ms
    assert rates.charge(limit, 5_000) == round((observed - 1000) / 1000 * window_ms)


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-9, 1])
def test_a_throttle_is_no_longer_than_a_response_can_say(rate):
    """A client of a tiny quota would get no answer: the number is one of 32 bits."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = ClientRates(clock, 11, 1000)
    assert 2**30 < rates.charge(Limit(rate, PRODUCE, "alice", None), 3_000_000) < 2**31
    buckets = MutationBuckets(clock, 11, 1000)
    limit = Limit(rate, QuotaKey.CONTROLLER_MUTATIONS, "alice", None)
    buckets.take(limit, 3_000_000)
    assert 2**30 < buckets.wait_ms(limit) < 2**31


def test_the_largest_number_is_no_quota():
    """Its tokens, and the bytes of ten seconds, are more than any number can say."""
    clock = ManualClock(monotonic_ms=1_000_000)
    most = Limit(sys.float_info.max, PRODUCE, "alice", None)
    rates = ClientRates(clock, 11, 1000)
    assert rates.charge(most, 3_000_000) == 0
    assert rates.most_at_once(most) == 2**63 - 1
    buckets = MutationBuckets(clock, 11, 1000)
    buckets.take(most, 3_000_000)
    assert buckets.wait_ms(most) == 0


def test_what_was_not_used_is_given_back():
    """A fetch that was answered without records would keep its consumer away again and again."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = ClientRates(clock, 11, 1000)
    limit = Limit(1000, CONSUME, "alice", None)
    assert rates.charge(limit, 9_000) == 0
    assert rates.charge(limit, 2_000) > 0
    rates.give_back(limit, 2_000)
    assert rates.charge(limit, 1_000) == 0


def test_a_client_that_is_gone_is_forgotten():
    """A suite that makes a client id a test would fill the memory of a session's broker."""
    clock = ManualClock(monotonic_ms=1_000_000)
    rates = ClientRates(clock, 11, 1000)
    for number in range(5):
        rates.charge(Limit(1, PRODUCE, None, f"old-{number}"), 1)
    clock.advance(3_600_000)
    rates.charge(Limit(1, PRODUCE, None, "new"), 1)
    assert len(rates) == 1


def test_a_bucket_may_be_overdrawn_and_fills_again():
    """One large request would never be let through, or many small ones all."""
    clock = ManualClock(monotonic_ms=1_000_000)
    buckets = MutationBuckets(clock, 11, 1000)
    limit = Limit(2, QuotaKey.CONTROLLER_MUTATIONS, "alice", None)
    assert buckets.wait_ms(limit) == 0
    buckets.take(limit, 32)  # of 22
    assert buckets.wait_ms(limit) == 5_000
    clock.advance(4_000)
    assert buckets.wait_ms(limit) == 1_000
    clock.advance(1_000)
    assert buckets.wait_ms(limit) == 0
    clock.advance(60_000)
    buckets.take(limit._replace(user="bob"), 1)
    assert len(buckets) == 1, "a full one is as good as none"
