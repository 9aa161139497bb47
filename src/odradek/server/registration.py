"""`Registration`: the session of this broker, by which the others take it for a live one.

It begins at the start, and again whenever the store has lost it. A broker that was killed and comes
back at once waits for the time-out of its own earlier session. A broker with the same number at
another address is another broker, and stays registered.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from odradek.config import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.fail_stop import OnBroken, attempt
from odradek.metadata.image import BrokerRegistration
from odradek.metadata.store import MetadataStore
from odradek.model import EndPoint
from odradek.network import format_host_port
from odradek.server.awaiting import outcome, pause
from odradek.server.errors import StartError
from odradek.timer import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS: Final = 500
PATIENCE_MS: Final = 5_000  # beyond the time-out of a session: ZooKeeper looks only now and then


class Registration:
    """Registers one broker; `epoch` is that of its latest session, -1 before the first."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: MetadataCache,
        config: BrokerConfig,
        timer: Timer,
        *,
        endpoints: Callable[[], Sequence[EndPoint]],
        may_register: Callable[[], bool],
        resign: Callable[[], None],
        on_broken: OnBroken,
    ) -> None:
        """`resign` ends every leadership of the broker at once. `on_broken` ends the broker:
        without a registration it would go on serving clients, with old metadata."""
        self.epoch = -1
        self._store: Final = store
        self._metadata: Final = metadata
        self._config: Final = config
        self._timer: Final = timer
        self._endpoints: Final = endpoints
        self._may_register: Final = may_register
        self._resign: Final = resign
        self._on_broken: Final = on_broken
        self._retry: Final = TimerTask(RETRY_MS, self._register_again)
        store.on_session_lost(self._on_session_lost)

    async def begin(self) -> None:
        """Makes this broker a live one, and waits until leaders have been elected.

        Raises:
            StartError: another broker has its number.
        """
        patience_ms = self._config["zookeeper.session.timeout.ms"] + PATIENCE_MS
        while True:
            try:
                registration: BrokerRegistration = await outcome(self._register)
                break
            except BrokerError as error:
                if error.code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                    raise
                self._check_earlier_self(patience_ms)
            await pause(self._timer, RETRY_MS)
            patience_ms -= RETRY_MS
        self.epoch = registration.epoch
        await outcome(self._store.sync)

    def close(self) -> None:
        """Begins no other session."""
        self._retry.cancel()

    def _check_earlier_self(self, patience_ms: int) -> None:
        broker_id = self._config.broker_id
        other = self._metadata.image.brokers.get(broker_id)
        own = tuple(self._endpoints())
        if patience_ms <= 0 or (other is not None and other.endpoints != own):
            place = "" if other is None else f", at {_address(other)}"
            raise StartError(
                f"Broker {broker_id} is in this cluster already{place}; "
                "give this one another broker.id"
            )
        logger.info("waiting for the end of this broker's earlier session")

    def _register(self, on_done: Callable[[BrokerRegistration | BrokerError], None]) -> None:
        rack = self._config["broker.rack"]
        self._store.register_broker(self._config.broker_id, self._endpoints(), rack, on_done)

    def _on_session_lost(self) -> None:
        """Stops leading, since the others see this broker as dead, and registers again."""
        logger.warning("The session with the metadata store was lost; registering again.")
        self._resign()
        asyncio.get_running_loop().call_soon(self._register_again)

    def _register_again(self) -> None:
        if self._may_register():
            attempt(lambda: self._register(self._on_registered), self._on_broken)

    def _on_registered(self, registration: BrokerRegistration | BrokerError) -> None:
        if not isinstance(registration, BrokerError):
            self.epoch = registration.epoch
            logger.info("Registered again, under epoch %d", registration.epoch)
        elif self._may_register():
            logger.error("The broker cannot register again, and tries on: %s", registration)
            self._timer.add(self._retry)


def _address(broker: BrokerRegistration) -> str:
    endpoint = broker.endpoints[0]
    return format_host_port(endpoint.host, endpoint.port)
