"""Fetch, versions 0 to 18: read records, waiting for them if there are too few.

The request is understood by `fetch_sessions`, read or parked by the replica manager, and
answered here. Records go out as they lie in the log, without being copied or looked into,
except for clients that cannot read them. A consumer that names its rack may be sent to a replica
there.

Version notes: 0-1 get magic 0 and 2-3 magic 1, converted down; before 10 a client cannot be
expected to read zstd. 3 adds the limit of the whole response; before, only the partitions' limits
hold. Before 6 KAFKA_STORAGE_ERROR is sent as NOT_LEADER_OR_FOLLOWER. 11 adds racks, 13 names topics
by id, 16 adds the leader, and its address for consumers. Replicas fetch by the same request; -2 as
the replica id is a consumer that may read from any replica.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.api import Concerns
from odradek.handlers.context import HandlerContext
from odradek.handlers.records.fetch_sessions import FetchContext, SessionPartition
from odradek.handlers.request import Request
from odradek.handlers.topic_names import CurrentLeaders, topic_name
from odradek.model import TopicPartition
from odradek.protocol.direct.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    decode_fetch_request,
    encode_fetch_response,
)
from odradek.protocol.primitives import Buffer
from odradek.records.batch import split_batches
from odradek.records.compression import Compression
from odradek.records.convert import down_convert
from odradek.replication.fetch import (
    CONSUMER_REPLICA_ID,
    FetchInfo,
    FetchParams,
    FetchResult,
)

MAX_BYTES_VERSION: Final = 3
BATCH_VERSION: Final = 4
STORAGE_ERROR_VERSION: Final = 6
ZSTD_VERSION: Final = 10
RACK_VERSION: Final = 11
CURRENT_LEADER_VERSION: Final = 16
TOPIC_ID_VERSION: Final = 13

_Answer = tuple[SessionPartition, FetchPartitionResponse]

_NONE: Final = ErrorCode.NONE
_EPOCH_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(context: HandlerContext, request: Request) -> None:
    """Reads, or parks the request until there is enough to read."""
    opened = _open(context, request)
    if opened is None:
        return
    _read(context, request, *opened)


def _read(
    context: HandlerContext, request: Request, reply: "_FetchReply", params: FetchParams
) -> None:
    parked = context.replicas.fetch_messages(params, reply.infos, request.guard(reply.on_fetched))
    if parked is not None and not parked.is_completed:
        reply.is_parked = True
        connection_id, client_id = request.exchange.connection_id, request.client_id or ""
        context.parked_fetches.park(connection_id, client_id, parked)


def refuse(context: HandlerContext, request: Request, code: ErrorCode, concerns: Concerns) -> None:
    """Answers an error for the partitions that `concerns` selects; reads the others."""
    opened = _open(context, request)
    if opened is None:
        return
    reply, params = opened
    results = context.replicas.partitions.read(params, reply.infos)
    for result in results:
        if concerns(result.topic_partition):
            result.refuse(code)
    reply.on_fetched(results)


def _nothing(_partition: TopicPartition) -> bool:
    return False


def _everything(_partition: TopicPartition) -> bool:
    return True


def handle_allowed(
    context: HandlerContext,
    request: Request,
    may_follow: Callable[[], bool],
    is_denied: Concerns,
) -> None:
    """Reads the allowed partitions: a follower all or none, a consumer those that are not
    denied."""
    opened = _open(context, request)
    if opened is None:
        return
    reply, params = opened
    if params.replica_id >= 0:
        is_denied = _nothing if may_follow() else _everything
    reply.deny(is_denied)
    if reply.infos:
        _read(context, request, reply, params)
    else:
        reply.on_fetched([])


def fail(request: Request, code: ErrorCode) -> None:
    """Answers the request as a whole with an error."""
    request.note_error(code)
    _send(request, FetchResponse([], code))


def _open(context: HandlerContext, request: Request) -> "tuple[_FetchReply, FetchParams] | None":
    """Resolves the partitions to read; None when the session was refused, which is answered."""
    exchange = request.exchange
    version = request.api_version
    body = decode_fetch_request(exchange.frame, version, request.body_position)
    request.variant = "FetchFollower" if body.replica_id >= 0 else "FetchConsumer"
    fetch_context = context.fetch_sessions.open(body, version >= TOPIC_ID_VERSION)
    if fetch_context.error_code != ErrorCode.NONE:
        fail(request, fetch_context.error_code)
        return None
    reply = _FetchReply(context, request, body.replica_id >= 0, fetch_context)
    if body.replica_id < 0 and version >= MAX_BYTES_VERSION:
        allowed_bytes = request.most_to_fetch()
        if allowed_bytes is not None:
            body.max_bytes = min(body.max_bytes, allowed_bytes)
    return reply, _params(context, body, version, exchange.answer_bytes())


def _params(
    context: HandlerContext, body: FetchRequest, version: int, answer_bytes: int
) -> FetchParams:
    replica_id = body.replica_id
    return FetchParams(
        replica_id,
        body.max_wait_ms,
        min(body.min_bytes, body.max_bytes),
        # Even 0 bytes allow one batch, the least that the protocol knows.
        min(body.max_bytes, context.config.fetch_max_bytes, answer_bytes),
        body.isolation_level,
        replica_epoch=body.replica_epoch,
        # Newer consumers can find another replica when this one is behind.
        fetch_only_leader=replica_id >= 0
        or (replica_id == CONSUMER_REPLICA_ID and version < RACK_VERSION),
        hard_max_bytes=version < MAX_BYTES_VERSION,
        rack_id=body.rack_id if replica_id == CONSUMER_REPLICA_ID else "",
    )


class _FetchReply:
    """A request between its reading and its answer.

    `infos` are the partitions to read, whose topics are known. The others have their answer
    already.
    """

    def __init__(
        self,
        context: HandlerContext,
        request: Request,
        from_follower: bool,
        fetch_context: FetchContext,
    ) -> None:
        self.infos: list[FetchInfo] = []
        self.is_parked = False
        self._context = context
        self._request = request
        self._from_follower = from_follower
        self._fetch_context = fetch_context
        # For each partition the error for which it is not read, or NONE.
        self._early: list[ErrorCode] = []
        image = context.metadata.image
        name: str | None = None
        last_id: UUID | None = None
        for partition in fetch_context.partitions:
            # A follower asks for hundreds of one topic, under one id.
            if last_id is None or partition.topic_id is not last_id:
                name = topic_name(image, partition.name, partition.topic_id)
                last_id = partition.topic_id
            known = partition.topic_name if name is None else name
            self._early.append(_NONE if known is not None else ErrorCode.UNKNOWN_TOPIC_ID)
            if known is not None:
                self.infos.append(partition.resolve(known))

    def deny(self, is_denied: Concerns) -> None:
        """Takes partitions out that the caller may not read."""
        infos = iter(tuple(self.infos))
        self.infos.clear()
        for place, early in enumerate(self._early):
            if early is _NONE:
                info = next(infos)
                if is_denied(info.topic_partition):
                    self._early[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                else:
                    self.infos.append(info)

    def on_fetched(self, results: list[FetchResult]) -> None:
        """Answers with the records read."""
        if self.is_parked:
            self._context.parked_fetches.answered(self._request.exchange.connection_id)
        if self._request.is_charged and not self._from_follower and self._is_throttled(results):
            session = self._fetch_context.session
            session_id = 0 if session is None else session.session_id
            _send(self._request, FetchResponse([], session_id=session_id))
            return
        leaders = CurrentLeaders(self._context.metadata.image, self._request.exchange.listener_name)
        version = self._request.api_version
        is_incremental = self._fetch_context.session is not None
        answers: list[_Answer] = []
        position = 0
        for partition, early in zip(self._fetch_context.partitions, self._early, strict=True):
            if early is _NONE:
                info, result = self.infos[position], results[position]
                position += 1
                if is_incremental and info.tells_again(result):
                    continue
                answer = _answer(result, info, version, leaders)
            else:
                answer = FetchPartitionResponse(partition.index, early)
                answer.aborted = []
            if answer.error_code != ErrorCode.NONE:
                self._request.note_error(answer.error_code)
            answers.append((partition, answer))
        self._count(results)
        response = self._respond(answers)
        if not self._from_follower:  # brokers know where the others are
            response.node_endpoints = leaders.endpoints
        _send(self._request, response)

    def _count(self, results: list[FetchResult]) -> None:
        traffic = self._context.replicas.traffic
        if not traffic.is_counted:
            return
        for result in results:
            if self._from_follower:
                traffic.replicated_out(result.size_bytes)
            elif result.error_code == ErrorCode.NONE:
                traffic.fetched(result.topic_partition.topic, result.size_bytes)
            else:
                traffic.not_fetched(result.topic_partition.topic, result.error_code)

    def _is_throttled(self, results: list[FetchResult]) -> bool:
        """Whether the client is over its quota, so that it gets no records now."""
        size_bytes = 0
        for result in results:
            for records in result.records or ():
                size_bytes += len(records)
        self._request.used = size_bytes
        return self._request.throttle_time_ms > 0

    def _respond(self, answers: list[_Answer]) -> FetchResponse:
        fetch_context = self._fetch_context
        session = fetch_context.session
        topics = _Topics()
        if session is None:
            session_id = self._context.fetch_sessions.answered(
                fetch_context,
                [answer for _, answer in answers],
                by_id=self._request.api_version >= TOPIC_ID_VERSION,
                privileged=self._from_follower,
            )
            for partition, answer in answers:
                topics.add(partition, answer)
            return FetchResponse(topics.topics, session_id=session_id)
        for partition, answer in answers:
            if partition.note_answer(answer):
                topics.add(partition, answer)
                if answer.records:
                    session.move_to_end(partition)
        return FetchResponse(topics.topics, session_id=session.session_id)


class _Topics:
    """The answers of partitions, grouped by runs of the same topic."""

    def __init__(self) -> None:
        self.topics: list[FetchTopicResponse] = []
        self._name: str | None = None
        self._topic_id: UUID | None = None

    def add(self, partition: SessionPartition, answer: FetchPartitionResponse) -> None:
        """Puts an answer behind the others."""
        if self.topics and partition.name == self._name and partition.topic_id == self._topic_id:
            self.topics[-1].partitions.append(answer)
            return
        self._name = partition.name
        self._topic_id = partition.topic_id
        self.topics.append(FetchTopicResponse(partition.name, partition.topic_id, [answer]))


def _send(request: Request, response: FetchResponse) -> None:
    response.throttle_time_ms = request.throttle_time_ms
    request.respond(encode_fetch_response(response, request.api_version, request.correlation_id))


def _answer(
    result: FetchResult, info: FetchInfo, version: int, leaders: CurrentLeaders
) -> FetchPartitionResponse:
    topic_partition = info.topic_partition
    if version < ZSTD_VERSION and result.records:
        _suit_old_client(result, info, version)
    code = result.error_code
    answer = FetchPartitionResponse(
        topic_partition.partition,
        code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.aborted,
        result.preferred_read_replica,
        result.records,
        result.diverging_epoch,
        result.diverging_end_offset,
    )
    if code != ErrorCode.NONE:
        _explain(answer, topic_partition, version, leaders)
    return answer


def _explain(
    answer: FetchPartitionResponse,
    topic_partition: TopicPartition,
    version: int,
    leaders: CurrentLeaders,
) -> None:
    if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        answer.aborted = []
    if answer.error_code in _EPOCH_ERRORS and version >= CURRENT_LEADER_VERSION:
        leader = leaders.leader_of(topic_partition)
        answer.current_leader_id, answer.current_leader_epoch = leader


def _suit_old_client(result: FetchResult, info: FetchInfo, version: int) -> None:
    """Converts records down for a client from before magic 2; refuses records that it could not
    read."""
    records: Buffer = result.records[0] if len(result.records) == 1 else b"".join(result.records)
    try:
        if _has_zstd(records):
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if version < BATCH_VERSION:
            magic = 0 if version < 2 else 1
            converted = down_convert(records, magic, from_offset=info.fetch_offset)
            result.records = [converted] if converted else []
    except BrokerError as error:
        result.refuse(error.code)


def _has_zstd(records: Buffer) -> bool:
    headers = split_batches(records, drop_partial_tail=True)
    return any(header.codec == Compression.ZSTD for header in headers)
