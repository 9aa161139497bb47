"""OffsetCommit (8), versions 2 to 10: store offsets of a group.

Behaviour: commits of one socket read share an append for each partition of the internal topic; the
answer leaves when it is committed. Partitions that do not exist are refused one by one. The topics
of a long request are looked up in slices, and its offsets have a separate append.

Version notes: 2 to 4 bring a retention time, 6 a leader epoch, 7 static members; 8 is flexible,
9 brings the member epoch of the newer protocol, 10 names topics by id.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from odradek.coordinator.offsets.requests import (
    CommittedPartition,
    CommittedTopic,
    OffsetCommitRequest,
    TopicErrors,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import LONG_REQUEST_BYTES
from odradek.handlers.request import Request
from odradek.handlers.topic_names import is_same_topic
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.protocol.direct.offset_commit import (
    TOPIC_ID_VERSION,
    OffsetCommitMessage,
    OffsetCommitTopic,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

_LOG = logging.getLogger(__name__)

GROUP_ID_NOT_FOUND_VERSION: Final = 9


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the offsets are committed."""
    _handle(context, request, _decode(request), None)


def handle_allowed(
    context: HandlerContext,
    request: Request,
    may_commit: Callable[[str], bool],
    is_denied: Callable[[str], bool],
) -> None:
    """Commits the offsets of topics that the caller may read."""
    message = _decode(request)
    if may_commit(message.group_id):
        _handle(context, request, message, is_denied)
    else:
        _answer_all(request, message, ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _handle(
    context: HandlerContext,
    request: Request,
    message: OffsetCommitMessage,
    is_denied: Callable[[str], bool] | None,
) -> None:
    request.handled_by = message
    commit = _Commit(request, message, is_denied)
    if len(request.exchange.frame) >= LONG_REQUEST_BYTES:
        _commit_in_slices(context, request, commit)
        return
    image = context.metadata.image
    for topic in message.topics:
        commit.sort_out(topic, image)
    if commit.has_partitions:
        request.exchange.batched = True
    _commit(context, request, commit, linger=True)


def _commit_in_slices(context: HandlerContext, request: Request, commit: "_Commit") -> None:
    """Commits after looking up topics in slices: the socket read may have ended, and topics may be
    deleted."""

    def commit_known(_is_long: bool) -> None:
        commit.refuse_deleted(context.metadata.image)
        _commit(context, request, commit, linger=False)

    request.in_slices(commit.topic_by_topic(context.metadata.image), commit_known)


def _commit(context: HandlerContext, request: Request, commit: "_Commit", linger: bool) -> None:
    if not commit.has_partitions:
        commit.on_committed([])
        return
    context.groups.commit_offsets(
        commit.to_request(), request.guard(commit.on_committed), linger=linger
    )


def end_of_read(context: HandlerContext) -> None:
    """Appends the commits of a socket read."""
    context.groups.flush()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    message = request.handled_by
    if not isinstance(message, OffsetCommitMessage):
        message = _decode(request)  # the frame is still valid: the handler failed before it waited
    _answer_all(request, message, code)


def _decode(request: Request) -> OffsetCommitMessage:
    return decode_offset_commit_request(
        request.exchange.frame, request.api_version, request.body_position
    )


class _Commit:
    """One request: the part that can be committed, and the part refused because of its topic.

    `_codes` are the answer, by topic and partition in the request's order; `_places` has, for each
    of `_topics`, the places of its outcomes.
    """

    def __init__(
        self,
        request: Request,
        message: OffsetCommitMessage,
        is_denied: Callable[[str], bool] | None,
    ) -> None:
        self._request = request
        self._message = message
        self._is_denied = is_denied
        self._topics: list[CommittedTopic] = []
        self._codes: list[list[int]] = []
        self._places: list[tuple[list[int], list[int]]] = []

    def topic_by_topic(self, image: MetadataImage) -> Iterator[int]:
        """Sorts out the topics, one at each step."""
        for topic in self._message.topics:
            self.sort_out(topic, image)
            yield 1 + len(topic.partitions)

    def sort_out(self, topic: OffsetCommitTopic, image: MetadataImage) -> None:
        """Separates the next topic's offsets that can be committed from those that are refused."""
        found = _find(self._request, topic, image)
        name = topic.name if found is None else found.name
        if self._is_denied is not None and name and self._is_denied(name):
            code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            self._codes.append([code] * len(topic.partitions))
        else:
            self._add(topic, found)

    def _add(self, topic: OffsetCommitTopic, found: TopicImage | None) -> None:
        codes: list[int] = []
        places: list[int] = []
        accepted: list[CommittedPartition] = []
        refused: list[int] = []
        code = _unknown(self._request, found)
        for place, each in enumerate(topic.partitions):
            if found is None or not 0 <= each.index < len(found.partitions):
                codes.append(code)
                refused.append(each.index)
                continue
            codes.append(ErrorCode.NONE)
            places.append(place)
            accepted.append(
                CommittedPartition(each.index, each.offset, each.leader_epoch, each.metadata)
            )
        self._codes.append(codes)
        if refused:
            self._log_refusal(topic, refused, code)
        if found is not None and accepted:
            self._topics.append(CommittedTopic(found.name, found.topic_id, accepted))
            self._places.append((codes, places))

    def refuse_deleted(self, image: MetadataImage) -> None:
        """Refuses topics that were deleted since they were found: their offsets have been removed,
        and a later topic of the same name would begin with these."""
        topics, self._topics = self._topics, []
        answers, self._places = self._places, []
        for topic, answer in zip(topics, answers, strict=True):
            if is_same_topic(image, topic.name, topic.topic_id):
                self._topics.append(topic)
                self._places.append(answer)
            else:
                codes, places = answer
                for place in places:
                    codes[place] = _unknown(self._request, None)

    def _log_refusal(self, topic: OffsetCommitTopic, refused: list[int], code: ErrorCode) -> None:
        """Logs one line for a topic, however many unknown partitions the request names."""
        _LOG.info(
            "group %s: commit for partition %d of topic %s is refused: %s (member %s)%s",
            self._message.group_id,
            refused[0],
            topic.topic_id or topic.name,
            code.name,
            self._message.member_id or "none",
            f", and for {len(refused) - 1} more" if len(refused) > 1 else "",
        )

    @property
    def has_partitions(self) -> bool:
        """Whether the request has a partition for the coordinator."""
        return bool(self._places)

    def to_request(self) -> OffsetCommitRequest:
        """Makes the coordinator's request."""
        message = self._message
        return OffsetCommitRequest(
            message.group_id,
            message.member_id,
            message.group_instance_id,
            message.generation_or_epoch,
            message.retention_ms,
            self._topics,
            self._request.api_version,
        )

    def on_committed(self, outcome: TopicErrors | BrokerError) -> None:
        """Answers, in the order of the request, without the frame, which may be released."""
        request = self._request
        if isinstance(outcome, BrokerError):
            code = _known_code(request, outcome.code)
            for codes, places in self._places:
                for place in places:
                    codes[place] = code
        else:
            for (codes, places), (_, errors) in zip(self._places, outcome, strict=True):
                for place, (_, code) in zip(places, errors, strict=True):
                    codes[place] = code
        _answer(request, self._message, self._codes)


def _find(request: Request, topic: OffsetCommitTopic, image: MetadataImage) -> TopicImage | None:
    if request.api_version >= TOPIC_ID_VERSION:
        return None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
    return image.topic(topic.name)


def _unknown(request: Request, found: TopicImage | None) -> ErrorCode:
    if found is None and request.api_version >= TOPIC_ID_VERSION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _known_code(request: Request, code: ErrorCode) -> ErrorCode:
    """Older clients do not know GROUP_ID_NOT_FOUND: they get ILLEGAL_GENERATION."""
    missing = code is ErrorCode.GROUP_ID_NOT_FOUND
    if missing and request.api_version < GROUP_ID_NOT_FOUND_VERSION:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _answer_all(request: Request, message: OffsetCommitMessage, code: ErrorCode) -> None:
    _answer(request, message, [[code] * len(topic.partitions) for topic in message.topics])


def _answer(request: Request, message: OffsetCommitMessage, codes: list[list[int]]) -> None:
    for row in codes:
        for code in row:
            if code != ErrorCode.NONE:
                request.note_error(code)
    request.respond(
        [
            encode_offset_commit_response(
                message,
                codes,
                request.api_version,
                request.correlation_id,
                request.throttle_time_ms,
            )
        ]
    )
