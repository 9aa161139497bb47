"""A broker's rules without network and disk: real metadata, controller and table, one listener."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest
from tests.late_background import LateBackground

from odradek.background import InlineBackground
from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.producer_ids import ProducerIdManager
from odradek.handlers.context import HandlerContext
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.records.gathered_appends import GatheredAppends
from odradek.handlers.table import API_TABLE
from odradek.handlers.telemetry.client_metrics import ClientMetricsManager
from odradek.metadata.cache import MetadataCache
from odradek.metadata.sqlite.store import EmbeddedMetadataStore, SharedMetadata
from odradek.model import ANONYMOUS, EndPoint
from odradek.protocol import messages
from odradek.protocol.exchange import Exchange
from odradek.protocol.header import (
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer

BROKER_ID = 1


class RecordingExchange(Exchange):
    """Keeps what became of a request: `sent`, `closed`, or `is_silent`."""

    def __init__(self, frame, listener_name="PLAINTEXT", connection_id="connection-1"):
        super().__init__(
            memoryview(bytearray(frame)),
            connection_id=connection_id,
            client_host="192.0.2.7",
            client_port=40_000,
            listener_name=listener_name,
            local_host="127.0.0.1",
            local_port=9092,
            principal=ANONYMOUS,
            received_ms=0,
        )
        self.sent = None
        self.closed = False
        self.is_silent = False
        self.throttled_ms = 0
        self.answer_left_bytes = 1 << 40

    def send(self, buffers):
        assert self.sent is None
        self.sent = b"".join(bytes(buffer) for buffer in buffers)

    def answer_bytes(self):
        return self.answer_left_bytes

    def throttle(self, throttle_time_ms):
        self.throttled_ms = throttle_time_ms

    def no_op(self):
        self.is_silent = True

    def close(self):
        self.closed = True


class Cluster:
    """One broker's rules, and a client that speaks to its dispatcher."""

    def __init__(self, settings):
        self.config = BrokerConfig({"broker.id": str(BROKER_ID), **settings})
        self.cache = MetadataCache()
        counter = itertools.count(1)
        shared = SharedMetadata(
            InlineBackground(), lambda size: next(counter).to_bytes(size, "big")
        )
        self.store = EmbeddedMetadataStore(self.cache, shared)
        self.store.load()
        self.timer = MockTimer()
        self.controller = Controller(
            self.store,
            self.cache,
            self.config,
            BROKER_ID,
            DelayedOperationPurgatory("topic", self.timer),
            lambda bound: 0,
        )
        clock = ManualClock(wall_ms=1_700_000_000_000)
        self.client_metrics = ClientMetricsManager(
            self.cache, clock, 1000, lambda: UUID(int=1000 + next(counter)), InlineBackground()
        )
        self.context = HandlerContext(
            broker_id=BROKER_ID,
            apis=API_TABLE,
            config=self.config,
            clock=clock,
            metadata=self.cache,
            controller=self.controller,
            replicas=SimpleNamespace(),
            groups=SimpleNamespace(flush=self.flush),
            transactions=SimpleNamespace(),
            verifier=SimpleNamespace(),
            markers=SimpleNamespace(),
            share_states=SimpleNamespace(),
            share_groups=SimpleNamespace(has=lambda _group_id: False),
            share_partitions=SimpleNamespace(),
            share_sessions=SimpleNamespace(connection_closed=lambda _connection_id: None),
            producer_ids=ProducerIdManager(self.store, self.timer),
            fetch_sessions=SimpleNamespace(),
            client_metrics=self.client_metrics,
            gathered=GatheredAppends(
                lambda requests: self.context.replicas.append_records(requests)
            ),
            log_manager=SimpleNamespace(),
        )
        self.reads_ended = 0
        self.register(BROKER_ID, ("PLAINTEXT", "127.0.0.1", 9092))

    def register(self, broker_id, *listeners):
        endpoints = [EndPoint(name, name, host, port) for name, host, port in listeners]
        self.store.register_broker(broker_id, endpoints, None, lambda outcome: None)

    def replace(self, **fields):
        self.context = replace(self.context, **fields)

    def dispatcher(self):
        return Dispatcher(self.context)

    def flush(self):
        """Of the groups: called once for each end of a read that something waited for."""
        self.reads_ended += 1

    def exchange(
        self, api_key, version, body, listener_name="PLAINTEXT", connection_id="connection-1"
    ):
        """A request as it would come from the network, not handled yet."""
        apis = self.context.apis
        flexible_from = apis[api_key].flexible_from if api_key in apis else 0
        header_version = request_header_version(api_key, version, flexible_from)
        header = encode_request_header(api_key, version, 42, "test", header_version)
        return RecordingExchange(header + body, listener_name, connection_id)

    def ask(self, api_key, version, listener_name="PLAINTEXT", **fields):
        """Sends a request and returns the decoded response."""
        request = messages.encode_request(api_key, version, fields)
        exchange = self.exchange(api_key, version, request, listener_name)
        self.dispatcher().handle_frame(exchange)
        return self.answer(exchange, api_key, version)

    def answer(self, exchange, api_key, version):
        """The response that an exchange was answered with."""
        assert exchange.sent is not None, "the request was not answered"
        frame = memoryview(exchange.sent)
        flexible_from = self.context.apis[api_key].flexible_from
        header_version = response_header_version(api_key, version, flexible_from)
        correlation_id, position = decode_response_header(frame, header_version)
        assert correlation_id == 42
        return messages.decode_response(api_key, version, frame, position)

    def create(self, name, partitions=1, **configs):
        """Creates a topic by request."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }
        return self.ask(19, 7, topics=[topic], timeout_ms=1000).topics[0]


@pytest.fixture
def cluster():
    return Cluster({})


@pytest.fixture
def background(cluster):
    """The steps that the cluster takes late: a test takes each."""
    background = LateBackground()
    cluster.replace(background=background)
    return background


def run(background, exchange):
    """Takes steps until it is answered; returns how many."""
    steps = 0
    while exchange.sent is None and not exchange.closed:
        background.step()
        steps += 1
    return steps


@pytest.fixture
def cluster_with():
    return Cluster
