"""Puts outcomes in the order of the request, for all of the controller's operations."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from odradek.controller.results import (
    CreateTopicResult,
    DeleteTopicResult,
    ElectionResult,
    NamedResult,
    ResourceResult,
    TopicReference,
)
from odradek.errors import BrokerError, ErrorCode, without_frames
from odradek.metadata.image import ConfigResource, MetadataImage, TopicImage
from odradek.model import TopicPartition
from odradek.timer import Timer

R = TypeVar("R")
Item = TypeVar("Item")
Plan = TypeVar("Plan")


def plan_each(
    items: Sequence[Item],
    plan: Callable[[Item], Plan],
    identity: Callable[[Item], object],
    repeated: Collection[object] = (),
) -> list[Plan | BrokerError]:
    """A plan or an error for every item; those that the request has `repeated` are refused."""
    plans: list[Plan | BrokerError] = []
    for item in items:
        if identity(item) in repeated:
            message = f"The request names {identity(item)} more than once."
            plans.append(BrokerError(ErrorCode.INVALID_REQUEST, message))
            continue
        try:
            plans.append(plan(item))
        except BrokerError as error:
            plans.append(without_frames(error))
    return plans


def time_left(timer: Timer, timeout_ms: int) -> Callable[[], int]:
    """Returns a function for the rest of a request's time from now on, in milliseconds."""
    deadline_ms = timer.now_ms + timeout_ms
    return lambda: max(deadline_ms - timer.now_ms, 0)


def one_each(outcome: list[R] | BrokerError, count: int) -> list[R | BrokerError]:
    """One outcome of the store for each item, also when it failed as a whole."""
    if isinstance(outcome, BrokerError):
        return [outcome] * count
    assert len(outcome) == count, f"{len(outcome)} outcomes for {count} items"
    return list(outcome)


def in_request_order(
    plans: Sequence[Plan | BrokerError], outcomes: Sequence[R | BrokerError]
) -> list[R | BrokerError]:
    """The outcomes of the plans, with the errors of the refused items at their places."""
    rest = iter(outcomes)
    return [plan if isinstance(plan, BrokerError) else next(rest) for plan in plans]


def identity_of(image: MetadataImage, reference: TopicReference) -> object:
    """The identity of a reference's topic: a name and an id of one topic are equal."""
    if reference.name is not None:
        return reference.name
    topic = image.topic_by_id(reference.topic_id)
    return reference.topic_id if topic is None else topic.name


def deleted(
    reference: TopicReference, topic: TopicImage | BrokerError, outcome: TopicImage | BrokerError
) -> DeleteTopicResult:
    """The result of a deletion, or of a reference that was refused before; if the topic was deleted
    meanwhile, the error depends on whether the request names it or its id."""
    name, topic_id = reference if isinstance(topic, BrokerError) else (topic.name, topic.topic_id)
    if not isinstance(outcome, BrokerError):
        return DeleteTopicResult(name, topic_id)
    code = outcome.code
    if code is ErrorCode.UNKNOWN_TOPIC_ID and reference.name is not None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DeleteTopicResult(name, topic_id, code, outcome.message)


def late_topic(result: CreateTopicResult) -> CreateTopicResult:
    """The outcome of a topic that exists, but had no leaders in time."""
    error = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
    return CreateTopicResult(result.name, error.code, error.message, result.topic_id)


def named_result(name: str, outcome: object) -> NamedResult:
    """An error, or success, under the name of a topic."""
    if isinstance(outcome, BrokerError):
        return NamedResult(name, outcome.code, outcome.message)
    return NamedResult(name)


def resource_result(resource: ConfigResource, outcome: object) -> ResourceResult:
    """An error, or success, of a resource."""
    if isinstance(outcome, BrokerError):
        return ResourceResult(resource, outcome.code, outcome.message)
    return ResourceResult(resource)


def election_result(topic_partition: TopicPartition, outcome: object) -> ElectionResult:
    """An error, or success, of a partition."""
    if isinstance(outcome, BrokerError):
        return ElectionResult(topic_partition, outcome.code, outcome.message)
    return ElectionResult(topic_partition)


def was_needed(result: ElectionResult) -> bool:
    """Whether the partition needed the election."""
    return result.error_code is not ErrorCode.ELECTION_NOT_NEEDED


def all_partitions(image: MetadataImage) -> list[TopicPartition]:
    """Every partition, in the order of names."""
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in sorted(image.topics.values())
        for partition in topic.partitions
    ]
