"""Routes a frame to its handler, and turns an unexpected exception into an answer.

The only place that catches everything: a bug in one handler fails one request, not the broker.
Malformed requests, and APIs or versions that were never advertised, lose their connection with one
log line, as with Kafka; only ApiVersions is answered in any version.

Produce requests and offset commits are gathered until the network has handled what it read
(`end_of_read`), so that those of one read share one append for each partition. They are carried out
before a later request of another API, so that effects keep the order of the requests.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from odradek.errors import ErrorCode
from odradek.handlers.api import Api, Concerns
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import LONG_REQUEST_BYTES, LongWork, Outcome
from odradek.handlers.request import Request, RequestQuotas
from odradek.log_limit import LimitedLog
from odradek.protocol import messages
from odradek.protocol.exchange import Exchange, RequestHandler
from odradek.protocol.header import API_VERSIONS_KEY, RequestHeader, decode_request_header
from odradek.protocol.primitives import ProtocolError

_LOG = logging.getLogger(__name__)

UNSERVED_LOG_INTERVAL_MS: Final = 60_000


class Dispatcher(RequestHandler):
    """Routes by `context.apis`, and carries out the gathered requests at the end of a socket
    read."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._apis = dict(context.apis)
        self._flexible_from = {api.key: api.flexible_from for api in context.apis.values()}
        self._batched: list[Request] = []
        self._unserved: dict[int, LimitedLog] = {}  # by API key
        self._quotas: RequestQuotas | None = context.quotas
        self._long_work = LongWork(context.background, context.clock)
        self._decoding: set[str] = set()  # connections whose request is being decoded

    def charge(self, quotas: RequestQuotas | None) -> None:
        """Charges requests from now on, or no longer."""
        self._quotas = quotas

    def handle_frame(self, exchange: Exchange) -> None:
        """Takes a request up; see `RequestHandler`."""
        try:
            header = decode_request_header(exchange.frame, self._flexible_from)
        except ProtocolError as error:
            self._refuse(exchange, f"malformed request header: {error}")
            return
        api = self._apis.get(header.api_key)
        if api is None:
            self._refuse_unserved(exchange, header.api_key)
        elif api.serves(header.api_version) or api.key == API_VERSIONS_KEY:
            self._dispatch(exchange, header, api)
        else:
            self._refuse(exchange, f"{api.name} version {header.api_version} is not served")

    def _dispatch(self, exchange: Exchange, header: RequestHeader, api: Api) -> None:
        if self._batched and header.api_key != self._batched[0].api_key:
            self.end_of_read()
        context = self._context
        observer, quotas = context.observer, self._quotas
        request = Request(exchange, header, api, observer, quotas, self._run, self._long_work)
        if quotas is not None:
            request.size_bytes = len(exchange.frame)
        if observer is not None:
            observer.received(request)
        if len(exchange.frame) >= LONG_REQUEST_BYTES and not api.has_own_codec:
            self._decode_and_handle(request, api)
        else:
            self._handle(request, api)

    def _decode_and_handle(self, request: Request, api: Api) -> None:
        """Handles a long request when a thread has decoded it. Only its connection waits."""
        self._decoding.add(request.exchange.connection_id)
        self._long_work.submit(request.decode, lambda body: self._on_decoded(request, api, body))

    def _on_decoded(self, request: Request, api: Api, decoded: Outcome) -> None:
        request.set_decoded(decoded)
        if self._quotas is not None:
            self._quotas.took(request, api, decoded.time_ns)
        self._handle(request, api)
        connection_id = request.exchange.connection_id
        if connection_id in self._decoding:
            self._decoding.remove(connection_id)
        else:
            self.connection_closed(connection_id)  # again: it has closed meanwhile

    def _handle(self, request: Request, api: Api) -> None:
        context, exchange = self._context, request.exchange
        observer, quotas = context.observer, self._quotas
        began_ns = 0 if quotas is None else quotas.busy_ns()
        try:
            api.handle(context, request)
        except ProtocolError as error:
            self._refuse_request(request, error)
        except Exception:  # noqa: BLE001 - the one boundary where a bug becomes an answer
            self._fail(request)
        if quotas is not None:
            quotas.took(request, api, quotas.busy_ns() - began_ns)
        if request.answered:
            return
        if exchange.batched:
            self._batched.append(request)
            return
        if observer is not None:
            observer.left(request)
        if not request.keeps_frame:
            exchange.release_frame()

    def refuse(
        self, exchange: Exchange, header: RequestHeader, code: ErrorCode, concerns: Concerns
    ) -> None:
        """Answers a request of a served API with an error, without its handler; if the API can
        refuse single partitions, only for those that `concerns` selects."""
        api = self._apis[header.api_key]
        context = self._context

        def fail(_context: HandlerContext, request: Request) -> None:
            self._answer_failure(api, request, code)

        def refuse(_context: HandlerContext, request: Request) -> None:
            assert api.refuse is not None, "asked for before"
            api.refuse(context, request, code, concerns)

        handle = fail if api.refuse is None else refuse
        self._dispatch(exchange, header, replace(api, handle=handle))

    def _run(self, request: Request, function: Callable[[], None]) -> None:
        """Runs the rest of a handler, from a callback."""
        try:
            function()
        except ProtocolError as error:
            self._refuse_request(request, error)
        except Exception:  # noqa: BLE001 - as in _dispatch
            self._fail(request)

    def end_of_read(self) -> None:
        """Carries out the gathered requests of a read, and answers those that need not wait."""
        batched = self._batched
        if not batched:
            return
        self._batched = []
        api, quotas = self._apis[batched[0].api_key], self._quotas
        end_of_read = api.end_of_read
        began_ns = 0 if quotas is None else quotas.busy_ns()
        try:
            assert end_of_read is not None, "an API that batches says what is done with a batch"
            end_of_read(self._context)
        except Exception:  # noqa: BLE001 - as in _dispatch
            for request in batched:
                self._fail(request)
        if quotas is not None:
            share_ns = (quotas.busy_ns() - began_ns) // len(batched)
            for request in batched:
                quotas.took(request, api, share_ns)
        observer = self._context.observer
        if observer is not None:
            for request in batched:
                if not request.answered:
                    observer.left(request)

    def connection_closed(self, connection_id: str) -> None:
        """Drops the fetch that the connection waits for, and its share sessions; other fetch
        sessions outlive it, as in Kafka."""
        self._decoding.discard(connection_id)
        self._context.parked_fetches.connection_closed(connection_id)
        self._context.share_sessions.connection_closed(connection_id)
        self._context.client_metrics.connection_closed(connection_id)

    def _fail(self, request: Request) -> None:
        """Answers for a handler that raised; called while its exception is being handled."""
        api = self._apis[request.api_key]
        _LOG.exception(
            "%s version %d from %s failed unexpectedly",
            api.name,
            request.api_version,
            request.exchange.client_host,
        )
        failed_before = request.abandon()
        if request.answered:
            return
        if failed_before:
            request.close()  # the error response cannot be encoded either
        else:
            self._answer_failure(api, request, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _answer_failure(self, api: Api, request: Request, code: ErrorCode) -> None:
        if api.fail is None:
            request.close()
            return
        try:
            api.fail(request, code)
        except Exception:  # noqa: BLE001 - as in _dispatch; the body itself may be the trouble
            _LOG.exception("%s cannot say that it failed, closing the connection", api.name)
            if not request.answered:
                request.close()

    def _refuse_request(self, request: Request, error: ProtocolError) -> None:
        name = self._apis[request.api_key].name
        _log_refusal(request.exchange, f"malformed {name} version {request.api_version}: {error}")
        if not request.answered:
            request.close()

    def _refuse_unserved(self, exchange: Exchange, api_key: int) -> None:
        """Closes the connection; a client that repeats it gets one line in the log a minute."""
        log = self._unserved.get(api_key)
        if log is None:
            clock = self._context.clock
            log = self._unserved[api_key] = LimitedLog(_LOG, clock, UNSERVED_LOG_INTERVAL_MS)
        name = messages.name_of(api_key) or "unknown to Kafka too"
        log.warning(
            f"API {api_key} ({name}) is not served: closing {exchange.connection_id} "
            f"from {exchange.client_host}"
        )
        exchange.close()

    def _refuse(self, exchange: Exchange, reason: str) -> None:
        _log_refusal(exchange, reason)
        exchange.close()


def _log_refusal(exchange: Exchange, reason: str) -> None:
    _LOG.warning(
        "closing connection %s from %s:%d: %s",
        exchange.connection_id,
        exchange.client_host,
        exchange.client_port,
        reason,
    )
