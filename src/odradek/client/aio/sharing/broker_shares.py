"""`BrokerShares`: the share session with one broker, of one member.

One request at a time, in the order of the session's epochs: fetches, acknowledgements, and the one
that ends it. Acknowledgements go with a fetch if possible.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Final, NamedTuple
from uuid import UUID

from odradek.client.aio.cluster import ClusterClient
from odradek.client.apis import SHARE_ACKNOWLEDGE, SHARE_FETCH, ClientApi
from odradek.client.core.cluster import Message
from odradek.client.core.network.connections import FETCH_CHANNEL
from odradek.client.core.sharing.acknowledgements import (
    Acknowledgements,
    AcknowledgeType,
    SharePartition,
    by_topic_id,
)
from odradek.client.core.sharing.share_session import FINAL_EPOCH, ShareSession
from odradek.client.errors import KafkaError, NetworkError, error_for, raise_for, unanswered
from odradek.errors import ErrorCode

_RECORD_LIMIT: Final = 1
_BATCH_OPTIMIZED: Final = 0
Said = dict[SharePartition, Acknowledgements]
OnAnswered = Callable[[SharePartition, Acknowledgements, KafkaError | None], None]


class Brought(NamedTuple):
    """A partition's part of the answer to a fetch."""

    partition: SharePartition
    part: Message


class BrokerShares:
    """See the module; `on_answered` gets the results of all acknowledgements."""

    def __init__(
        self,
        cluster: ClusterClient,
        node_id: int,
        group_id: str,
        member_id: str,
        on_answered: OnAnswered,
    ) -> None:
        self._cluster = cluster
        self.node_id: Final = node_id
        self._member = {"group_id": group_id, "member_id": member_id}
        self._on_answered = on_answered
        self._session = ShareSession()
        self._in_turn = asyncio.Lock()
        self.lock_timeout_ms: int | None = None

    async def fetch(self, wanted: Set[SharePartition], said: Said) -> list[Brought]:
        """Asks for records of these partitions, and stops fetching others.

        Raises:
            KafkaError: the broker refuses all, or no answer came.
        """
        async with self._in_turn:
            if said and not (self._session.is_open and said.keys() <= wanted and not _renews(said)):
                # None of these may come with a fetch.
                await self._acknowledge(said, self._session.epoch)
                said = {}
            names = {(each.topic_id, each.where.partition): each for each in wanted}
            answer = await self._ask(SHARE_FETCH, self._fetch_values(wanted, said), said)
            self._session.fetched(wanted)
            self._tell(said, answer, "acknowledge_error")
            return [
                Brought(names[topic_id, part.partition_index], part)
                for topic_id, part in _parts(answer)
                if (topic_id, part.partition_index) in names
            ]

    async def acknowledge(self, said: Said) -> None:
        """Acknowledges records; every partition has its outcome, and nothing is raised."""
        async with self._in_turn:
            await self._acknowledge(said, self._session.epoch)

    async def close(self, said: Said) -> None:
        """Sends the last acknowledgements, and releases all other records."""
        async with self._in_turn:
            await self._acknowledge(said, FINAL_EPOCH)
            self._session.reset()

    async def _acknowledge(self, said: Said, epoch: int) -> None:
        if not self._session.is_open:
            self._fail(said, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND))
            return
        values = {
            **self._member,
            "share_session_epoch": epoch,
            "is_renew_ack": _renews(said),
            "topics": by_topic_id((), said),
        }
        try:
            answer = await self._ask(SHARE_ACKNOWLEDGE, values, said)
        except KafkaError:
            return  # their results were reported
        self._session.advance()
        self._tell(said, answer, "error")

    def _fetch_values(self, wanted: Set[SharePartition], said: Said) -> dict[str, object]:
        settings = self._cluster.settings
        max_records = settings.number("max.poll.records")
        is_limited = settings.text("share.acquire.mode").lower() == "record_limit"
        forgotten: dict[object, list[int]] = {}
        for each in sorted(self._session.forgotten(wanted)):
            forgotten.setdefault(each.topic_id, []).append(each.where.partition)
        return {
            **self._member,
            "share_session_epoch": self._session.epoch,
            "max_wait_ms": settings.number("fetch.max.wait.ms"),
            "min_bytes": settings.number("fetch.min.bytes"),
            "max_bytes": settings.number("fetch.max.bytes"),
            "max_records": max_records,
            "batch_size": max_records,
            "share_acquire_mode": _RECORD_LIMIT if is_limited else _BATCH_OPTIMIZED,
            "is_renew_ack": False,
            "topics": by_topic_id(self._session.added(wanted), said),
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": indexes}
                for topic_id, indexes in forgotten.items()
            ],
        }

    async def _ask(self, api: ClientApi, values: Mapping[str, object], said: Said) -> Message:
        """Sends a request; if that fails all its acknowledgements have failed, and the session with
        it."""
        wait_ms = self._cluster.settings.number("fetch.max.wait.ms")
        try:
            answer = await self._cluster.call(
                self.node_id,
                api,
                values,
                channel=FETCH_CHANNEL,
                timeout_ms=self._cluster.request_timeout_ms + wait_ms,
            )
            raise_for(int(answer.error_code), answer.error_message)
        except KafkaError as error:
            self._session.reset()
            self._fail(said, error)
            raise
        except BaseException:
            self._session.reset()
            self._fail(said, NetworkError("the request was cancelled"))
            raise
        self.lock_timeout_ms = (
            round(answer.acquisition_lock_timeout.total_seconds() * 1000) or self.lock_timeout_ms
        )
        return answer

    def _fail(self, said: Said, error: KafkaError) -> None:
        for partition, types in said.items():
            self._on_answered(partition, types, error)

    def _tell(self, said: Said, answer: Message, field: str) -> None:
        parts = {(topic_id, part.partition_index): part for topic_id, part in _parts(answer)}
        for partition, types in said.items():
            part = parts.get((partition.topic_id, partition.where.partition))
            if part is None:
                self._on_answered(partition, types, unanswered(partition.where))
                continue
            code = int(getattr(part, f"{field}_code"))
            text = getattr(part, f"{field}_message")
            self._on_answered(partition, types, error_for(code, text) if code else None)


def _parts(answer: Message) -> Iterator[tuple[UUID, Message]]:
    for topic in answer.responses:
        for part in topic.partitions:
            yield topic.topic_id, part


def _renews(said: Said) -> bool:
    return any(AcknowledgeType.RENEW in types.values() for types in said.values())
