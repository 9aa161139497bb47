"""`BatchedRequests`: other brokers are asked for many things at once.

A broker answers the requests of one connection in their order, each when everything that it asks
for is done. A slow request would hold up all behind it, so several requests are under way to a
broker, each on its own connection, and at most one for a key. Questions that come meanwhile share
the next request if they have the same form and fit. A request has only one question of a name,
since an answer does not tell two of them apart: a fenced producer would take the answer of its
successor.

Few requests of many keys cost least, but a slow key holds up those that are asked about together
with it. A request that has waited for long is slow, and so are its keys until an answer about them
is quick. Slow requests, however many, do not delay others; and while there are slow keys, the
waiting questions are divided among many requests: those about slow keys, and separately those about
the others. Only questions about slow keys wait while very many requests are slow.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from odradek.background import do_each, run_each
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration
from odradek.server.peers.broker_channel import BrokerChannel, BrokerChannels
from odradek.timer import Timer, TimerTask

UNDER_WAY: Final = 4
"""How many requests that are not slow wait for one broker at most."""
DIVIDED: Final = 32
"""The same while there are slow keys."""
MOST_SLOW: Final = 128
"""With how many slow requests no other one about slow keys is sent: each has a connection."""
SLOW_AFTER_MS: Final = 500
TOGETHER_BYTES: Final = 1 << 18
"""How much goes into one request, unless a single question is larger."""

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")
A = TypeVar("A")
Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class RequestForm(Protocol[Q_contra, A_co]):
    """How questions go into a request, and their answers come out of the response. Questions of
    equal forms go together."""

    @property
    def api(self) -> ClientApi:
        """The API that is asked."""
        ...

    def name(self, question: Q_contra, /) -> Hashable:
        """Returns by what its answer is found; questions about different keys differ in it."""
        ...

    def encode(self, questions: Sequence[Q_contra], /) -> Mapping[str, object]:
        """Makes the request."""
        ...

    def decode(self, response: Any, /) -> Mapping[Hashable, A_co]:
        """Takes the answers out of the response, by name."""
        ...


class _Question(NamedTuple):
    """Something that is asked, and who waits for the answer."""

    form: RequestForm[Any, Any]
    content: Any
    size_bytes: int
    on_answer: Callable[[Any], None]

    @property
    def name(self) -> Hashable:
        return self.form.name(self.content)


class _Request(Generic[K]):
    """A request under way: what is asked, on which connection, and whether its keys were known to
    be slow."""

    def __init__(self, number: int, asked: dict[K, list[_Question]], are_slow: bool) -> None:
        self.number: Final = number
        self.are_slow: Final = are_slow
        self.keys: Final = asked.keys()
        self.questions: Final = [each for some in asked.values() for each in some]
        self.form: Final = self.questions[0].form
        self.is_slow = False
        self.is_answered = False

    def encode(self) -> Mapping[str, object]:
        """Makes what is sent."""
        return self.form.encode([each.content for each in self.questions])

    def answer(self, outcome: Any) -> None:
        """Answers every waiting caller, even if `decode` or another caller raises."""
        answers: Mapping[Hashable, Any] = {}
        missing = outcome if isinstance(outcome, BrokerError) else _LACKING
        try:
            if not isinstance(outcome, BrokerError):
                answers = self.form.decode(outcome)
        finally:
            do_each(self.questions, lambda each: each.on_answer(answers.get(each.name, missing)))


_LACKING: Final = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer lacks what was asked")


class _Broker(Generic[K]):
    """The requests under way to a broker, and what waits."""

    def __init__(self) -> None:
        self.waiting: dict[K, list[_Question]] = {}
        self.is_sending = False
        self._connections = 0
        self._idle: Final[list[int]] = []
        self._slow_requests = 0
        self._others = {False: 0, True: 0}
        """How many that are not slow are under way about keys that were known to be slow or not."""
        self._under_way: Final[set[K]] = set()
        self._slow: Final[set[K]] = set()

    def take(self) -> _Request[K] | None:
        """Takes the next request that may be sent now."""
        ready: dict[bool, list[K]] = {False: [], True: []}
        for key in self.waiting:
            if key not in self._under_way:
                ready[key in self._slow].append(key)
        for are_slow, keys in ready.items():
            if keys and self._free(are_slow) > 0:
                parts = DIVIDED if self._slow else 1
                return self._begin(keys, -(-len(keys) // parts), are_slow)
        return None

    def _free(self, are_slow: bool) -> int:
        """How many more requests may be under way."""
        if are_slow:
            return min(DIVIDED - self._others[True], MOST_SLOW - self._slow_requests)
        return (DIVIDED if self._slow else UNDER_WAY) - self._others[False]

    def on_slow(self, request: _Request[K]) -> None:
        """Stops counting a request that has waited for long."""
        request.is_slow = True
        self._others[request.are_slow] -= 1
        self._slow_requests += 1
        self._slow.update(request.keys)

    def on_answered(self, request: _Request[K]) -> None:
        """Frees a request's connection and keys; those that were answered quickly are not slow."""
        self._idle.append(request.number)
        self._under_way.difference_update(request.keys)
        if request.is_slow:
            self._slow_requests -= 1
        else:
            self._others[request.are_slow] -= 1
            self._slow.difference_update(request.keys)
        if not self._under_way and not self.waiting:
            self._slow.clear()  # nobody may ever ask about them again

    def _begin(self, ready: Sequence[K], most: int, are_slow: bool) -> _Request[K]:
        asked = self._together(ready, most)
        for key, questions in asked.items():
            rest = self.waiting.pop(key)[len(questions) :]
            if rest:
                self.waiting[key] = rest  # behind all others
        self._others[are_slow] += 1
        self._under_way.update(asked)
        return _Request(self._connection(), asked, are_slow)

    def _together(self, ready: Sequence[K], most: int) -> dict[K, list[_Question]]:
        """Finds what goes with the key that has waited longest."""
        form = self.waiting[ready[0]][0].form
        asked: dict[K, list[_Question]] = {}
        room = TOGETHER_BYTES
        for key in ready:
            questions = _answered_together(self.waiting[key], form)
            room -= sum(each.size_bytes for each in questions)
            if asked and (room < 0 or len(asked) == most):
                break
            if questions:
                asked[key] = questions
        return asked

    def _connection(self) -> int:
        if self._idle:
            return self._idle.pop()
        self._connections += 1
        return self._connections - 1


