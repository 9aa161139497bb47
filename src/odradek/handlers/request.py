"""A request on its way through a handler: its header and body, and the ways to answer it.

A handler answers exactly once, at once or from a callback: by `respond` with buffers that a
hot codec made (header included), by `answer` with plain values for every other API, or by
`no_op` or `close`. Callbacks go through `guard`, so that an unexpected exception in them is
logged and answered like one in the handler itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from odradek.handlers.long_requests import (
    LongWork,
    Outcome,
    entries_of,
    make_slice,
    then_amended,
)
from odradek.protocol import messages
from odradek.protocol.exchange import Exchange
from odradek.protocol.header import RequestHeader, encode_response_header, response_header_version
from odradek.protocol.primitives import Buffer

if TYPE_CHECKING:
    from odradek.handlers.api import Api

NOT_ASKED: int = -1
LONG_ANSWER_ENTRIES: int = 1000


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestObserver:
    """Is called two or three times for every request, for counters and timings. This one does
    nothing.

    A request without a response (acks=0) is completed too, and so is one whose connection the
    broker closed.
    """

    def received(self, request: "Request") -> None:
        """The header has been read and the API is served."""

    def left(self, request: "Request") -> None:
        """Its handler is done, and it waits for something before it can be answered."""

    def completed(self, request: "Request") -> None:
        """The answer has been handed to the network."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestQuotas:
    """Returns how long a client is throttled for its use. This one never throttles."""

    def throttle_time_ms(self, request: "Request", api: "Api") -> int:  # noqa: ARG002
        """Charges a request, once, when its answer is made, against the quota of `api.cost`.

        `request.size_bytes` is its size, `request.used` the count of its handler (bytes fetched,
        partitions created). A positive time is sent to the client, at once, and its connection is
        then muted for as long (KIP-219).
        """
        return 0

    def busy_ns(self) -> int:
        """The present time, for measuring handlers."""
        return 0

    def took(self, request: "Request", api: "Api", time_ns: int) -> None:
        """Charges a request for its handler's time, when the handler has ended, so the client is
        throttled for it with its next response."""

    def most_to_fetch(self, request: "Request") -> int | None:  # noqa: ARG002
        """The bytes that a client may fetch in one go, if they are bounded."""
        return None

    def may_mutate(self, request: "Request", count: int, is_strict: bool) -> bool:  # noqa: ARG002
        """Charges a client for partitions that are made or removed; False when a strict request is
        refused."""
        return True


