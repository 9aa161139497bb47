"""The settings of a group: its own if they are set, else the broker's."""

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
        """The time after which a silent member is removed."""
        return self.number("session.timeout.ms")

    @property
    def heartbeat_interval_ms(self) -> int:
        """The interval of the members' heartbeats."""
        return self.number("heartbeat.interval.ms")

    @property
    def assignment_interval_ms(self) -> int:
        """The shortest time between two assignments of the group."""
        return self.number("assignment.interval.ms")

    def number(self, name: str) -> int:
        """A number, named without the kind, whose default is a setting of the broker."""
        own = self._own_value(f"{self._kind}.{name}")
        if own is None:
            value: int = self._config[f"group.{self._kind}.{name}"]
            return value
        least, most = (self._config[bound] for bound in bounds_of(f"{self._kind}.{name}"))
        bounded: int = max(least, min(most, own))
        return bounded

    def value(self, name: str) -> Any:
        """The value of a setting that only groups have, named without the kind: the group's own, or
        the default."""
        own = self._own_value(f"{self._kind}.{name}")
        return GROUP_SETTINGS[f"{self._kind}.{name}"].default if own is None else own

    def _own_value(self, name: str) -> Any:
        """The group's own value, which was checked when it was set. A value of another version that
        this one cannot read counts as not set."""
        text = self._own.get(name)
        try:
            return None if text is None else GROUP_SETTINGS[name].parse(text)
        except ConfigError:
            return None
