"""Carries broker settings that were changed at run time from the metadata to `BrokerConfig`."""

import logging
from typing import Final

from odradek.config import BrokerConfig, ConfigError
from odradek.metadata.image import ConfigResource, MetadataDelta, MetadataImage, ResourceType

_LOG: Final = logging.getLogger(__name__)


class DynamicBrokerConfig:
    """A listener of the metadata store, for the broker `broker_id`."""

    def __init__(self, config: BrokerConfig, broker_id: int) -> None:
        self._config: Final = config
        self._own: Final = ConfigResource(ResourceType.BROKER, str(broker_id))
        self._all: Final = ConfigResource(ResourceType.BROKER, "")

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Takes the settings over when they changed, and when the broker comes to life.

        They were checked before they were stored; values that another version stored and
        this one refuses are left out with a line in the log, so that the broker starts.
        """
        if delta.brokers_changed or {self._own, self._all} & delta.configs_changed:
            self._take(delta.image)
        return ()

    def _take(self, image: MetadataImage) -> None:
        cluster, own = image.config(self._all), image.config(self._own)
        try:
            self._config.update_dynamic(cluster=cluster, broker=own)
        except ConfigError as error:
            _LOG.error("settings changed at run time are not used: %s", error)
