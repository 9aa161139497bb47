"""The settings of a group: its own where it has some, else the broker's."""

from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigError
from odradek.config.group import GROUP_SETTINGS, bounds_of
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.model import ConfigResourceType


class GroupSettings:
    """Reads the settings of one group of a kind ("consumer", "share"), within the broker's
    bounds."""

    def __init__(
        self, kind: str, group_id: str, config: BrokerConfig, image: MetadataImage
    ) -> None:
        self._kind = kind
        self._config = config
        self._own = image.config(ConfigResource(ConfigResourceType.GROUP, group_id))

    @property
    def session_timeout_ms(self) -> int:
        """After how long a silent member is out."""
        return self.number("session.timeout.ms")

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often members shall send heartbeats."""
        return self.number("heartbeat.interval.ms")

    @property
    def assignment_interval_ms(self) -> int:
        """How long the group rests between two assignments."""
        return self.number("assignment.interval.ms")

    def number(self, name: str) -> int:
        """A number, named without the kind, that a setting of the broker stands for."""
        own = self._own_value(f"{self._kind}.{name}")
        if own is None:
            value: int = self._config[f"group.{self._kind}.{name}"]
            return value
        least, most = (self._config[bound] for bound in bounds_of(f"{self._kind}.{name}"))
        bounded: int = max(least, min(most, own))
        return bounded

    def value(self, name: str) -> Any:
        """The value of a setting that a group alone decides, named without the kind: its own, or
        the default."""
        own = self._own_value(f"{self._kind}.{name}")
        return GROUP_SETTINGS[f"{self._kind}.{name}"].default if own is None else own

    def _own_value(self, name: str) -> Any:
        """It was checked when it was set; a value of another version that this one cannot read
        counts as not set."""
        text = self._own.get(name)
        try:
            return None if text is None else GROUP_SETTINGS[name].parse(text)
        except ConfigError:
            return None
