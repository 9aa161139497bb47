"""Leaving a cluster in order: the controller has others lead before a broker stops.

A controller over the wire may be gone, or another by now, so it is asked again, as often as
`controlled.shutdown.max.retries` says. A broker that could not hand everything over stops all the
same: its session ends, and that has others lead.
"""

import logging
from collections.abc import Sequence
from typing import Final

from odradek.config import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import ControlledBroker, ControlPlane
from odradek.model import TopicPartition
from odradek.server.awaiting import outcome, pause
from odradek.timer import Timer

logger = logging.getLogger(__name__)


class ControlledShutdown:
    """Asks whoever is the controller; this broker itself, if that is the one."""

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
        """Returns when others lead, or when it has been tried often enough."""
        attempts: int = 1 + self._config["controlled.shutdown.max.retries"]
        for attempt in range(attempts):
            if attempt:
                await pause(self._timer, self._config["controlled.shutdown.retry.backoff.ms"])
            try:
                remaining = await self._ask(broker_epoch)
            except BrokerError as error:
                logger.warning("The controller cannot be asked for a shutdown: %s", error)
                continue
            if not remaining:
                logger.info("Others lead what this broker has led")
                return
            logger.warning("This broker still leads %d partitions", len(remaining))
        logger.warning("Stopping without having handed everything over")

    async def _ask(self, broker_epoch: int) -> Sequence[TopicPartition]:
        image = self._metadata.image
        broker_id = self._config.broker_id
        if image.controller_id == broker_id:
            return await outcome(
                lambda on_done: self._controlled.on_controlled_shutdown(
                    broker_id, broker_epoch, on_done
                )
            )
        controller = image.brokers.get(image.controller_id)
        if controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "there is no controller")
        return await outcome(
            lambda on_done: self._plane.controlled_shutdown(
                controller, broker_id, broker_epoch, on_done
            )
        )
