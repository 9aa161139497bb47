"""OffsetCommit (8), versions 2 to 10: store offsets of a group.

Behaviour: commits of one socket read share an append for each partition of the internal topic;
the answer leaves when it is committed. Partitions that do not exist are refused one by one.

Version notes: 2 to 4 bring a retention time, 6 a leader epoch, 7 static members; 8 is flexible,
9 brings the member epoch of the newer protocol, 10 names topics by id.
"""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.offsets import (
    NO_RETENTION,
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.model import NO_LEADER_EPOCH
from odradek.protocol.messages import milliseconds

TOPIC_ID_VERSION: Final = 10
GROUP_ID_NOT_FOUND_VERSION: Final = 9

_TopicCodes = list[tuple[str | UUID | None, list[tuple[int, ErrorCode]]]]


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the offsets are committed."""
    body = request.body()
    commit = _Commit(request, body, context.metadata.image)
    request.exchange.batched = True
    context.groups.commit_offsets(
        commit.to_request(), request.guard(commit.on_committed), linger=True
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    body = request.body()
    _answer(
        request,
        [
            (_identity(request, topic), [(each.partition_index, code) for each in topic.partitions])
            for topic in body.topics
        ],
    )


class _Commit:
    """One request: what of it can be committed, and what is refused for its topic's sake."""

    def __init__(self, request: Request, body: Any, image: MetadataImage) -> None:
        self._request = request
        self._body = body
        self._topics: list[CommittedTopic] = []
        self._refused: dict[tuple[str | UUID | None, int], ErrorCode] = {}
        self._identities: dict[str, str | UUID | None] = {}
        for topic in body.topics:
            self._add(topic, _find(request, topic, image))

    def _add(self, topic: Any, found: TopicImage | None) -> None:
        identity = _identity(self._request, topic)
        accepted: list[CommittedPartition] = []
        for each in topic.partitions:
            if found is not None and 0 <= each.partition_index < len(found.partitions):
                accepted.append(
                    CommittedPartition(
                        each.partition_index,
                        each.committed_offset,
                        getattr(each, "committed_leader_epoch", NO_LEADER_EPOCH),
                        each.committed_metadata or "",
                    )
                )
            else:
                self._refused[identity, each.partition_index] = _unknown(self._request, found)
        if found is not None and accepted:
            self._identities[found.name] = identity
            self._topics.append(CommittedTopic(found.name, found.topic_id, accepted))

    def to_request(self) -> OffsetCommitRequest:
        """What the coordinator is asked."""
        body = self._body
        retention = getattr(body, "retention_time", None)
        return OffsetCommitRequest(
            body.group_id,
            body.member_id,
            getattr(body, "group_instance_id", None),
            body.generation_id_or_member_epoch,
            NO_RETENTION if retention is None else milliseconds(retention),
            self._topics,
            self._request.api_version,
        )

    def on_committed(self, outcome: TopicErrors | BrokerError) -> None:
        """Answers, in the order of the request."""
        if isinstance(outcome, BrokerError):
            fail(self._request, _known_code(self._request, outcome.code))
            return
        codes = {
            (self._identities[name], partition): code
            for name, partitions in outcome
            for partition, code in partitions
        }
        codes.update(self._refused)
        answer: _TopicCodes = []
        for topic in self._body.topics:
            identity = _identity(self._request, topic)
            partitions = [
                (each.partition_index, codes[identity, each.partition_index])
                for each in topic.partitions
            ]
            answer.append((identity, partitions))
        _answer(self._request, answer)


def _find(request: Request, topic: Any, image: MetadataImage) -> TopicImage | None:
    if request.api_version >= TOPIC_ID_VERSION:
        return None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
    return image.topic(topic.name)


def _identity(request: Request, topic: Any) -> str | UUID | None:
    identity: str | UUID | None = (
        topic.topic_id if request.api_version >= TOPIC_ID_VERSION else topic.name
    )
    return identity


def _unknown(request: Request, found: TopicImage | None) -> ErrorCode:
    if found is None and request.api_version >= TOPIC_ID_VERSION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _known_code(request: Request, code: ErrorCode) -> ErrorCode:
    """Older clients do not know that a group may be missing: to them it is another generation."""
    missing = code is ErrorCode.GROUP_ID_NOT_FOUND
    if missing and request.api_version < GROUP_ID_NOT_FOUND_VERSION:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _answer(
    request: Request,
    topics: Sequence[tuple[str | UUID | None, Sequence[tuple[int, ErrorCode]]]],
) -> None:
    name = "topic_id" if request.api_version >= TOPIC_ID_VERSION else "name"
    request.answer(
        topics=[
            {
                name: identity,
                "partitions": [
                    {"partition_index": partition, "error_code": code}
                    for partition, code in partitions
                ],
            }
            for identity, partitions in topics
        ]
    )
