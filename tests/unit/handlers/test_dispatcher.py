"""Routing, refusing, and what an unexpected exception turns into."""

import inspect
import logging
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from tests.unit.handlers.conftest import RecordingExchange

from odradek.errors import ErrorCode
from odradek.handlers.api import Cost
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.request import RequestObserver, RequestQuotas
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE, WhenAsked
from odradek.protocol import messages

METADATA, API_VERSIONS, PRODUCE = 3, 18, 0


@pytest.fixture
def table():
    return dict(API_TABLE)


def handle(cluster, exchange):
    cluster.dispatcher().handle_frame(exchange)
    return exchange


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(999, 0), (-1, 0), (METADATA, 99), (METADATA, -1), (19, 1), (24, 0)],
)
def test_what_is_not_advertised_closes_the_connection(cluster, caplog, api_key, version):
    """A client would wait for an answer that never comes, or the log would say nothing."""
    exchange = handle(cluster, cluster.exchange(api_key, version, b""))
    assert exchange.closed
    assert exchange.sent is None
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_an_api_that_is_not_served_is_logged_once_a_minute(cluster, caplog):
    """A client that asks again and again would fill the disk with lines."""
    dispatcher = cluster.dispatcher()
    for _ in range(3):
        dispatcher.handle_frame(cluster.exchange(88, 0, b""))
    dispatcher.handle_frame(cluster.exchange(89, 0, b""))
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "API 88 (streams_group_heartbeat) is not served",
        "API 89 (streams_group_describe) is not served",
    ]
    cluster.context.clock.advance(60_000)
    dispatcher.handle_frame(cluster.exchange(88, 0, b""))
    assert "2 similar lines left out" in caplog.records[-1].message


@pytest.mark.parametrize("frame", [b"", b"\0\x03", b"\0\x03\0\0\0\0\0\x01\x7f\xff"])
def test_a_malformed_header_closes_the_connection(cluster, caplog, frame):
    """Garbage would raise into the network."""
    exchange = handle(cluster, RecordingExchange(frame))
    assert exchange.closed
    assert len(caplog.records) == 1


def test_a_malformed_body_closes_the_connection(cluster, caplog):
    """A request that was not understood would be answered all the same."""
    exchange = handle(cluster, cluster.exchange(METADATA, 1, b"\x7f\xff\xff\xff"))
    assert exchange.closed
    assert "malformed Metadata version 1" in caplog.text


def test_an_exception_is_logged_once_and_answered(cluster, table, caplog):
    """A bug in one handler would stop the broker or leave its client without an answer."""

    def explode(context, request):
        raise RuntimeError("boom")

    table[METADATA] = replace(table[METADATA], handle=explode)
    cluster.replace(apis=table)
    answer = cluster.ask(METADATA, 9, topics=[{"name": "orders"}])
    assert answer.topics[0].error_code is KioErrorCode.unknown_server_error
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_an_exception_without_a_shape_for_it_closes_the_connection(cluster, table, caplog):
    """The client would wait for ever."""

    def explode(context, request):
        raise RuntimeError("boom")

    table[METADATA] = replace(table[METADATA], handle=explode, fail=None)
    cluster.replace(apis=table)
    assert handle(cluster, cluster.exchange(METADATA, 0, b"\0\0\0\0")).closed


def test_an_exception_in_a_failing_answer_closes_the_connection(cluster, table, caplog):
    """A second bug in the answer for the first would escape."""

    def explode(*arguments):
        raise RuntimeError("boom")

    table[METADATA] = replace(table[METADATA], handle=explode, fail=explode)
    cluster.replace(apis=table)
    assert handle(cluster, cluster.exchange(METADATA, 0, b"\0\0\0\0")).closed


