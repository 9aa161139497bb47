"""The parts that ShareFetch and ShareAcknowledge share: acknowledgements, and answers of
partitions."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.handlers.topic_names import CurrentLeaders
from odradek.metadata.group_settings import GroupSettings
from odradek.model import TopicPartition
from odradek.replication.share.acknowledgements import (
    AcknowledgementBatch,
    check_acknowledgements,
)
from odradek.replication.share.fetch import ShareFetchPartition
from odradek.replication.share.persister import SharePartitionKey

Place = tuple[UUID, int]
Errors = dict[Place, BrokerError | None]

_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
IsDenied: TypeAlias = Callable[[str], bool]
"""Whether a topic of that name may not be read."""


def allow_all(_topic: str) -> bool:
    """Denies nothing: there is no authorizer."""
    return False


def acknowledgements_of(topics: Any) -> dict[Place, list[AcknowledgementBatch]]:
    """The acknowledgements of a request, by partition."""
    return {
        (topic.topic_id or UUID(int=0), partition.partition_index): [
            AcknowledgementBatch(
                batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types)
            )
            for batch in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


def acknowledge(
    context: HandlerContext,
    request: Request,
    said: Mapping[Place, list[AcknowledgementBatch]],
    on_done: Callable[[Errors], None],
    is_denied: IsDenied,
) -> None:
    """Carries out acknowledgements, in slices, and answers with each partition's outcome."""
    body = request.body()
    errors: Errors = {}
    if not said:
        on_done(errors)
        return
    may_renew = bool(getattr(body, "is_renew_ack", False))

    def take(place: Place, error: BrokerError | None) -> None:
        errors[place] = error
        if len(errors) == len(said):
            on_done(errors)

    def acknowledge_one(place: Place) -> None:
        batches = said[place]
        on_stored = request.guard(lambda error: take(place, error))
        try:
            partition = resolve(context, body.group_id, place, is_denied)
            check_acknowledgements(batches, may_renew=may_renew)
        except BrokerError as error:
            # Kafka has texts only for errors about records.
            is_of_records = error.code is ErrorCode.INVALID_RECORD_STATE
            on_stored(error if is_of_records else BrokerError(error.code, ""))
            return
        context.share_partitions.acknowledge(partition, body.member_id, batches, on_stored)

    do_in_slices(request, list(said), acknowledge_one)


def resolve(
    context: HandlerContext, group_id: str, place: Place, is_denied: IsDenied
) -> ShareFetchPartition:
    """Resolves a partition of a request.

    Raises:
        BrokerError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION or TOPIC_AUTHORIZATION_FAILED.
    """
    topic_id, index = place
    topic = context.metadata.image.topic_by_id(topic_id)
    if topic is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    if is_denied(topic.name):
        raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not 0 <= index < len(topic.partitions):
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    key = SharePartitionKey(group_id, topic_id, index)
    return ShareFetchPartition(key, TopicPartition(topic.name, index))


def lock_duration_ms(context: HandlerContext, group_id: str) -> int:
    """The lock duration of the group, which every response has."""
    image = context.metadata.image
    settings = GroupSettings("share", group_id, context.config, image)
    return settings.number("record.lock.duration.ms")


def by_topic(partitions: Mapping[Place, Mapping[str, object]]) -> list[dict[str, object]]:
    """Groups the answers of partitions by their topics."""
    topics: dict[UUID, list[Mapping[str, object]]] = {}
    for (topic_id, index), fields in partitions.items():
        topics.setdefault(topic_id, []).append({"partition_index": index, **fields})
    return [{"topic_id": each, "partitions": found} for each, found in topics.items()]


class Leaders:
    """The leaders of partitions that this broker does not lead, so that clients can go there."""

    def __init__(self, context: HandlerContext, listener_name: str) -> None:
        self._image = context.metadata.image
        self._leaders = CurrentLeaders(self._image, listener_name)

    def of(self, place: Place, code: ErrorCode) -> dict[str, object]:
        """The field of an answer with that code; Kafka's defaults where it does not help."""
        topic = self._image.topic_by_id(place[0])
        if code not in _MOVED or topic is None:
            return {"current_leader": {"leader_id": 0, "leader_epoch": 0}}
        leader_id, epoch = self._leaders.leader_of(TopicPartition(topic.name, place[1]))
        return {"current_leader": {"leader_id": leader_id, "leader_epoch": epoch}}

    def endpoints(self) -> list[dict[str, object]]:
        """The addresses of those brokers."""
        return [
            {"node_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in self._leaders.endpoints
        ]
