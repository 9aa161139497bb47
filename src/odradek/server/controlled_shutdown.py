"""Leaving a cluster in order: the controller has others lead before a broker stops.

A controller over the wire may be gone or replaced, so the broker asks again, as often as
`controlled.shutdown.max.retries` says. A broker that could not hand everything over stops all the
same: its session ends, and that has others lead.

Then it stays for a moment and answers clients that it leads nothing any more. A client with that
answer looks for the new leader at once; a client whose connection breaks backs off first, for a
second or more.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from odradek.config import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlledBroker, ControlPlane
from odradek.metadata.store import OnDone
from odradek.model import TopicPartition
from odradek.server.awaiting import outcome_within, pause
from odradek.timer import Timer

logger = logging.getLogger(__name__)

FAREWELL_MS: Final = 500


class ControlledShutdown:
    """Asks the current controller, which may be this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        timer: Timer,
        plane: ControlPlane,
        controlled: ControlledBroker,
    ) -> None:
        self._config: Final = config
        self._metadata: Final = metadata
        self._timer: Final = timer
        self._plane: Final = plane
        self._controlled: Final = controlled

    async def run(self, broker_epoch: int) -> None:
        """Returns when others lead and clients have heard of it, or when it has been tried often
        enough."""
        leads = self._leads_something()
        retries: int = self._config["controlled.shutdown.max.retries"]
        backoff_ms: int = self._config["controlled.shutdown.retry.backoff.ms"]
        # Without ZooKeeper the controller cannot answer, however often it is asked.
        timeout_ms: int = self._config["controller.socket.timeout.ms"]
        for attempt in range(1 + retries):
            if attempt:
                await pause(self._timer, backoff_ms)
            began_ms = self._timer.now_ms
            try:
                remaining = await outcome_within(
                    self._timer, timeout_ms, partial(self._ask, broker_epoch)
                )
            except BrokerError as error:
                logger.warning("The controller cannot be asked for a shutdown: %s", error)
                timeout_ms -= self._timer.now_ms - began_ms
                if timeout_ms <= 0:
                    break
                continue
            if not remaining:
                logger.info("Others lead what this broker has led")
                if leads:
                    await pause(self._timer, FAREWELL_MS)
                return
            logger.warning("This broker still leads %d partitions", len(remaining))
            if self._metadata.image.brokers.keys() <= {self._config.broker_id}:
                break  # no replica can take over, and another try will not change that
        logger.warning("Stopping before every leadership was handed over")

    def _leads_something(self) -> bool:
        broker_id = self._config.broker_id
        topics = self._metadata.image.topics.values()
        return any(each.leader == broker_id for topic in topics for each in topic.partitions)

    def _ask(self, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]) -> None:
        image = self._metadata.image
        broker_id = self._config.broker_id
        if image.controller_id == broker_id:
            self._controlled.on_controlled_shutdown(broker_id, broker_epoch, on_done)
            return
        controller = image.brokers.get(image.controller_id)
        if controller is None:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER, "there is no controller"))
        else:
            self._plane.controlled_shutdown(controller, broker_id, broker_epoch, on_done)
