"""`Guard` stands before a handler: the request, and what its caller may do, are a `Guarded`.

A rule looks at the request and passes its allowed part to the handler: all (`serve`), nothing
(`fail`), or some entries (`serve_allowed`). Entries that are refused are answered in the shape that
the API's own `fail` gives them, and put behind those that the handler answers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from odradek.acl import CLUSTER_NAME
from odradek.errors import ErrorCode
from odradek.handlers.api import Api
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.model import AclOperation, ResourceType
from odradek.protocol.exchange import Exchange
from odradek.protocol.header import RequestHeader
from odradek.protocol.primitives import Buffer
from odradek.security.authorizer import Authorizer, Caller

Fields = dict[str, Any]

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for a caller that may not do something with a resource of that type."""


class Guarded:
    """One request of `caller`, for the API of `row`."""

    __slots__ = ("caller", "context", "request", "row")

    def __init__(self, context: HandlerContext, request: Request, row: Api, caller: Caller) -> None:
        self.context = context
        self.request = request
        self.row = row
        self.caller = caller

    # --- what the caller may do -----------------------------------------------------------------

    def may(self, operation: AclOperation, type: ResourceType, name: str) -> bool:
        """Whether the caller may do the operation; the audit log records it."""
        return self.caller.may(operation, type, name, self.row.name)

    def may_see(self, operation: AclOperation, type: ResourceType, name: str) -> bool:
        """Whether the caller may do an operation that the request did not ask for."""
        return self.caller.may_see(operation, type, name)

    def may_in_cluster(self, operation: AclOperation) -> bool:
        """Whether the caller may do the operation on the cluster; the audit log records it."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_see_in_cluster(self, operation: AclOperation) -> bool:
        """Whether the caller may do the operation on the cluster, where that replaces other
        permissions."""
        return self.may_see(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def denied(
        self, operation: AclOperation, type: ResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        """The names of resources on which the caller may not do the operation."""
        return frozenset(
            name for name in dict.fromkeys(names) if not self.may(operation, type, name)
        )

    def find_denied(
        self,
        operation: AclOperation,
        type: ResourceType,
        names: Iterable[str],
        then: Callable[[frozenset[str]], None],
    ) -> None:
        """Calls `then` with the names on which the caller may not do the operation; checks them in
        slices."""
        denied: set[str] = set()

        def look(name: str) -> None:
            if not self.may(operation, type, name):
                denied.add(name)

        do_in_slices(self.request, dict.fromkeys(names), look, lambda: then(frozenset(denied)))

    # --- what becomes of the request ------------------------------------------------------------

    def serve(self) -> None:
        """Calls the handler with the request, or with its allowed part."""
        self.row.handle(self.context, self.request)

    def fail(self, code: ErrorCode, **told: object) -> None:
        """Refuses the whole request; `told` are fields in which Kafka differs from `fail` then."""
        fail = self.row.fail
        if told:
            self.amend(lambda fields: fields.update(told))
        if fail is None:
            self.request.close()
        else:
            fail(self.request, code)

    def refusals(self, field: str, code: ErrorCode, **refused: Any) -> list[Fields]:
        """The entries of a field that the API's `fail` would answer if the request had only the
        refused entries."""
        request, fail = self.request, self.row.fail
        assert fail is not None, f"{self.row.name} has a place to say so"
        header = RequestHeader(
            request.api_key, request.api_version, request.correlation_id, request.client_id, 0
        )
        told: Fields = {}
        aside = Request(_Nowhere(request.exchange), header, self.row, None, None, _run)
        aside.narrow(replace(request.body(), **refused))
        aside.amend = partial(_note, told)
        fail(aside, code)
        return list(told[field])

    def serve_allowed(
        self, asked: str, allowed: Collection[Any], answered: str, refused: list[Fields]
    ) -> None:
        """Calls the handler with the allowed entries of the field `asked`, and puts the refused
        entries behind its answers in `answered`. If nothing is allowed the handler is not called.
        """
        if not refused:
            self.serve()
        elif not allowed:
            self.request.answer(**{answered: refused})
        else:
            self.request.narrow(replace(self.request.body(), **{asked: tuple(allowed)}))
            self.append(answered, refused)
            self.serve()

    def append(self, answered: str, refused: list[Fields]) -> None:
        """Puts entries behind those that the handler answers."""

        def amend(fields: Fields) -> None:
            fields[answered] = [*fields.get(answered, ()), *refused]

        self.amend(amend)

    def keep(self, answered: str, is_allowed: Callable[[Fields], bool]) -> None:
        """Drops entries of the handler's answer that are not allowed."""

        def amend(fields: Fields) -> Iterator[int]:
            entries = fields.get(answered, ())
            fields[answered] = kept = []
            for each in entries:
                if is_allowed(each):
                    kept.append(each)
                yield 1

        self.amend_in_steps(amend)

    def amend_each(self, answered: str, amend: Callable[[Fields], None]) -> None:
        """Changes each entry of a field of the handler's answer, in slices."""

        def amend_all(fields: Fields) -> Iterator[int]:
            for each in fields.get(answered, ()):
                amend(each)
                yield 1

        self.amend_in_steps(amend_all)

    def amend(self, amend: Callable[[Fields], None]) -> None:
        """Changes the answer, after earlier changes."""

        def amend_at_once(fields: Fields) -> Iterator[int]:
            amend(fields)
            yield 1

        self.amend_in_steps(amend_at_once)

    def amend_in_steps(self, amend: Callable[[Fields], Iterator[int]]) -> None:
        """As `amend`, in slices of the steps; each yields how many entries it was about."""
        before = self.request.amend
        if before is None:
            self.request.amend = amend
        else:
            self.request.amend = lambda fields: chain(before(fields), amend(fields))


class Guard:
    """The handler of one row, behind the authorizer: `rule` decides what becomes of a request."""

    def __init__(self, row: Api, authorizer: Authorizer, rule: Callable[[Guarded], None]) -> None:
        self._row: Final = row
        self._authorizer: Final = authorizer
        self._rule: Final = rule

    def __call__(self, context: HandlerContext, request: Request) -> None:
        """Handles a request."""
        exchange = request.exchange
        caller = self._authorizer.caller(exchange.principal, exchange.client_host)
        self._rule(Guarded(context, request, self._row, caller))


class _Nowhere(Exchange):
    """An exchange for an answer that is only inspected."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(
            memoryview(b""),
            connection_id=exchange.connection_id,
            client_host=exchange.client_host,
            client_port=exchange.client_port,
            listener_name=exchange.listener_name,
            local_host=exchange.local_host,
            local_port=exchange.local_port,
            principal=exchange.principal,
            received_ms=exchange.received_ms,
        )

    def send(self, buffers: list[Buffer]) -> None:
        """Sends nothing."""


def _note(told: Fields, fields: Fields) -> Iterator[int]:
    told.update(fields)
    yield 1


def _run(_request: Request, function: Callable[[], None]) -> None:
    function()
