"""ShareAcknowledge (79), versions 1 and 2: a member acknowledges records that it has acquired.

Behaviour: like the first half of ShareFetch, in the same session, which this request cannot begin.
Answered when everything is stored.

Version notes: 2 adds renewals (KIP-1222).
"""

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
)
from odradek.handlers.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from odradek.handlers.share.share_version import serves_share_groups


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when everything is stored."""
    handle_allowed(context, request, allow_all)


def handle_allowed(context: HandlerContext, request: Request, is_denied: IsDenied) -> None:
    """The same for topics that the caller may read; the others are answered with an error."""
    if not serves_share_groups(context):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    try:
        session = _session(context, request)
    except BrokerError as error:
        _refuse(request, error)
        return

    def on_done(errors: Errors) -> None:
        if request.body().share_session_epoch == FINAL_EPOCH:
            context.share_sessions.close(session)
        _answer(context, request, errors)

    said = acknowledgements_of(request.body().topics)
    acknowledge(context, request, said, on_done, is_denied)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error."""
    _refuse(request, BrokerError(code, code.text))


def _session(context: HandlerContext, request: Request) -> ShareSession:
    body = request.body()
    if not body.group_id or not body.member_id:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a group and a member have to be named")
    if body.share_session_epoch == INITIAL_EPOCH:
        raise BrokerError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    sessions = context.share_sessions
    return sessions.go_on(body.group_id, body.member_id, body.share_session_epoch)


def _refuse(request: Request, error: BrokerError) -> None:
    request.answer(error_code=error.code, responses=())


def _answer(context: HandlerContext, request: Request, errors: Errors) -> None:
    leaders = Leaders(context, request.exchange.listener_name)
    answers: dict[Place, dict[str, object]] = {}

    def answer_one(place: Place) -> None:
        error = errors[place]
        code = ErrorCode.NONE if error is None else error.code
        answers[place] = {"error_code": code, **leaders.of(place, code)}
        if error is not None:
            answers[place]["error_message"] = error.message or None

    def send() -> None:
        request.answer(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=lock_duration_ms(context, request.body().group_id),
            responses=by_topic(answers),
            node_endpoints=leaders.endpoints(),
        )

    do_in_slices(request, errors, answer_one, send)
