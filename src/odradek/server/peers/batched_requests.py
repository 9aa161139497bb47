"""`BatchedRequests`: one API of other brokers, asked for many things at once.

A broker answers the requests of one connection in their order, each when all that it asks for is
done. So what is slow would hold up everything behind it: a few requests are under way to a broker,
on a connection each, and of one key there is one under way. What comes meanwhile goes together
with the next; but of one asker only one question about a key, since an answer does not tell two of
them apart: a producer that was fenced would take the answer of the one that took its place.
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

UNDER_WAY: Final = 4
"""How many requests wait for one broker at most."""

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q")

Codes = Mapping[tuple[str | int, TopicPartition], ErrorCode]
"""What was answered, by whom and for what it was asked; empty when no answer came."""
OnCodes = Callable[[K, Codes], None]


class _Broker(Generic[K, Q]):
    """The requests under way to a broker, and those that wait."""

    def __init__(self, asker: Callable[[Q], Hashable]) -> None:
        self.idle = list(range(UNDER_WAY))
        self.under_way: set[K] = set()
        self.waiting: dict[K, list[tuple[Q, OnCodes[K]]]] = {}
        self._asker = asker

    def take(self) -> dict[K, list[tuple[Q, OnCodes[K]]]]:
        """Takes the requests to send now; none when there is no connection for them."""
        if not self.idle:
            return {}
        taken = {key: self._take(key) for key in self.waiting if key not in self.under_way}
        self.waiting = {key: rest for key, rest in self.waiting.items() if rest}
        self.under_way.update(taken)
        return taken

    def _take(self, key: K) -> list[tuple[Q, OnCodes[K]]]:
        """Takes what waits for a key, up to the second question of an asker."""
        waiting = self.waiting[key]
        askers: set[Hashable] = set()
        for question, _ in waiting:
            asker = self._asker(question)
            if asker in askers:
                break
            askers.add(asker)
        self.waiting[key] = waiting[len(askers) :]
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
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        self._api: Final = api
        self._encode: Final = encode
        self._decode: Final = decode
        self._asker: Final = asker
        self._channels: Final = [BrokerChannels(metadata, open_channel) for _ in range(UNDER_WAY)]
        self._brokers: Final[dict[int, _Broker[K, Q]]] = {}

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
        for channels in self._channels:
            channels.close()

    def _send(self, broker_id: int, broker: _Broker[K, Q]) -> None:
        taken = broker.take()
        if not taken:
            return
        number = broker.idle.pop()

        def on_answered(outcome: Any) -> None:
            broker.idle.append(number)
            broker.under_way.difference_update(taken)
            codes: Codes = {}
            try:
                if not isinstance(outcome, BrokerError):
                    codes = self._decode(outcome)
            finally:
                tell = [
                    partial(told, key, codes) for key, each in taken.items() for _, told in each
                ]
                run_each([*tell, partial(self._send, broker_id, broker)])

        values = self._encode([question for asked in taken.values() for question, _ in asked])
        self._channels[number].ask(broker_id, self._api, values, on_answered)
