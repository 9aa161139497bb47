"""The rules of the parent folder's cluster, with real logs and replicas beneath.

`HotBroker` speaks the hot codecs: produce, fetch and list offsets as a client would.
"""

from uuid import uuid4

import pytest

from odradek.background import InlineBackground
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.records.fetch_sessions import FetchSessionCache
from odradek.metadata import ListenerStage
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek.protocol.direct.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    decode_list_offsets_response,
    encode_list_offsets_request,
)
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.protocol.header import decode_response_header, response_header_version
from odradek.records.builder import RecordBatchBuilder
from odradek.records.compression import Compression
from odradek.replication.quota import ReplicationQuotas
from odradek.replication.replica_manager import ReplicaManager
from odradek.storage.manager.log_manager import LogManager

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2


def batch(*values, codec=Compression.NONE, **fields):
    """One batch of magic 2, as a client sends it."""
    builder = RecordBatchBuilder(codec, **fields)
    for value in values:
        builder.append(1_700_000_000_000, b"k", value)
    return builder.build()


class HotBroker:
    def __init__(self, cluster, directory, slots=1000):
        self.cluster = cluster
        self.clock = cluster.context.clock
        self.log_manager = LogManager(
            [directory],
            cluster.config,
            self.clock,
            cluster.timer,
            InlineBackground(),
            new_uuid=uuid4,
            on_log_dir_failure=lambda path: self.replicas.on_log_dir_failure(path),
        )
        self.log_manager.start()
        self.replicas = ReplicaManager(
            *(1, cluster.config, self.clock, cluster.timer, self.log_manager, cluster.store),
            ReplicationQuotas(1, cluster.config, self.clock).leader,
        )
        cluster.store.subscribe(ListenerStage.REPLICAS, self.replicas.apply_delta)
        self.sessions = FetchSessionCache(slots, self.clock)
        cluster.replace(
            replicas=self.replicas, fetch_sessions=self.sessions, log_manager=self.log_manager
        )
        self.dispatcher = Dispatcher(cluster.context)

    @property
    def context(self):
        return self.cluster.context

    def create(self, name="orders", partitions=1, **configs):
        self.cluster.create(name, partitions, **configs)
        return self.cluster.cache.image.topics[name].topic_id

    def log(self, name="orders", partition=0):
        return self.log_manager.get(TopicPartition(name, partition))

    def wait(self, duration_ms):
        self.clock.advance(duration_ms)
        self.cluster.timer.advance_clock(duration_ms)

    def handle(self, api_key, version, buffers):
        exchange = self.cluster.exchange(api_key, version, b"".join(map(bytes, buffers)))
        self.dispatcher.handle_frame(exchange)
        return exchange

    def decode(self, decode, exchange, api_key, version):
        assert exchange.sent is not None, "the request was not answered"
        frame = memoryview(exchange.sent)
        flexible_from = self.context.apis[api_key].flexible_from
        header_version = response_header_version(api_key, version, flexible_from)
        _, position = decode_response_header(frame, header_version)
        return decode(frame, version, position)

    # Produce

    def send_produce(self, records, *, version=9, acks=1, topic="orders", partition=0, txn=None):
        """Hands a produce request in, without ending the socket read."""
        by_id = version >= 13
        topics = [
            ProduceTopic(
                None if by_id else topic,
                topic if by_id else None,
                [ProducePartition(partition, records)],
            )
        ]
        request = ProduceRequest(txn, acks, 1000, topics)
        return self.handle(PRODUCE, version, encode_produce_request(request, version))

    def produced(self, exchange, version=9):
        response = self.decode(decode_produce_response, exchange, PRODUCE, version)
        return response.topics[0].partitions[0]

    def produce(self, records, *, version=9, **fields):
        exchange = self.send_produce(records, version=version, **fields)
        self.dispatcher.end_of_read()
        return self.produced(exchange, version)

    # Fetch

    def send_fetch(
        self,
        *asked,
        version=12,
        topic="orders",
        max_wait_ms=0,
        min_bytes=1,
        replica_id=-1,
        **fields,
    ):
        """Hands a fetch request in; `asked` are `FetchPartition`s of one topic."""
        by_id = version >= 13
        topics = [FetchTopic(None if by_id else topic, topic if by_id else None, list(asked))]
        request = FetchRequest(
            replica_id, max_wait_ms, min_bytes, topics if asked else [], **fields
        )
        return self.handle(FETCH, version, encode_fetch_request(request, version))

    def fetched(self, exchange, version=12):
        return self.decode(decode_fetch_response, exchange, FETCH, version)

    def fetch(self, *asked, version=12, **fields):
        return self.fetched(self.send_fetch(*asked, version=version, **fields), version)

    def fetch_one(self, offset=0, *, version=12, max_bytes=1 << 20, **fields):
        """Fetches partition 0 and returns its answer."""
        response = self.fetch(FetchPartition(0, offset, max_bytes), version=version, **fields)
        return response.topics[0].partitions[0]

    # ListOffsets

    def list_offsets(self, *timestamps, version=7, partition=0, **fields):
        asked = [ListOffsetsPartition(partition, timestamp) for timestamp in timestamps]
        request = ListOffsetsRequest(-1, [ListOffsetsTopic("orders", asked)], **fields)
        exchange = self.handle(LIST_OFFSETS, version, encode_list_offsets_request(request, version))
        response = self.decode(decode_list_offsets_response, exchange, LIST_OFFSETS, version)
        return response.topics[0].partitions

    def close(self):
        self.replicas.shutdown()
        self.log_manager.shutdown()


@pytest.fixture
def broker(cluster, tmp_path):
    made = HotBroker(cluster, str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def broker_with(cluster_with, tmp_path):
    """A broker with settings, or with few session slots."""
    made = []

    def make(settings=None, slots=1000):
        made.append(HotBroker(cluster_with(settings or {}), str(tmp_path), slots))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(name="batch")
def batch_fixture():
    return batch
