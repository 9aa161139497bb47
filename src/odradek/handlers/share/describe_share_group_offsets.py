"""DescribeShareGroupOffsets (90), versions 0 and 1: the offsets of share groups.

A group without a list of topics is shown with every partition that it has read. A start of -1 is
undecided: `share.auto.offset.reset` decides it when a member first reads the partition.

Version notes: 1 adds the lag (KIP-1226); it is -1 unless this broker leads the partition.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from odradek.coordinator.share_groups.requests import ShareOffset
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.share.share_version import serves_share_groups
from odradek.model import TopicPartition

_Fields = dict[str, object]

UNKNOWN_LAG = -1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when every share coordinator has answered."""
    groups = list(request.body().groups)
    answers: dict[int, _Fields] = {}

    def take(index: int, fields: _Fields) -> None:
        answers[index] = fields
        if len(answers) == len(groups):
            request.answer(groups=(answers[each] for each in range(len(groups))))

    if not serves_share_groups(context):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
    elif not groups:
        request.answer(groups=[])
    else:
        request.in_slices(_describe_all(context, request, groups, take), _rest)


def _rest(_is_long: bool) -> None:
    """All are asked; the last one of them answers."""


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    error = BrokerError(code, code.text)
    request.answer(groups=[_refused(each.group_id, error) for each in request.body().groups])


def _describe_all(
    context: HandlerContext,
    request: Request,
    groups: Iterable[Any],
    take: Callable[[int, _Fields], None],
) -> Iterator[int]:
    """Looks up the requested topics, one at each step."""
    for index, group in enumerate(groups):
        asked = _Asked(context, group)
        yield from asked.look()
        on_done = request.guard(partial(asked.answer, partial(take, index)))
        wanted = None if group.topics is None else asked.wanted
        context.share_groups.describe_offsets(group.group_id, wanted, on_done, request.defer)


class _Asked:
    """A group whose offsets are requested: the partitions, and the missing topics."""

    def __init__(self, context: HandlerContext, group: Any) -> None:
        self.wanted: Final[dict[UUID, frozenset[int]]] = {}
        self._context: Final = context
        self._group: Final = group
        self._unknown: Final[list[Any]] = []

    def look(self) -> Iterator[int]:
        """Finds the topics by their names."""
        image = self._context.metadata.image
        yield 1
        for each in self._group.topics or ():
            topic = image.topic(each.topic_name)
            if topic is None:
                self._unknown.append(each)
            else:
                self.wanted[topic.topic_id] = frozenset(each.partitions)
            yield 1

    def answer(
        self, take: Callable[[_Fields], None], outcome: list[ShareOffset] | BrokerError
    ) -> None:
        """Passes on the answer for the group."""
        group_id = self._group.group_id
        if isinstance(outcome, BrokerError):
            take(_refused(group_id, outcome))
        else:
            take({"group_id": group_id, "topics": self._topics(outcome)})

    def _topics(self, offsets: list[ShareOffset]) -> Iterator[_Fields]:
        image = self._context.metadata.image
        for topic_id, some in groupby(offsets, attrgetter("topic_id")):
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                partitions = (_partition(self._context, each) for each in some)
                yield {"topic_id": topic_id, "topic_name": topic.name, "partitions": partitions}
        yield from map(_unknown_topic, self._unknown)


def _unknown_topic(asked: Any) -> _Fields:
    partitions = (
        {"partition_index": index, "start_offset": -1, "lag": UNKNOWN_LAG}
        for index in asked.partitions
    )
    return {"topic_name": asked.topic_name, "topic_id": UUID(int=0), "partitions": partitions}


def _partition(context: HandlerContext, offset: ShareOffset) -> _Fields:
    if offset.error is not None:
        return {"partition_index": offset.partition, **_error_fields(offset.error)}
    return {
        "partition_index": offset.partition,
        "start_offset": offset.start_offset,
        "leader_epoch": offset.leader_epoch,
        "lag": _lag(context, offset),
        "error_code": ErrorCode.NONE,
    }


def _lag(context: HandlerContext, offset: ShareOffset) -> int:
    """The number of unfinished records."""
    topic = context.metadata.image.topic_by_id(offset.topic_id)
    if topic is None or offset.start_offset < 0 or offset.delivery_complete_count < 0:
        return UNKNOWN_LAG
    try:
        partition = context.replicas.partition(TopicPartition(topic.name, offset.partition))
        end_offset = partition.leader_log().high_watermark
    except BrokerError:
        return UNKNOWN_LAG
    return max(0, end_offset - offset.start_offset - offset.delivery_complete_count)


def _error_fields(error: BrokerError) -> _Fields:
    return {
        "start_offset": -1,
        "leader_epoch": 0,
        "lag": UNKNOWN_LAG,
        "error_code": error.code,
        "error_message": error.message,
    }


def _refused(group_id: str, error: BrokerError) -> _Fields:
    return {
        "group_id": group_id,
        "topics": (),
        "error_code": error.code,
        "error_message": error.message,
    }