def test_an_exception_in_a_callback_is_answered_too(cluster, table, caplog):
    """A bug behind a commit would leave the client without an answer."""
    later = []

    def wait(context, request):
        request.body()
        later.append(request.guard(lambda result: 1 // result))

    table[METADATA] = replace(table[METADATA], handle=wait)
    cluster.replace(apis=table)
    exchange = handle(cluster, cluster.exchange(METADATA, 1, b"\0\0\0\0"))
    assert exchange.sent is None
    later[0](0)
    assert cluster.answer(exchange, METADATA, 1).topics == ()
    assert "ZeroDivisionError" in caplog.text


def test_a_late_answer_after_a_failure_is_dropped(cluster, table, caplog):
    """The client would be sent two answers to one request."""
    later = []

    def answer_and_fail(context, request):
        later.append(request)
        raise RuntimeError("boom")

    table[METADATA] = replace(table[METADATA], handle=answer_and_fail)
    cluster.replace(apis=table)
    exchange = handle(cluster, cluster.exchange(METADATA, 1, b"\0\0\0\0"))
    first = exchange.sent
    later[0].answer(topics=[])
    assert exchange.sent == first


def batching(context, request):
    request.exchange.batched = True


def batched_row(cluster, row):
    """A row that only batches, and counts the ends of reads."""
    return replace(row, handle=batching, end_of_read=lambda context: cluster.flush())


def test_batched_requests_are_carried_out_at_the_end_of_a_read(cluster, table):
    """Produce requests would be appended one by one, or never."""
    table[PRODUCE] = batched_row(cluster, table[PRODUCE])
    cluster.replace(apis=table)
    dispatcher = cluster.dispatcher()
    dispatcher.end_of_read()
    assert cluster.reads_ended == 0
    for _ in range(3):
        dispatcher.handle_frame(cluster.exchange(PRODUCE, 9, b""))
    assert cluster.reads_ended == 0
    dispatcher.end_of_read()
    dispatcher.end_of_read()
    assert cluster.reads_ended == 1


def test_another_api_has_what_is_batched_done_before_it(cluster, table):
    """A fetch behind a produce on one connection would not see its records."""
    table[PRODUCE] = batched_row(cluster, table[PRODUCE])
    cluster.replace(apis=table)
    dispatcher = cluster.dispatcher()
    dispatcher.handle_frame(cluster.exchange(PRODUCE, 9, b""))
    dispatcher.handle_frame(cluster.exchange(METADATA, 0, b"\0\0\0\0"))
    assert cluster.reads_ended == 1


def test_a_failed_end_of_read_answers_every_batched_request(cluster, table, caplog):
    """Producers would wait for their time-out."""
    failed = []

    def explode(context):
        raise RuntimeError("boom")

    table[PRODUCE] = replace(
        table[PRODUCE],
        handle=batching,
        end_of_read=explode,
        fail=lambda request, code: failed.append(code),
    )
    cluster.replace(apis=table)
    dispatcher = cluster.dispatcher()
    dispatcher.handle_frame(cluster.exchange(PRODUCE, 9, b""))
    dispatcher.handle_frame(cluster.exchange(PRODUCE, 9, b""))
    dispatcher.end_of_read()
    assert failed == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def test_the_observer_hears_of_a_request_and_its_answer(cluster):
    """Request counters and timings would be wrong."""
    heard = []

    class Observer(RequestObserver):
        def received(self, request):
            heard.append(("received", request.api_key, request.client_id))

        def completed(self, request):
            heard.append(("completed", request.api_key, request.client_id))

    cluster.replace(observer=Observer())
    cluster.ask(API_VERSIONS, 0)
    assert heard == [("received", API_VERSIONS, "test"), ("completed", API_VERSIONS, "test")]


@pytest.mark.parametrize("api", ZOOKEEPER_API_TABLE.values(), ids=lambda api: api.name)
def test_every_advertised_version_can_be_read_and_written(api):
    """A client would be told of a version that closes its connection."""
    known = messages.versions(api.key)
    first = known[0] if api.key in (0, 1, 2) else api.min_version
    assert set(range(first, api.max_version + 1)) <= set(known)
    for version in range(first, api.max_version + 1):
        assert messages.is_flexible(api.key, version) == (version >= api.flexible_from)


def test_who_waits_lets_go_of_the_frame(cluster, table):
    """Ten thousand waiting consumers would hold ten thousand receive buffers."""
    waiting = []

    def wait(context, request):
        waiting.append(request.body())

    table[METADATA] = replace(table[METADATA], handle=wait)
    cluster.replace(apis=table)
    exchange = handle(cluster, cluster.exchange(METADATA, 1, b"\0\0\0\0"))
    with pytest.raises(AssertionError, match="after its release"):
        len(exchange.frame)


def test_who_keeps_the_frame_has_it_until_the_answer(cluster, table):
    """Records that wait to be appended would be overwritten by the next request."""
    waiting = []

    def wait(context, request):
        request.keep_frame()
        waiting.append(request)

    table[METADATA] = replace(table[METADATA], handle=wait)
    cluster.replace(apis=table)
    exchange = handle(cluster, cluster.exchange(METADATA, 1, b"\0\0\0\0"))
    assert bytes(exchange.frame[-4:]) == b"\0\0\0\0"


class Quotas(RequestQuotas):
    """Throttles by what was used, and notes the charges."""

    def __init__(self):
        self.charged = []

    def throttle_time_ms(self, request, api):
        self.charged.append((api.name, api.cost, request.size_bytes))
        return 70


def test_a_throttled_request_is_answered_and_its_connection_muted(cluster):
    """A client that is told of no throttle time would wait for ever, or not at all."""
    quotas = Quotas()
    cluster.replace(quotas=quotas)
    exchange = handle(cluster, cluster.exchange(METADATA, 9, b"\1\0\0\0\0"))
    answer = cluster.answer(exchange, METADATA, 9)
    assert answer.throttle_time == timedelta(milliseconds=70)
    assert exchange.throttled_ms == 70
    size_bytes = 8 + 2 + len("test") + 1 + 5  # header and body
    assert quotas.charged == [("Metadata", Cost.REQUEST_TIME, size_bytes)], "charged once"


def test_an_answer_without_a_throttle_time_mutes_all_the_same(cluster):
    """The oldest clients would not be throttled at all."""
    cluster.replace(quotas=Quotas())
    exchange = handle(cluster, cluster.exchange(METADATA, 0, b"\0\0\0\0"))
    assert cluster.answer(exchange, METADATA, 0).topics == ()
    assert exchange.throttled_ms == 70


class Stopwatch(RequestQuotas):
    """Throttles nobody; a handler takes 6 ns a look at the time."""

    def __init__(self):
        self.now_ns = 0
        self.took_ns = []

    def busy_ns(self):
        self.now_ns += 6
        return self.now_ns

    def took(self, request, api, time_ns):
        self.took_ns.append((api.name, time_ns))


def test_the_time_of_a_batch_is_shared_by_its_requests(cluster):
    """The first or the last of a read would pay for all appends."""
    table = dict(API_TABLE)

    def leave(context, request):
        request.exchange.batched = True

    table[METADATA] = replace(table[METADATA], handle=leave, end_of_read=lambda context: None)
    quotas = Stopwatch()
    cluster.replace(apis=table, quotas=quotas)
    dispatcher = Dispatcher(cluster.context)
    for _ in range(3):
        dispatcher.handle_frame(cluster.exchange(METADATA, 9, b"\1\0\0\0\0"))
    assert quotas.took_ns == [("Metadata", 6)] * 3
    dispatcher.end_of_read()
    assert quotas.took_ns[3:] == [("Metadata", 2)] * 3


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_every_row_says_what_a_caller_needs(api):
    """An API would be open to everybody once there are permissions, or refuse its own module."""
    words = re.findall("[A-Z][a-z]+", api.name)
    handle, fail = inspect.unwrap(api.handle), api.fail
    owner = getattr(handle, "__self__", None)
    if isinstance(owner, WhenAsked):
        module = owner.module
        handle, fail = module.handle, module.fail
        assert not hasattr(module, "end_of_read"), "who has one is imported from the start"
        assert not hasattr(module, "refuse"), "likewise"
    assert handle.__module__.startswith("odradek.handlers.")
    assert handle.__module__.rpartition(".")[2] == "_".join(words).lower()
    assert fail.__module__ == handle.__module__
    for_anybody = (
        *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
        *("GetTelemetrySubscriptions", "PushTelemetry"),
    )
    assert (api.permission is None) == (api.name in for_anybody)


COLD = [api for api in API_TABLE.values() if api.key not in (0, 1, 2, 21, 23, 61)]


@pytest.mark.parametrize("api", COLD, ids=lambda api: api.name)
def test_every_api_can_say_that_it_failed_in_every_version(cluster, table, api, caplog):
    """A failure would become a closed connection, or a second exception."""

    def explode(context, request):
        raise RuntimeError("boom")

    table[api.key] = replace(api, handle=explode)
    cluster.replace(apis=table)
    for version in range(api.min_version, api.max_version + 1):
        assert cluster.ask(api.key, version) is not None
