"""ShareFetch (78), versions 1 and 2: records for a member of a share group, each for this member
alone.

Behaviour: the request's acknowledgements are carried out first, also those of partitions that it
forgets; then records are handed out, or waited for. An invalid request has no effect. Partitions
that gave records come last the next time, so that none is starved. A client that opens one session
too many is answered after its maximum wait, which slows it down.

Version notes: 2 adds exact limits of records (KIP-1206) and renewals, which fetch nothing
(KIP-1222).
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.handlers.share.share_requests import (
    Errors,
    IsDenied,
    Leaders,
    Place,
    acknowledge,
    acknowledgements_of,
    allow_all,
    by_topic,
    lock_duration_ms,
    resolve,
)
from odradek.handlers.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from odradek.handlers.share.share_version import serves_share_groups
from odradek.protocol.messages import milliseconds
from odradek.replication.share.fetch import (
    ShareFetchParams,
    ShareFetchPartition,
    ShareFetchResult,
)

RECORD_LIMIT_MODE = 1


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when there are records, or at the time-out."""
    handle_allowed(context, request, allow_all)


def handle_allowed(context: HandlerContext, request: Request, is_denied: IsDenied) -> None:
    """The same for topics that the caller may read; the others are answered with an error."""
    if not serves_share_groups(context):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    try:
        _check(request.body())
        session = _session(context, request)
    except BrokerError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            _refuse_late(context, request, error)
        else:
            _refuse(request, error)
        return
    _ShareFetch(context, request, session, is_denied).run()


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    _refuse(request, BrokerError(code, code.text))


def _check(body: Any) -> None:
    """Raises BrokerError INVALID_REQUEST for fields that no request may have."""
    if not body.group_id or not body.member_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a group and a member have to be named")
    if getattr(body, "is_renew_ack", False) and (
        body.max_bytes or body.min_bytes or body.max_records or milliseconds(body.max_wait)
    ):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a renewal fetches nothing")


def _session(context: HandlerContext, request: Request) -> ShareSession:
    body = request.body()
    sessions = context.share_sessions
    if body.share_session_epoch != INITIAL_EPOCH:
        session = sessions.go_on(body.group_id, body.member_id, body.share_session_epoch)
    else:
        if acknowledgements_of(body.topics):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "nothing can be acknowledged as a session begins"
            )
        connection_id = request.exchange.connection_id
        session = sessions.open(body.group_id, body.member_id, connection_id)
    if body.share_session_epoch != FINAL_EPOCH:
        session.update(_places(body.topics), _forgotten(body.forgotten_topics_data))
    return session


def _places(topics: Any) -> Iterator[Place]:
    for topic in topics:
        for partition in topic.partitions:
            yield topic.topic_id or UUID(int=0), partition.partition_index


def _forgotten(topics: Any) -> Iterator[Place]:
    for topic in topics:
        for index in topic.partitions:
            yield topic.topic_id or UUID(int=0), index


def _params(body: Any) -> ShareFetchParams:
    return ShareFetchParams(
        body.group_id,
        body.member_id,
        milliseconds(body.max_wait),
        body.min_bytes,
        body.max_bytes,
        body.max_records,
        body.batch_size,
        getattr(body, "share_acquire_mode", 0) == RECORD_LIMIT_MODE,
    )


def _refuse_late(context: HandlerContext, request: Request, error: BrokerError) -> None:
    params = _params(request.body())
    # No partition is asked for: only the time passes.
    refuse = request.guard(lambda _results: _refuse(request, error))
    context.share_partitions.fetch(params, [], refuse)


def _refuse(request: Request, error: BrokerError) -> None:
    request.answer(error_code=error.code, responses=())


