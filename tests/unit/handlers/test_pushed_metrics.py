"""Of the metrics that clients push the newest are kept, for a while, and no more than fit."""

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from tests.late_background import LateBackground
from tests.otlp import CUMULATIVE, gauge, point, pushed, total
from tests.unit.handlers.test_client_metrics import ask, push, subscribe

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.handlers.telemetry import client_metrics, pushed_metrics
from odradek.handlers.telemetry.client_metrics import INLINE_BYTES, MOST_LARGE, ClientMetricsManager
from odradek.handlers.telemetry.pushed_metrics import (
    KEPT_AFTER_LAST_MS,
    MOST_OF_A_PUSH,
    Counts,
    PushedMetrics,
)
from odradek.protocol import messages
from odradek.records.compression import Compression, compress

ME = UUID(int=77)
LAG = pushed(gauge("lag", point(2.5)))
ZSTD = Compression.ZSTD


def receiving(cluster, background=None):
    """The receiver of a broker that has one, whose clients push everything every second."""
    clock = cluster.context.clock
    receiver = PushedMetrics(clock)
    manager = ClientMetricsManager(
        *(cluster.cache, clock, 1 << 20, lambda: UUID(int=99)),
        *(background or InlineBackground(), receiver),
    )
    cluster.replace(client_metrics=manager)
    subscribe(cluster, "all", metrics="*", interval_ms="1000")
    return receiver


def values(receiver, who=ME):
    """The newest values of a client, by name and attributes."""
    return {
        (metric.name, *(text for _, text in metric.attributes)): value
        for client in receiver.clients()
        if client.id == who
        for metric, value in client.values.items()
    }


def take(receiver, *metrics, who=ME, resource=None, is_last=False):
    data = receiver.read(pushed(*metrics, resource=resource))
    client = client_metrics.Client("shop", "lib", "1", "192.0.2.7", "40000")
    receiver.take(who, client, data, 1000, is_last=is_last)


def test_a_push_takes_the_place_of_the_last(cluster):
    """A value would be shown that the client has long had no more."""
    receiver = receiving(cluster)
    number = ask(cluster).subscription_id
    first = pushed(gauge("lag", point(2, {"partition": 0}), point(3, {"partition": 1})))
    assert push(cluster, number, metrics=first) is ErrorCode.none
    assert values(receiver) == {("lag", "0"): 2.0, ("lag", "1"): 3.0}
    cluster.context.clock.advance(1000)
    second = compress(ZSTD, pushed(gauge("lag", point(5, {"partition": 1}))))
    assert push(cluster, number, codec=ZSTD, metrics=second) is ErrorCode.none
    assert values(receiver) == {("lag", "1"): 5.0}
    assert receiver.counts() == Counts(clients=1, values=1, names=1, left_out=0)


def test_sums_grow_by_what_has_come_to_them():
    """A counter would jump between what is new and nothing."""
    receiver = PushedMetrics(ManualClock())
    take(receiver, total("made", point(3)), total("sent", point(3), temporality=CUMULATIVE))
    take(receiver, total("made", point(2)), total("sent", point(5), temporality=CUMULATIVE))
    assert values(receiver) == {("made",): 5.0, ("sent",): 5.0}
    take(receiver, total("made", point(1), point(1)))
    assert values(receiver) == {("made",): 7.0}


def test_what_is_no_number_is_not_kept():
    """A mean of nothing would be shown as a value."""
    receiver = PushedMetrics(ManualClock())
    take(receiver, gauge("a", point(float("nan"))), gauge("b", point(float("inf")), point(1)))
    assert values(receiver) == {("b",): 1.0}


@pytest.mark.parametrize(("is_last", "kept_ms"), [(False, 3000), (True, KEPT_AFTER_LAST_MS)])
def test_who_is_not_heard_of_is_forgotten(is_last, kept_ms):
    """The values of clients that are gone would be shown for ever."""
    clock = ManualClock()
    receiver = PushedMetrics(clock)
    take(receiver, gauge("lag", point(1)), is_last=is_last)
    clock.advance(kept_ms - 1)
    assert values(receiver) == {("lag",): 1.0}
    clock.advance(1)
    assert values(receiver) == {}
    assert receiver.counts() == Counts(0, 0, 0, 0)


def test_of_the_resource_only_what_tells_clients_apart_is_kept():
    receiver = PushedMetrics(ManualClock())
    take(receiver, gauge("a", point(1)), resource={"group_id": "g", "client_rack": "", "x": "y"})
    [client] = receiver.clients()
    assert client.resource == (("group_id", "g"),)


