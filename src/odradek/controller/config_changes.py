"""Decides what AlterConfigs and IncrementalAlterConfigs change, and whether they may.

Both come down to one thing: the settings that a resource shall have afterwards. AlterConfigs
names all of them (what it leaves out goes back to its default), the incremental form names
steps. The whole is checked before anything is stored. Pure: nothing is stored here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from odradek.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    LogConfig,
    Setting,
    SettingType,
)
from odradek.controller.config_entries import check_broker
from odradek.controller.results import AlterOperation, ConfigAlteration
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType

_TABLES: Mapping[ResourceType, Mapping[str, Setting]] = {
    ResourceType.TOPIC: TOPIC_SETTINGS,
    ResourceType.BROKER: BROKER_SETTINGS,
    ResourceType.GROUP: GROUP_SETTINGS,
}


@dataclass(frozen=True, slots=True)
class ConfigPlanner:
    """Plans changes of settings, seen from broker `broker_id`."""

    config: BrokerConfig
    broker_id: int

    def plan_replacement(
        self, image: MetadataImage, resource: ConfigResource, settings: Mapping[str, str | None]
    ) -> dict[str, str | None]:
        """The change after which the resource has exactly these settings.

        Raises:
            BrokerError: the resource or a setting is not acceptable.
        """
        self._check_resource(image, resource)
        wanted: dict[str, str] = {}
        for name, value in settings.items():
            if value is None:
                raise _null_value(name)
            wanted[name] = value
        self._check_settings(resource, wanted)
        dropped = {name: None for name in image.config(resource) if name not in wanted}
        return {**wanted, **dropped}

    def plan_alterations(
        self, image: MetadataImage, resource: ConfigResource, steps: Sequence[ConfigAlteration]
    ) -> dict[str, str | None]:
        """The change that the steps amount to.

        Raises:
            BrokerError: the resource, a step or a setting is not acceptable.
        """
        self._check_resource(image, resource)
        if len({step.name for step in steps}) != len(steps):
            message = "Error due to duplicate config keys"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        before = image.config(resource)
        change = {step.name: self._outcome(resource, before, step) for step in steps}
        merged = {**before, **change}
        after = {name: value for name, value in merged.items() if value is not None}
        self._check_settings(resource, after)
        return change

    def _check_resource(self, image: MetadataImage, resource: ConfigResource) -> None:
        if resource.type not in _TABLES:
            message = f"Unsupported resource type: {resource.type.name}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if resource.type is ResourceType.TOPIC and image.topic(resource.name) is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if resource.type is ResourceType.BROKER and resource.name:
            check_broker(resource, self.broker_id)

    def _check_settings(self, resource: ConfigResource, settings: Mapping[str, str]) -> None:
        try:
            if resource.type is ResourceType.TOPIC:
                LogConfig.from_settings(settings, self.config)
            elif resource.type is ResourceType.BROKER:
                self.config.check_dynamic(settings, per_broker=bool(resource.name))
            else:
                for name, value in settings.items():
                    _row(resource, name).parse(value)
        except ConfigError as error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _outcome(
        self, resource: ConfigResource, before: Mapping[str, str], step: ConfigAlteration
    ) -> str | None:
        """The setting's text after the step; None when it goes back to its default."""
        row = _row(resource, step.name)
        if step.operation == AlterOperation.DELETE:
            return None
        if step.operation not in list(AlterOperation):
            message = f"Unknown operation type {step.operation}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if step.value is None:
            raise _null_value(step.name)
        if step.operation == AlterOperation.SET:
            return step.value
        return self._edited_list(resource, before, row, step.operation, step.value)

    def _edited_list(
        self,
        resource: ConfigResource,
        before: Mapping[str, str],
        row: Setting,
        operation: int,
        value: str,
    ) -> str:
        if row.type is not SettingType.LIST:
            message = (
                f"Can't {AlterOperation(operation).name} to key {row.name} because its type "
                "is not LIST."
            )
            raise BrokerError(ErrorCode.INVALID_CONFIG, message)
        current = before.get(row.name)
        elements = _split(self._default(resource, row) if current is None else current)
        named = _split(value)
        if operation == AlterOperation.APPEND:
            return ",".join(elements + [each for each in named if each not in elements])
        return ",".join(each for each in elements if each not in named)

    def _default(self, resource: ConfigResource, row: Setting) -> str:
        """What a list that the resource does not set itself begins from."""
        if resource.type is ResourceType.TOPIC:
            return row.render(self.config.topic_defaults()[row.name]) or ""
        if resource.type is ResourceType.BROKER:
            return row.render(self.config[row.name]) or ""
        return row.render(row.default) or ""


def _row(resource: ConfigResource, name: str) -> Setting:
    row = _TABLES[resource.type].get(name)
    if row is None:
        kind = resource.type.name.lower()
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Unknown {kind} config name: {name}")
    return row


def _split(text: str) -> list[str]:
    return [part for part in (part.strip() for part in text.split(",")) if part]


def _null_value(name: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {name}")
