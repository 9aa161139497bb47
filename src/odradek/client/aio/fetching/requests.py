"""Fetch requests of a consumer: one session per broker, so only changes are sent."""

import asyncio
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import FETCH
from odradek.client.core.consuming.list_offsets import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from odradek.client.core.network.connections import FETCH_CHANNEL
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from odradek.protocol.fetch_session import FetchSession
from odradek.protocol.primitives import Buffer

FETCH_METRICS: Final = "consumer-fetch-manager-metrics"


class Wanted(NamedTuple):
    """The position of a partition, the known leader epoch and topic id, and whether its leader is
    asked, and not a replica near by."""

    offset: int
    leader_epoch: int
    topic_id: UUID | None
    is_at_leader: bool


class FetchRequests:
    """For one consumer and all brokers; one request at a time to each."""

    def __init__(self, cluster: ClusterClient) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._isolation_level = (
            READ_COMMITTED
            if settings.text("isolation.level").lower() == "read_committed"
            else READ_UNCOMMITTED
        )
        self._sessions: dict[int, FetchSession] = {}
        metrics = cluster.metrics
        self._latency = metrics.average("fetch-latency", FETCH_METRICS)
        self._throttle_times = metrics.average("fetch-throttle-time", FETCH_METRICS)
        self._sizes = metrics.average("fetch-size", FETCH_METRICS)
        self._requests = metrics.meter("fetch", FETCH_METRICS)
        self._bytes = metrics.meter("bytes-consumed", FETCH_METRICS)

    async def fetch(
        self, node_id: int, wanted: dict[TopicPartition, Wanted], max_wait_ms: int
    ) -> FetchResponse:
        """Asks a broker, which may wait so long for records; returns its answer, which may be an
        error for all.

        Raises:
            KafkaError: no answer came.
        """
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        session = self._sessions.setdefault(node_id, FetchSession())
        session.want_only(
            {
                each: (known.topic_id, self._wish(each.partition, known))
                for each, known in wanted.items()
            }
        )

        def encode(version: int) -> list[Buffer]:
            return encode_fetch_request(self._request(session, max_wait_ms), version)

        try:
            response = await self._cluster.exchange(
                node_id,
                FETCH,
                encode,
                decode_fetch_response,
                channel=FETCH_CHANNEL,
                timeout_ms=self._cluster.request_timeout_ms + max_wait_ms,
            )
        except BaseException:
            session.reset()
            raise
        session.accept(response)
        if not response.error_code:
            self._measure(response, (loop.time() - sent_s) * 1000)
        return response

    def _measure(self, response: FetchResponse, latency_ms: float) -> None:
        size_bytes = sum(
            len(buffer)
            for topic in response.topics
            for answer in topic.partitions
            for buffer in answer.records
        )
        self._latency.add(latency_ms)
        self._throttle_times.add(response.throttle_time_ms)
        self._requests.add()
        self._sizes.add(size_bytes)
        self._bytes.add(size_bytes)

    def _wish(self, index: int, wanted: Wanted) -> FetchPartition:
        max_bytes = self._cluster.settings.number("max.partition.fetch.bytes")
        return FetchPartition(index, wanted.offset, max_bytes, wanted.leader_epoch)

    def _request(self, session: FetchSession, max_wait_ms: int) -> FetchRequest:
        settings = self._cluster.settings
        topics, forgotten = session.next_request()
        return FetchRequest(
            CONSUMER,
            max_wait_ms,
            settings.number("fetch.min.bytes"),
            topics,
            settings.number("fetch.max.bytes"),
            self._isolation_level,
            session.id,
            session.epoch,
            forgotten,
            settings.text("client.rack"),
        )