def test_values_and_names_are_bounded(monkeypatch):
    """Clients could fill the memory with names of their own."""
    monkeypatch.setattr(pushed_metrics, "MOST_VALUES", 5)
    monkeypatch.setattr(pushed_metrics, "MOST_NAMES", 3)
    clock = ManualClock()
    receiver = PushedMetrics(clock)
    take(receiver, *(gauge(f"a{number}", point(1)) for number in range(4)))
    assert receiver.counts() == Counts(clients=1, values=3, names=3, left_out=1)
    take(receiver, *(gauge(f"a{number}", point(1)) for number in range(3)), who=UUID(int=78))
    assert receiver.counts() == Counts(clients=2, values=5, names=3, left_out=2)
    clock.advance(3000)
    take(receiver, gauge("b", point(1)), who=UUID(int=79))
    assert receiver.counts() == Counts(clients=1, values=1, names=1, left_out=2)


def test_a_client_that_pushes_again_has_room_for_what_it_had(monkeypatch):
    """A full receiver would lose the values of those that are known."""
    monkeypatch.setattr(pushed_metrics, "MOST_VALUES", 2)
    receiver = PushedMetrics(ManualClock())
    for _ in range(2):
        take(receiver, gauge("a", point(1)), gauge("b", point(1)))
        assert receiver.counts() == Counts(1, 2, 2, 0)
    take(receiver, gauge("c", point(1)), gauge("b", point(1)))
    assert values(receiver) == {("c",): 1.0, ("b",): 1.0}
    assert receiver.counts() == Counts(1, 2, 2, 0)
    take(receiver, gauge("b", point(float("nan"))))
    assert receiver.counts() == Counts(1, 0, 0, 0)


def test_one_push_is_bounded():
    receiver = PushedMetrics(ManualClock())
    take(receiver, gauge("a", *(point(1, {"n": n}) for n in range(MOST_OF_A_PUSH + 2))))
    assert receiver.counts() == Counts(1, MOST_OF_A_PUSH, MOST_OF_A_PUSH, 2)


def test_values_go_with_the_client(cluster, monkeypatch):
    """Values of more clients than are known would be kept."""
    monkeypatch.setattr(client_metrics, "MOST_INSTANCES", 2)
    receiver = receiving(cluster)
    for number in range(10, 13):
        who = UUID(int=number)
        assert push(cluster, ask(cluster, who).subscription_id, who, metrics=LAG) is ErrorCode.none
    assert [each.id for each in receiver.clients()] == [UUID(int=11), UUID(int=12)]


def test_values_stay_when_subscriptions_change(cluster):
    """A counter would begin anew whenever somebody subscribes."""
    receiver = receiving(cluster)
    made = pushed(total("made", point(3)))
    assert push(cluster, ask(cluster).subscription_id, metrics=made) is ErrorCode.none
    subscribe(cluster, "more", metrics="x", interval_ms="500")
    assert push(cluster, ask(cluster).subscription_id, metrics=made) is ErrorCode.none
    assert values(receiver) == {("made",): 6.0}


@pytest.mark.parametrize("metrics", [b"m", b"\x0a\x05", LAG[:-1], b"\xff" * 2000])
@pytest.mark.parametrize("size_bytes", [0, INLINE_BYTES])
def test_garbage_is_refused_and_changes_nothing(cluster, caplog, metrics, size_bytes):
    """Garbage would be taken for a push, or closed the connection."""
    receiver = receiving(cluster)
    number = ask(cluster).subscription_id
    assert push(cluster, number, metrics=LAG) is ErrorCode.none
    cluster.context.clock.advance(1000)
    padding = pushed(gauge("p" * size_bytes)) if size_bytes else b""
    code = push(cluster, number, codec=ZSTD, metrics=compress(ZSTD, padding + metrics))
    assert code is ErrorCode.invalid_record
    assert values(receiver) == {("lag",): 2.5}
    assert caplog.records == []


def large(cluster, who):
    """An unanswered push that is not small."""
    body = {
        "client_instance_id": who,
        "subscription_id": ask(cluster, who).subscription_id,
        "terminating": False,
        "compression_type": ZSTD,
        "metrics": compress(ZSTD, pushed(gauge("d" * INLINE_BYTES), gauge("lag", point(1)))),
    }
    exchange = cluster.exchange(72, 0, messages.encode_request(72, 0, body))
    cluster.dispatcher().handle_frame(exchange)
    return exchange


def test_large_pushes_are_read_elsewhere_and_few_at_a_time(cluster):
    """Reading megabytes would hold up everybody, and waiting ones fill the memory."""
    background = LateBackground()
    receiver = receiving(cluster, background)
    exchanges = [large(cluster, UUID(int=100 + number)) for number in range(MOST_LARGE)]
    assert [each.sent for each in exchanges] == [None] * MOST_LARGE
    number = ask(cluster).subscription_id
    assert push(cluster, number, metrics=LAG) is ErrorCode.throttling_quota_exceeded
    background.run()
    for each in exchanges:
        assert cluster.answer(each, 72, 0).error_code is ErrorCode.none
    assert receiver.counts().clients == MOST_LARGE
    cluster.context.clock.advance(1000)
    assert push(cluster, number, metrics=LAG) is ErrorCode.none
