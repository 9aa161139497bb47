"""`BatchedRequests`: one API of other brokers, asked for many things at once.

A broker answers the requests of one connection in their order, each when all that it asks for is
done. So what is slow would hold up everything behind it: several requests are under way to a
broker, on a connection each, and of one key there is one under way. What comes meanwhile goes
together with the next; but of one asker only one question about a key, since an answer does not
tell two of them apart: a producer that was fenced would take the answer of the one that took its
place.

Few requests of many keys cost least, but a slow key holds up those that are asked about together
with it. A request that has waited for long is slow, and so are its keys until an answer about them
is quick. Slow requests keep no others from being sent, however many they are; and while there are
slow keys, what waits is divided among many requests.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from odradek.background import run_each
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration
from odradek.model import TopicPartition
from odradek.server.peers.broker_channel import BrokerChannel, BrokerChannels
from odradek.timer import Timer, TimerTask

UNDER_WAY: Final = 4
"""How many requests that are not slow wait for one broker at most."""
DIVIDED: Final = 32
"""The same while there are slow keys."""
SLOW_AFTER_MS: Final = 500

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")

Codes = Mapping[tuple[str | int, TopicPartition], ErrorCode]
"""The codes of a response, by asker and key; empty if there was no response."""
OnCodes = Callable[[K, Codes], None]


class _Request(Generic[K, Q]):
    """A request in flight: its questions, and its connection."""

    def __init__(self, number: int, asked: dict[K, list[tuple[Q, OnCodes[K]]]]) -> None:
        self.number: Final = number
        self.asked: Final = asked
        self.is_slow = False


class _Broker(Generic[K, Q]):
    """The requests in flight to a broker, and the waiting questions."""

    def __init__(self, asker: Callable[[Q], Hashable]) -> None:
        self.waiting: dict[K, list[tuple[Q, OnCodes[K]]]] = {}
        self._asker: Final = asker
        self._connections = 0
        self._idle: Final[list[int]] = []
        self._quick = 0
        self._under_way: Final[set[K]] = set()
        self._slow: Final[set[K]] = set()

    def take(self) -> list[_Request[K, Q]]:
        """Takes the requests to send now."""
        ready = [key for key in self.waiting if key not in self._under_way]
        free = (DIVIDED if self._slow else UNDER_WAY) - self._quick
        parts = min(len(ready), free if self._slow else min(free, 1))
        return [self._begin(ready[first::parts]) for first in range(parts)]

    def on_slow(self, request: _Request[K, Q]) -> None:
        """Counts a request that has waited for long no more."""
        request.is_slow = True
        self._quick -= 1
        self._slow.update(request.asked)

    def on_answered(self, request: _Request[K, Q]) -> None:
        """Frees a request's connection and keys; those that were answered quickly are not slow."""
        self._idle.append(request.number)
        self._under_way.difference_update(request.asked)
        if not request.is_slow:
            self._quick -= 1
            self._slow.difference_update(request.asked)
        if not self._under_way and not self.waiting:
            self._slow.clear()  # nobody may ever ask about them again

    def _begin(self, keys: list[K]) -> _Request[K, Q]:
        request = _Request(self._connection(), {key: self._take(key) for key in keys})
        self._quick += 1
        self._under_way.update(keys)
        return request

    def _connection(self) -> int:
        if self._idle:
            return self._idle.pop()
        self._connections += 1
        return self._connections - 1

    def _take(self, key: K) -> list[tuple[Q, OnCodes[K]]]:
        """Takes what waits for a key, up to the second question of an asker."""
        waiting = self.waiting.pop(key)
        askers: set[Hashable] = set()
        for question, _ in waiting:
            asker = self._asker(question)
            if asker in askers:
                self.waiting[key] = waiting[len(askers) :]
                break
            askers.add(asker)
        return waiting[: len(askers)]


class BatchedRequests(Generic[K, Q]):
    """Asks other brokers; everything that is asked is answered once, whatever another asker, or
    `decode`, raises.

    `encode` puts questions into a request, `decode` takes the codes from its answer, in which those
    about one key are told apart by the `asker`.
    """

    def __init__(
        self,
        api: ClientApi,
        encode: Callable[[Sequence[Q]], Mapping[str, object]],
        decode: Callable[[Any], Codes],
        asker: Callable[[Q], Hashable],
        metadata: MetadataCache,
        timer: Timer,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._api: Final = api
        self._encode: Final = encode
        self._decode: Final = decode
        self._asker: Final = asker
        self._metadata: Final = metadata
        self._timer: Final = timer
        self._open_channel: Final = open_channel
        self._channels: Final[list[BrokerChannels]] = []
        self._brokers: Final[dict[int, _Broker[K, Q]]] = {}
        self._is_closed = False

    def ask(self, broker_id: int, questions: Mapping[K, Q], on_codes: OnCodes[K]) -> None:
        """Asks a broker; `on_codes` is called for each key, maybe before this returns."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = _Broker(self._asker)
        for key, question in questions.items():
            broker.waiting.setdefault(key, []).append((question, on_codes))
        self._send(broker_id, broker)

    def drop_gone(self) -> None:
        """Waits no more for brokers that are gone."""
        for channels in self._channels:
            channels.drop_gone()

    def close(self) -> None:
        """Lets go of all connections; nobody is left without an answer."""
        self._is_closed = True
        for channels in self._channels:
            channels.close()

    def _send(self, broker_id: int, broker: _Broker[K, Q]) -> None:
        run_each(partial(self._send_one, broker_id, broker, each) for each in broker.take())

    def _send_one(self, broker_id: int, broker: _Broker[K, Q], request: _Request[K, Q]) -> None:
        def on_slow() -> None:
            broker.on_slow(request)
            self._send(broker_id, broker)

        slow = TimerTask(SLOW_AFTER_MS, on_slow)

        def on_answered(outcome: Any) -> None:
            slow.cancel()
            broker.on_answered(request)
            self._answer(request, outcome, partial(self._send, broker_id, broker))

        self._timer.add(slow)
        asked = [question for each in request.asked.values() for question, _ in each]
        channels = self._connection(request.number)
        channels.ask(broker_id, self._api, self._encode(asked), on_answered)

    def _answer(self, request: _Request[K, Q], outcome: Any, go_on: Callable[[], None]) -> None:
        codes: Codes = {}
        try:
            if not isinstance(outcome, BrokerError):
                codes = self._decode(outcome)
        finally:
            tell = [
                partial(told, key, codes) for key, each in request.asked.items() for _, told in each
            ]
            run_each([*tell, go_on])

    def _connection(self, number: int) -> BrokerChannels:
        """Returns the connections of a number, one to each broker."""
        while number >= len(self._channels):
            made = BrokerChannels(self._metadata, self._open_channel)
            if self._is_closed:
                made.close()
            self._channels.append(made)
        return self._channels[number]
