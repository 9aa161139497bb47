"""Produce, versions 0 to 13: append records to partitions.

A request is split and checked here, and gathered (`GatheredAppends`): the requests of one socket
read are appended together at its end. A step that takes time may come before
(`steps_before_append`); such a request is appended on its own when that is done. The answer leaves
at once for acks=1, when every in-sync replica has the records for acks=-1, and not at all for
acks=0: there a failure closes the connection, since the client has no other way to learn of it.

Version notes: versions 0-2 carry message sets of magic 0 and 1, which the log converts; from 3 on
there is exactly one batch of magic 2 for each partition. zstd needs version 7. Before version 4
KAFKA_STORAGE_ERROR is sent as NOT_LEADER_OR_FOLLOWER. From 10 on NOT_LEADER_OR_FOLLOWER names the
leader; 13 names topics by id.

Transactional batches need a transactional id in the request; whether their transaction is open is
asked by a step before the append (`transaction_verification`).
"""

from collections.abc import Callable
from struct import Struct
from typing import Final
from uuid import UUID

from odradek.background import Background
from odradek.clock import Clock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.api import Concerns
from odradek.handlers.context import HandlerContext
from odradek.handlers.records.before_append import BeforeAppend, PendingAppend, Refusals
from odradek.handlers.records.scheduled_records import ScheduledRecords
from odradek.handlers.records.unpacking import Unpacking
from odradek.handlers.request import Request
from odradek.handlers.topic_names import CurrentLeaders, topic_name
from odradek.handlers.transactions.transaction_verification import (
    TransactionVerification,
    TransactionVerifier,
)
from odradek.model import AppendOrigin, TopicPartition
from odradek.protocol.direct.produce import (
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from odradek.protocol.primitives import Buffer
from odradek.records.compression import Compression
from odradek.records.validate import Batches
from odradek.replication.append import ACKS_ALL, ACKS_NONE, AppendRequest, AppendResult
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.schedule.manager import ScheduleManager
from odradek.timer import Timer

STORAGE_ERROR_VERSION: Final = 4
BATCH_VERSION: Final = 3
ZSTD_VERSION: Final = 7
CURRENT_LEADER_VERSION: Final = 10

# In a batch of magic 2: length (at 8), magic (at 16), the lower byte of the attributes (at 22).
_CLIENT: Final = AppendOrigin.CLIENT
_PEEK: Final = Struct(">8xi4xB5xB")
_LOG_OVERHEAD_BYTES: Final = 12
_HEADER_BYTES: Final = 61
_CODEC_MASK: Final = 0x07
_ZSTD: Final = int(Compression.ZSTD)  # the enumeration would be slow
_MAGIC_POSITION: Final = 16
_ATTRIBUTES_POSITION: Final = 22
TRANSACTIONAL_MASK: Final = 0x10


def steps_before_append(
    replicas: ReplicaManager,
    verifier: TransactionVerifier,
    background: Background,
    clock: Clock,
    timer: Timer,
    config: BrokerConfig,
    schedules: ScheduleManager,
) -> tuple[BeforeAppend, ...]:
    """The steps before an append, in the order a broker takes them."""
    return (
        Unpacking(replicas, background, clock),
        ScheduledRecords(schedules),
        # Last: its result is valid only if the append follows at once.
        TransactionVerification(verifier, config, clock, timer),
    )


def handle(context: HandlerContext, request: Request) -> None:
    """Gathers the request for the append of its socket read, or begins the steps before it."""
    body = decode_produce_request(
        request.exchange.frame, request.api_version, request.body_position
    )
    reply = _ProduceReply(context, request, body)
    request.handled_by = reply
    _begin(context, request, body, reply)


def refuse(context: HandlerContext, request: Request, code: ErrorCode, concerns: Concerns) -> None:
    """Answers an error for the partitions that `concerns` selects; appends to the others."""
    body = decode_produce_request(
        request.exchange.frame, request.api_version, request.body_position
    )
    reply = _ProduceReply(context, request, body)
    request.handled_by = reply
    reply.refuse(code, concerns)
    _begin(context, request, body, reply)


def handle_allowed(
    context: HandlerContext,
    request: Request,
    may_transact: Callable[[str], bool],
    is_denied: Concerns,
) -> None:
    """Appends to the allowed partitions. The answer says nothing else about denied ones, not even
    whether the topic exists."""
    body = decode_produce_request(
        request.exchange.frame, request.api_version, request.body_position
    )
    reply = _ProduceReply(context, request, body)
    request.handled_by = reply
    transactional_id = body.transactional_id
    # An empty name is one, too.
    if (
        reply.is_transactional
        and transactional_id is not None
        and not may_transact(transactional_id)
    ):
        reply.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return
    reply.deny(is_denied)
    _begin(context, request, body, reply)


def _begin(
    context: HandlerContext, request: Request, body: ProduceRequest, reply: "_ProduceReply"
) -> None:
    if reply.is_transactional and body.transactional_id is None:
        reply.fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not context.before_append:
        reply.gather()
    elif not reply.prepare(body.transactional_id):
        request.keep_frame()


def end_of_read(context: HandlerContext) -> None:
    """Appends the gathered requests of a socket read, and answers those that need not wait."""
    context.gathered.append()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error; closes the connection if the request was not
    decoded."""
    reply = request.handled_by
    if isinstance(reply, _ProduceReply):
        reply.fail(code)
    else:
        request.close()


class _ProduceReply:
    """A request between its append and its answer.

    `entries` are the batches for the log; partitions that were refused earlier have their result
    already. The answer has them all, in the order of the request.
    """

    def __init__(self, context: HandlerContext, request: Request, body: ProduceRequest) -> None:
        self.entries: list[tuple[TopicPartition, Batches]] = []
        self.is_transactional = False
        self._context = context
        self._request = request
        self._acks = body.acks
        self._timeout_ms = body.timeout_ms
        self._is_late = False
        self._is_denied: Concerns | None = None
        # For each topic its name or id, and for each partition an early result, or None.
        self._topics: list[tuple[str | None, UUID | None, list[int]]] = []
        self._early: list[AppendResult | None] = []
        image = context.metadata.image
        for topic in body.topics:
            name = topic_name(image, topic.name, topic.topic_id)
            indexes: list[int] = []
            for partition in topic.partitions:
                indexes.append(partition.index)
                self._sort(name, partition.index, partition.records)
            self._topics.append((topic.name, topic.topic_id, indexes))

    def _sort(self, name: str | None, index: int, records: Buffer | None) -> None:
        if name is None:
            self._refuse(TopicPartition("", index), BrokerError(ErrorCode.UNKNOWN_TOPIC_ID))
            return
        topic_partition = TopicPartition(name, index)
        refusal = check_records(records, self._request.api_version)
        if refusal is not None:
            if self._context.metadata.image.partition(topic_partition) is None:
                refusal = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            self._refuse(topic_partition, refusal)
        elif isinstance(records, memoryview):
            self._early.append(None)
            self.entries.append((topic_partition, records))
            if records[_ATTRIBUTES_POSITION] & TRANSACTIONAL_MASK and records[_MAGIC_POSITION] == 2:
                self.is_transactional = True

    def _refuse(self, topic_partition: TopicPartition, error: BrokerError) -> None:
        self._early.append(_refusal(topic_partition, error))

    def refuse(self, code: ErrorCode, concerns: Concerns) -> None:
        """Refuses partitions that would otherwise be appended to."""
        refused = {where: BrokerError(code) for where, _ in self.entries if concerns(where)}
        if refused:
            self._refuse_entries(refused)

    def deny(self, is_denied: Concerns) -> None:
        """Refuses partitions that the caller may not write, also those that have another error."""
        self._is_denied = is_denied
        for where, _ in self.entries:
            if is_denied(where):
                break
        else:
            if len(self.entries) == len(self._early):
                return
        self.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, is_denied)
        for place, early in enumerate(self._early):
            if early is not None and is_denied(early.topic_partition):
                error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                self._early[place] = _refusal(early.topic_partition, error)

    # The way to the append

    def gather(self) -> None:
        """Leaves the records for the append at the end of the socket read."""
        self._request.exchange.batched = True
        self._context.gathered.add(self._append_request())

    def prepare(self, transactional_id: str | None) -> bool:
        """Begins the steps before the append; returns whether they are done, and the request is
        gathered."""
        pending = PendingAppend(self._request, self._acks, transactional_id, self.entries)
        if self._is_denied is not None:
            pending.is_denied = self._is_denied
        self._next_step(pending, 0)
        self._is_late = not self._request.exchange.batched
        return not self._is_late

    def _next_step(self, pending: PendingAppend, position: int) -> None:
        steps = self._context.before_append
        while position < len(steps) and pending.entries:
            step = steps[position]
            position += 1
            if step.concerns(pending):
                step.start(pending, self._request.guard(_AfterStep(self, pending, position).resume))
                return
        if self._is_late:
            self._append_late()
        else:
            self.gather()

    def after_step(self, pending: PendingAppend, position: int, refused: Refusals) -> None:
        """Refuses the partitions that a step has refused, and begins the next one or appends."""
        if refused:
            self._refuse_entries(refused)
        self._next_step(pending, position)

    def _append_late(self) -> None:
        """Appends outside of a socket read, after the connection's earlier requests."""
        self._context.gathered.add(self._append_request())
        self._context.gathered.append()
        self._request.exchange.release_frame()

    def _append_request(self) -> AppendRequest:
        on_done = self.on_appended
        if self._acks == ACKS_ALL or self._is_late:
            on_done = self._request.guard(on_done)
        # Moved out: a request that waits for replicas must not keep a frame that it does not own.
        entries, self.entries = self.entries, []
        return AppendRequest(self._acks, self._timeout_ms, _CLIENT, entries, on_done)

    def _refuse_entries(self, refused: Refusals) -> None:
        entries = iter(tuple(self.entries))
        self.entries.clear()
        for place, early in enumerate(self._early):
            if early is not None:
                continue
            topic_partition, records = next(entries)
            error = refused.get(topic_partition)
            if error is None:
                self.entries.append((topic_partition, records))
            else:
                self._early[place] = _refusal(topic_partition, error)

    # The answer

    def fail(self, code: ErrorCode) -> None:
        """Answers every partition with an error."""
        if self._acks == ACKS_NONE:
            self._request.close()
            return
        topics = [
            ProduceTopicResponse(
                name, topic_id, [ProducePartitionResponse(index, code) for index in indexes]
            )
            for name, topic_id, indexes in self._topics
        ]
        _send(self._request, ProduceResponse(topics))

    def on_appended(self, results: list[AppendResult]) -> None:
        """Answers, or with acks=0 ends the exchange."""
        if self._acks == ACKS_NONE:
            self._end_silently(results)
            return
        if len(results) != len(self._early):
            appended = iter(results)
            results = [next(appended) if early is None else early for early in self._early]
        version = self._request.api_version
        leaders = CurrentLeaders(self._context.metadata.image, self._request.exchange.listener_name)
        topics: list[ProduceTopicResponse] = []
        position = 0
        for name, topic_id, indexes in self._topics:
            partitions: list[ProducePartitionResponse] = []
            for index in indexes:
                answer = _answer(results[position], index, version, leaders)
                if answer.error_code != ErrorCode.NONE:
                    self._request.note_error(answer.error_code)
                partitions.append(answer)
                position += 1
            topics.append(ProduceTopicResponse(name, topic_id, partitions))
        _send(self._request, ProduceResponse(topics, 0, leaders.endpoints))

    def _end_silently(self, results: list[AppendResult]) -> None:
        failed = any(result.error_code != ErrorCode.NONE for result in results)
        if failed or len(self._early) != len(results):
            self._request.close()
        else:
            self._request.no_op()


class _AfterStep:
    """Continues a reply after a step."""

    def __init__(self, reply: _ProduceReply, pending: PendingAppend, position: int) -> None:
        self._reply = reply
        self._pending = pending
        self._position = position

    def resume(self, refused: Refusals) -> None:
        """Continues with the next step, or with the append."""
        self._reply.after_step(self._pending, self._position, refused)


def _refusal(topic_partition: TopicPartition, error: BrokerError) -> AppendResult:
    result = AppendResult(topic_partition)
    result.fail(error)
    return result


def _send(request: Request, response: ProduceResponse) -> None:
    response.throttle_time_ms = request.throttle_time_ms
    request.respond(
        [encode_produce_response(response, request.api_version, request.correlation_id)]
    )


def _answer(
    result: AppendResult, index: int, version: int, leaders: CurrentLeaders
) -> ProducePartitionResponse:
    code = result.error_code
    answer = ProducePartitionResponse(
        index, code, result.base_offset, result.log_append_time_ms, result.log_start_offset
    )
    if code == ErrorCode.NONE:
        return answer
    answer.error_message = result.error_message
    answer.record_errors = result.record_errors
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_VERSION:
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= CURRENT_LEADER_VERSION:
        answer.current_leader_id, answer.current_leader_epoch = leaders.leader_of(
            result.topic_partition
        )
    return answer


def check_records(records: Buffer | None, version: int) -> BrokerError | None:
    """Checks the rules that the version of the request sets for records; the log checks the
    rest."""
    if records is None or len(records) == 0:
        return BrokerError(ErrorCode.INVALID_RECORD, "there are no records for the partition")
    if version < BATCH_VERSION:
        return None
    if len(records) < _HEADER_BYTES:
        return BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{len(records)} bytes are not a batch")
    length, magic, attributes = _PEEK.unpack_from(records)
    if magic != 2:
        return BrokerError(
            ErrorCode.INVALID_RECORD, f"version {version} takes batches of magic 2, not {magic}"
        )
    if 0 < length + _LOG_OVERHEAD_BYTES < len(records):
        return BrokerError(
            ErrorCode.INVALID_RECORD, f"version {version} takes one batch for each partition"
        )
    if attributes & _CODEC_MASK == _ZSTD and version < ZSTD_VERSION:
        return BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs version {ZSTD_VERSION}"
        )
    return None
