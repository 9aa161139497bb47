"""The stages of requests, on a clock that the test moves."""

from dataclasses import replace

import pytest

from odradek.errors import ErrorCode
from odradek.handlers.request_metrics import RequestMetrics
from odradek.handlers.table import API_TABLE

METADATA, HEARTBEAT = 3, 12


class Counted:
    """A dispatcher whose one API does what the test says, and what was counted."""

    def __init__(self, cluster, handle, **row):
        self.clock = cluster.context.clock
        self.folded = folded = []
        self.metrics = RequestMetrics(self.clock, API_TABLE, folded.append)
        api = replace(API_TABLE[METADATA], handle=handle, **row)
        cluster.replace(apis={METADATA: api}, observer=self.metrics)
        self.dispatcher = cluster.dispatcher()
        self.cluster = cluster

    def ask(self, received_ms_ago=0):
        exchange = self.cluster.exchange(METADATA, 9, b"\0\0\0\0\0")
        exchange.received_ms = self.clock.monotonic_ms() - received_ms_ago
        self.dispatcher.handle_frame(exchange)
        return exchange

    def values(self, name, **tags):
        return [
            sample.value
            for sample in self.metrics.samples()
            if sample.name == name and dict(sample.tags).items() >= tags.items()
        ]

    def total(self, name):
        [histogram] = self.values(name, request="Metadata")
        return histogram.count, histogram.total


def test_each_stage_has_its_time(cluster):
    """Fails when a slow broker is taken for slow replicas, or a busy loop for a slow handler."""
    waiting = []

    def handle(context, request):
        context.clock.advance(20)
        waiting.append(request)

    counted = Counted(cluster, handle)
    counted.ask(received_ms_ago=5)
    counted.clock.advance(300)
    waiting[0].answer()
    stages = ("RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs", "TotalTimeMs", "ThrottleTimeMs")
    assert [counted.total(stage) for stage in stages] == [
        (1, 5),
        (1, 20),
        (1, 300),
        (1, 325),
        (1, 0),
    ]


def test_what_is_answered_at_once_has_not_waited(cluster):
    """Fails when the time of a handler is counted as waiting."""

    def handle(context, request):
        context.clock.advance(20)
        request.answer()

    counted = Counted(cluster, handle)
    counted.ask()
    assert counted.total("LocalTimeMs") == (1, 20)
    assert counted.total("RemoteTimeMs") == (1, 0)


def test_requests_that_take_no_time_are_counted_in_every_stage(cluster):
    """Fails when quick requests, which are counted together, are lost."""
    counted = Counted(cluster, lambda _context, request: request.answer())
    for _ in range(3):
        counted.ask()
        counted.clock.advance(700)
    for stage in ("TotalTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "ResponseSendTimeMs"):
        assert counted.total(stage) == (3, 0)
    [sizes] = counted.values("RequestBytes", request="Metadata")
    assert sizes.count == 3
    assert sizes.least > 0


def test_batched_requests_are_handled_until_their_read_ends(cluster):
    """Fails when produces seem to wait for others although they only wait for their neighbours."""
    waiting = []

    def handle(_context, request):
        request.exchange.batched = True
        waiting.append(request)

    def end_of_read(context):
        context.clock.advance(8)
        waiting[0].answer()

    counted = Counted(cluster, handle, end_of_read=end_of_read)
    counted.ask()
    counted.ask()
    counted.dispatcher.end_of_read()
    assert counted.total("LocalTimeMs") == (1, 8)
    counted.clock.advance(100)
    waiting[1].answer()
    assert counted.total("LocalTimeMs") == (2, 16)
    assert counted.total("RemoteTimeMs") == (2, 100)


def test_errors_are_counted_wherever_they_lie(cluster):
    """Fails when a partition's error hides behind a sound answer."""

    def handle(_context, request):
        partition = {"error_code": ErrorCode.LEADER_NOT_AVAILABLE}
        request.answer(topics=[{"error_code": 0, "partitions": [partition, partition]}])

    counted = Counted(cluster, handle)
    counted.ask()
    [meter] = counted.values("ErrorsPerSec", error="LEADER_NOT_AVAILABLE")
    assert meter.count == 2
    assert counted.values("ErrorsPerSec", error="NONE") == []


@pytest.mark.parametrize("ends", ["close", "no_op", "fail"])
def test_every_end_of_a_request_is_counted(cluster, ends, caplog):
    """Fails when requests that are never answered are missing from the counts."""

    def handle(_context, request):
        if ends == "fail":
            raise RuntimeError("on purpose")
        getattr(request, ends)()

    counted = Counted(cluster, handle)
    counted.ask()
    assert counted.total("TotalTimeMs") == (1, 0)
    [meter] = counted.values("RequestsPerSec", request="Metadata", version="9")
    assert meter.count == 1


def test_apis_that_boards_draw_are_there_before_anybody_asks(cluster):
    """Fails when a fresh broker's board has holes."""
    names = {
        dict(sample.tags)["request"]
        for sample in RequestMetrics(cluster.context.clock, API_TABLE, [].append).samples()
    }
    assert names == {"Produce", "Fetch", "FetchConsumer", "FetchFollower", "Metadata"}
