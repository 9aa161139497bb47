"""The settings of a consumer group: its own where it has some, else the broker's."""

from odradek.config.broker import BrokerConfig
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType


class ConsumerGroupSettings:
    """Reads the settings of one group; what a group sets keeps within the broker's bounds."""

    def __init__(self, group_id: str, config: BrokerConfig, image: MetadataImage) -> None:
        self._config = config
        self._own = image.config(ConfigResource(ResourceType.GROUP, group_id))

    @property
    def session_timeout_ms(self) -> int:
        """After how long a silent member is out."""
        return self._bounded("session.timeout.ms")

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often members shall send heartbeats."""
        return self._bounded("heartbeat.interval.ms")

    @property
    def assignment_interval_ms(self) -> int:
        """How long the group rests between two assignments."""
        return self._bounded("assignment.interval.ms")

    def _bounded(self, name: str) -> int:
        own = self._own.get(f"consumer.{name}")
        if own is None:
            value: int = self._config[f"group.consumer.{name}"]
            return value
        least: int = self._config[f"group.consumer.min.{name}"]
        most: int = self._config[f"group.consumer.max.{name}"]
        return max(least, min(most, int(own)))
