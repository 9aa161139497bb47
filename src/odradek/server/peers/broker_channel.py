"""Asking other brokers: one connection to each, opened when something is to be asked."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from odradek.background import do_each, run_each
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration

OnAnswered = Callable[[Any], None]
"""Hears a decoded message, or a BrokerError with NETWORK_EXCEPTION when there is no answer."""


class BrokerChannel(Protocol):
    """A way to one broker. After `close` nothing is answered any more."""

    def ask(self, api: ClientApi, values: Mapping[str, object], on_done: OnAnswered, /) -> None:
        """Sends a request of plain values; answered once, never before this has returned."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class _Way:
    """The channel to one registration of a broker, with the callers that wait for responses."""

    def __init__(self, epoch: int, channel: BrokerChannel) -> None:
        self.epoch = epoch
        self._channel = channel
        self._waiting: dict[int, OnAnswered] = {}
        self._asked = 0

    def ask(self, api: ClientApi, values: Mapping[str, object], on_done: OnAnswered) -> None:
        number = self._asked = self._asked + 1
        self._waiting[number] = on_done

        def on_answered(outcome: Any) -> None:
            if self._waiting.pop(number, None) is not None:
                on_done(outcome)

        self._channel.ask(api, values, on_answered)

    def close(self) -> None:
        """Closes the channel; every caller is answered."""
        self._channel.close()
        waiting, self._waiting = list(self._waiting.values()), {}
        do_each(waiting, lambda on_done: on_done(BrokerError(ErrorCode.NETWORK_EXCEPTION)))


class BrokerChannels:
    """The channels to all other brokers; a broker that registers again gets a new one.

    Every call is answered exactly once.
    """

    def __init__(
        self, metadata: MetadataCache, open_channel: Callable[[BrokerRegistration], BrokerChannel]
    ) -> None:
        self._metadata: Final = metadata
        self._open_channel: Final = open_channel
        self._ways: dict[int, _Way] = {}
        self._is_closed = False

    def ask(
        self, broker_id: int, api: ClientApi, values: Mapping[str, object], on_done: OnAnswered
    ) -> None:
        """Asks a broker; the answer for an unregistered broker is an error at once."""
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None or self._is_closed:
            on_done(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE))
            return
        way = self._ways.get(broker_id)
        if way is not None and way.epoch == broker.epoch:
            way.ask(api, values, on_done)
            return
        self._ways[broker_id] = fresh = _Way(broker.epoch, self._open_channel(broker))
        ask = partial(fresh.ask, api, values, on_done)
        run_each([ask] if way is None else [way.close, ask])

    def drop_gone(self) -> None:
        """Closes the channels to brokers that are gone or have registered again: these will not
        answer."""
        brokers = self._metadata.image.brokers
        gone: list[_Way] = []
        for broker_id, way in list(self._ways.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != way.epoch:
                gone.append(self._ways.pop(broker_id))
        do_each(gone, lambda way: way.close())

    def close(self) -> None:
        """Closes all channels, and opens no more."""
        self._is_closed = True
        ways, self._ways = list(self._ways.values()), {}
        do_each(ways, lambda way: way.close())