class Request:
    """One request with its header read.

    Invariant: `exchange` is answered at most once; after `abandon`, late answers are dropped. The
        frame is released when the handler returns, unless it called `keep_frame`: a callback may
        only use what was decoded before.
    """

    def __init__(
        self,
        exchange: Exchange,
        header: RequestHeader,
        api: "Api",
        observer: RequestObserver | None,
        quotas: RequestQuotas | None,
        run_guarded: "Callable[[Request, Callable[[], None]], None]",
        long_work: LongWork | None = None,
    ) -> None:
        """With `long_work` a long answer is encoded by it."""
        self.exchange = exchange
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.body_position = header.body_position
        self.answered = False
        self.keeps_frame = False
        # State that a handler keeps between request and response, for its `fail`.
        self.handled_by: object = None
        # Called with the answer, however it is made.
        self.on_answered: Callable[[], object] | None = None
        # Amends the fields of an answer before they are written, in steps.
        self.amend: Callable[[dict[str, object]], Iterator[int]] | None = None
        self.used = 0
        self.size_bytes = 0
        # An observer's notes: when its handler began, and when it left the request waiting, if it
        # did.
        self.began_ms = 0
        self.left_ms: int | None = None
        # The name that it is counted under as well, and how often each error is in its
        # answer.
        self.variant = ""
        self.errors: dict[int, int] | None = None
        self._api = api
        self._body: Any = None
        self._quotas = quotas
        self._throttle_time_ms = 0 if quotas is None else NOT_ASKED
        self._observer = observer
        self._run_guarded = run_guarded
        self._long_work = long_work
        self._decoded: Outcome | None = None
        self._abandoned = False

    def body(self) -> Any:
        """The body as one of kio's messages; the hot APIs use their own codecs instead.

        Raises:
            ProtocolError: it is malformed.
        """
        if self._body is None:
            self._body = self.decode() if self._decoded is None else self._decoded.take()
        return self._body

    def decode(self) -> Any:
        """Decodes the body, on any thread; raises as `body` does."""
        return messages.decode_request(
            self.api_key, self.api_version, self.exchange.frame, self.body_position
        )

    def set_decoded(self, decoded: Outcome) -> None:
        """Lets `body` return, or raise, the outcome of a thread's decoding."""
        self._decoded = decoded

    def narrow(self, body: Any) -> None:
        """Replaces the body by a part of it, for the handler."""
        self._body = body

    def keep_frame(self) -> None:
        """Says that the frame is needed until the answer, after the handler has returned.

        No further frame of the connection is handled meanwhile, and its buffer stays occupied.
        """
        self.keeps_frame = True

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time of the response; asked for when it is encoded, counted once."""
        if self._throttle_time_ms == NOT_ASKED:
            assert self._quotas is not None, "without quotas there is nothing to ask"
            self._throttle_time_ms = self._quotas.throttle_time_ms(self, self._api)
        return self._throttle_time_ms

    @property
    def throttled_ms(self) -> int:
        """The throttle time of its response; 0 before `throttle_time_ms` was called."""
        return max(self._throttle_time_ms, 0)

    def note_error(self, code: int) -> None:
        """Counts an error of the answer, of the whole or of a part."""
        if self.errors is None:
            self.errors = {}
        self.errors[code] = self.errors.get(code, 0) + 1

    @property
    def is_charged(self) -> bool:
        """Whether quotas need the value of `used`."""
        return self._quotas is not None

    def most_to_fetch(self) -> int | None:
        """The bytes that the client may fetch in one go, if quotas bound them."""
        return None if self._quotas is None else self._quotas.most_to_fetch(self)

    def may_mutate(self, count: int, is_strict: bool) -> bool:
        """Whether the client may make or remove so many partitions, which are charged then."""
        return self._quotas is None or self._quotas.may_mutate(self, count, is_strict)

    def respond(self, buffers: list[Buffer]) -> None:
        """Answers with an encoded response, header included."""
        if self._begin_answer():
            self.exchange.send(buffers)
            self._complete()

    def answer(self, **fields: object) -> None:
        """Answers with a response made of plain values; see `message_writer`. Entries of
        generators, given instead of lists, are created in slices: before this returns if they are
        few."""
        self.answer_version(self.api_version, **fields)

    def answer_version(self, version: int, **fields: object) -> None:
        """Answers in another version than was asked for (ApiVersions falls back to 0)."""
        if _has_generators(fields):
            self._answer_after(entries_of(fields), version, fields)
        elif self.amend is not None:
            self._answer_after(iter(()), version, fields)
        else:
            self._answer_made(version, fields, is_long=False)

    def answer_when_made(self, steps: Iterator[int], **fields: object) -> None:
        """Answers with plain values whose lists `steps` fill, as `in_slices` takes them."""
        self._answer_after(steps, self.api_version, fields)

    def _answer_after(self, steps: Iterator[int], version: int, fields: dict[str, object]) -> None:
        amended = steps if self.amend is None else then_amended(steps, self.amend, fields)
        self.in_slices(amended, partial(self._answer_made, version, fields))

    def in_slices(
        self, steps: Iterator[int], then: Callable[[bool], None], is_long: bool = False
    ) -> None:
        """Takes all steps, each of which yields its number of entries, and then calls `then` with
        whether they took several slices, between which the loop turns.
        """
        while make_slice(steps):
            if self._long_work is not None:
                self.defer(partial(self.in_slices, steps, then, is_long=True))
                return
        then(is_long)

    def defer(self, action: Callable[[], None]) -> None:
        """Runs the action at the loop's next turn; if it raises, the request fails."""
        if self._long_work is None:
            action()
        else:
            self._long_work.defer(self.guard(partial(self._take_time, action)))

    def _take_time(self, go_on: Callable[[], None]) -> None:
        """Runs it, and charges its time like the handler's."""
        quotas = self._quotas
        began_ns = 0 if quotas is None else quotas.busy_ns()
        go_on()
        if quotas is not None:
            quotas.took(self, self._api, quotas.busy_ns() - began_ns)

    def _answer_made(self, version: int, fields: dict[str, object], is_long: bool) -> None:
        if self.throttle_time_ms and messages.has_throttle_time(self.api_key):
            fields["throttle_time_ms"] = self.throttle_time_ms
        long_work = self._long_work
        if long_work is not None and is_long:
            encode = partial(self._note_and_encode, version, fields)
            long_work.submit(encode, self.guard(self._respond_encoded))
        elif _note_errors(self, fields) < LONG_ANSWER_ENTRIES or long_work is None:
            self.respond([self._encode(version, fields)])
        else:
            encode = partial(self._encode, version, fields)
            long_work.submit(encode, self.guard(self._respond_encoded))

    def _note_and_encode(self, version: int, fields: dict[str, object]) -> bytes:
        _note_errors(self, fields)
        return self._encode(version, fields)

    def _respond_encoded(self, encoded: Outcome) -> None:
        if self._quotas is not None:
            self._quotas.took(self, self._api, encoded.time_ns)
        self.respond([encoded.take()])

    def _encode(self, version: int, fields: dict[str, object]) -> bytes:
        body = messages.encode_response(self.api_key, version, fields)
        header_version = response_header_version(self.api_key, version, self._api.flexible_from)
        return encode_response_header(self.correlation_id, header_version) + body

    def no_op(self) -> None:
        """Ends the request without an answer (a produce with acks=0)."""
        if self._begin_answer():
            self.exchange.no_op()
            self._complete()

    def close(self) -> None:
        """Ends the request by dropping the connection."""
        if self._begin_answer():
            self.exchange.close()
            self._complete()

    def guard(self, function: Callable[..., None]) -> Callable[..., None]:
        """`function` as a callback whose unexpected exceptions become this request's answer."""

        def guarded(*arguments: Any) -> None:
            self._run_guarded(self, lambda: function(*arguments))

        return guarded

    def abandon(self) -> bool:
        """Drops responses after the one that the dispatcher sends for a failed handler; returns
        whether it has failed before."""
        before = self._abandoned
        self._abandoned = True
        return before

    def _begin_answer(self) -> bool:
        if self._abandoned and self.answered:
            return False
        assert not self.answered, f"request {self.correlation_id} is answered a second time"
        self.answered = True
        self.handled_by = None  # it refers to the request: breaks the reference cycle
        on_answered, self.on_answered = self.on_answered, None
        if on_answered is not None:
            on_answered()
        if self._quotas is not None:
            self.exchange.throttle(self.throttle_time_ms)
        return True

    def _complete(self) -> None:
        if self._observer is not None:
            self._observer.completed(self)


def _has_generators(fields: dict[str, object]) -> bool:
    """Whether a field has entries that are still to be made."""
    for value in fields.values():  # noqa: SIM110 - asked for every answer, and `any` takes longer
        if isinstance(value, GeneratorType):
            return True
    return False


def _note_errors(request: Request, fields: object) -> int:
    """Notes the errors in plain values, however deep they lie; returns how many dictionaries and
    lists there are."""
    entries = 1
    if isinstance(fields, dict):
        for name, value in fields.items():
            if name == "error_code":
                if value:
                    request.note_error(int(value))
            elif isinstance(value, list | tuple | dict):
                entries += _note_errors(request, value)
    elif isinstance(fields, list | tuple):
        for each in fields:
            if isinstance(each, dict | list | tuple):
                entries += _note_errors(request, each)
    return entries
