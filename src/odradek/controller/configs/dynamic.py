"""Carries broker settings that were changed at run time from the metadata to `BrokerConfig`."""

import logging
from typing import Final

from odradek.config import BrokerConfig
from odradek.metadata.image import ConfigResource, MetadataDelta, MetadataImage
from odradek.model import ConfigResourceType

_LOG: Final = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """A listener of the metadata store, for the broker `broker_id`."""

    def __init__(self, config: BrokerConfig, broker_id: int) -> None:
        self._config: Final = config
        self._own: Final = ConfigResource(ConfigResourceType.BROKER, str(broker_id))
        self._all: Final = ConfigResource(ConfigResourceType.BROKER, "")
        self._told: list[str] = []

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Takes over the settings when they have changed, and when the broker registers.

        They were checked before they were stored; settings of another version that this one refuses
        are ignored with a line in the log, so the broker starts.
        """
        if delta.brokers_changed or {self._own, self._all} & delta.configs_changed:
            self._take(delta.image)
        return ()

    def _take(self, image: MetadataImage) -> None:
        cluster, own = image.config(self._all), image.config(self._own)
        problems = [str(each) for each in self._config.update_dynamic(cluster=cluster, broker=own)]
        for problem in problems if problems != self._told else ():
            _LOG.error("a setting changed at run time is not used: %s", problem)
        self._told = problems