def _answered_together(
    waiting: Sequence[_Question], form: RequestForm[Any, Any]
) -> list[_Question]:
    """The first questions of a form, up to the second one of a name."""
    named: dict[Hashable, _Question] = {}
    for each in takewhile(lambda each: each.form == form, waiting):
        if named.setdefault(each.name, each) is not each:
            break
    return list(named.values())


class BatchedRequests(Generic[K]):
    """Asks other brokers. Every question is answered once, even if another caller or a form raises:
    with the answer, or with a BrokerError, which has UNKNOWN_SERVER_ERROR if the question cannot be
    encoded or the answer not be decoded.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        timer: Timer,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._metadata: Final = metadata
        self._timer: Final = timer
        self._open_channel: Final = open_channel
        self._channels: Final[list[BrokerChannels]] = []
        self._brokers: Final[dict[int, _Broker[K]]] = {}
        self._is_closed = False

    def ask(
        self,
        broker_id: int,
        form: RequestForm[Q, A],
        questions: Mapping[K, Q],
        on_answer: Callable[[K, A | BrokerError], None],
        size_bytes: int = 0,
    ) -> None:
        """Asks a broker questions, each about a key, of `size_bytes` where that counts; `on_answer`
        is called for each key, maybe before this returns."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = _Broker()
        for key, content in questions.items():
            question = _Question(form, content, size_bytes, partial(on_answer, key))
            broker.waiting.setdefault(key, []).append(question)
        self._send(broker_id, broker)

    def drop_gone(self) -> None:
        """Stops waiting for brokers that are gone."""
        do_each(tuple(self._channels), lambda each: each.drop_gone())

    def close(self) -> None:
        """Closes all connections; every caller is answered."""
        self._is_closed = True
        do_each(tuple(self._channels), lambda each: each.close())

    def _send(self, broker_id: int, broker: _Broker[K]) -> None:
        """Sends what may be sent. A request that is answered at once does not send the next one
        recursively."""
        if broker.is_sending:
            return
        broker.is_sending = True
        try:
            do_each(iter(broker.take, None), partial(self._send_one, broker_id, broker))
        finally:
            broker.is_sending = False

    def _send_one(self, broker_id: int, broker: _Broker[K], request: _Request[K]) -> None:
        def on_slow() -> None:
            broker.on_slow(request)
            self._send(broker_id, broker)

        slow = TimerTask(SLOW_AFTER_MS, on_slow)

        def on_answered(outcome: Any) -> None:
            if request.is_answered:
                return
            request.is_answered = True
            slow.cancel()
            # Questions that an answer causes come after those that wait.
            tell, end = partial(request.answer, outcome), partial(broker.on_answered, request)
            run_each([tell, end, partial(self._send, broker_id, broker)])

        self._timer.add(slow)
        try:
            channels = self._connection(request.number)
            channels.ask(broker_id, request.form.api, request.encode(), on_answered)
        except Exception as error:  # of any kind: nobody else answers those who ask
            on_answered(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cannot be asked: {error!r}"))
            raise

    def _connection(self, number: int) -> BrokerChannels:
        """Returns the connections of a number, one to each broker."""
        while number >= len(self._channels):
            made = BrokerChannels(self._metadata, self._open_channel)
            if self._is_closed:
                made.close()
            self._channels.append(made)
        return self._channels[number]