class _ShareFetch:
    """One request on its way."""

    def __init__(
        self,
        context: HandlerContext,
        request: Request,
        session: ShareSession,
        is_denied: IsDenied,
    ) -> None:
        self._context = context
        self._is_denied = is_denied
        self._request = request
        self._session = session
        self._body = request.body()
        self._acknowledged: Errors = {}
        self._partitions: list[ShareFetchPartition] = []
        self._unknown: dict[Place, BrokerError] = {}

    def run(self) -> None:
        said = acknowledgements_of(self._body.topics)
        acknowledge(self._context, self._request, said, self._on_acknowledged, self._is_denied)

    def _on_acknowledged(self, errors: Errors) -> None:
        self._acknowledged = errors
        if self._body.share_session_epoch == FINAL_EPOCH:
            self._context.share_sessions.close(self._session)
            self._answer([])
            return
        if getattr(self._body, "is_renew_ack", False):
            self._answer([])
            return
        do_in_slices(self._request, list(self._session.partitions), self._resolve, self._fetch)

    def _resolve(self, place: Place) -> None:
        try:
            partition = resolve(self._context, self._body.group_id, place, self._is_denied)
            self._partitions.append(partition)
        except BrokerError as error:
            self._unknown[place] = error

    def _fetch(self) -> None:
        params = _params(self._body)
        allowed_bytes = self._request.most_to_fetch()
        if allowed_bytes is not None:
            max_bytes = min(params.max_bytes, allowed_bytes)
            min_bytes = min(params.min_bytes, max_bytes)
            params = params._replace(max_bytes=max_bytes, min_bytes=min_bytes)
        if self._unknown or any(self._acknowledged.values()):
            # A response with acknowledgements or errors is sent at once, with the records found so
            # far.
            params = params._replace(max_wait_ms=0)
        on_done = self._request.guard(self._answer)
        connection_id = self._request.exchange.connection_id
        self._context.share_sessions.fetch(
            self._session, connection_id, params, self._partitions, on_done
        )

    def _answer(self, results: list[ShareFetchResult]) -> None:
        leaders = Leaders(self._context, self._request.exchange.listener_name)
        answers: dict[Place, dict[str, object]] = {}
        steps = self._answer_each(results, leaders, answers)
        self._request.in_slices(steps, lambda _is_long: self._send(leaders, answers))

    def _answer_each(
        self,
        results: list[ShareFetchResult],
        leaders: Leaders,
        answers: dict[Place, dict[str, object]],
    ) -> Iterator[int]:
        for partition, result in zip(self._partitions, results, strict=bool(results)):
            place = partition.key.topic_id, partition.key.partition
            self._request.used += sum(map(len, result.records))
            if result.acquired:
                self._session.move_to_end(place)
            if result.acquired or result.error_code is not ErrorCode.NONE:
                answers[place] = _result_fields(result) | leaders.of(place, result.error_code)
            yield 1
        for place, error in self._unknown.items():
            answers[place] = _error_fields(error) | leaders.of(place, error.code)
            yield 1
        for place, said in self._acknowledged.items():
            known = answers.setdefault(place, _nothing() | leaders.of(place, _code(said)))
            known["acknowledge_error_code"] = _code(said)
            if said is not None:
                known["acknowledge_error_message"] = said.message or None
            yield 1

    def _send(self, leaders: Leaders, answers: dict[Place, dict[str, object]]) -> None:
        self._request.answer(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=lock_duration_ms(self._context, self._body.group_id),
            responses=by_topic(answers),
            node_endpoints=leaders.endpoints(),
        )


def _nothing() -> dict[str, object]:
    return {"error_code": ErrorCode.NONE, "acknowledge_error_code": ErrorCode.NONE}


def _code(error: BrokerError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


def _error_fields(error: BrokerError) -> dict[str, object]:
    return _nothing() | {"error_code": error.code}


def _result_fields(result: ShareFetchResult) -> dict[str, object]:
    if result.error_code is not ErrorCode.NONE:
        return _error_fields(BrokerError(result.error_code, result.message))
    return _nothing() | {
        "records": b"".join(result.records),
        "acquired_records": [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "delivery_count": each.delivery_count,
            }
            for each in result.acquired
        ],
    }
