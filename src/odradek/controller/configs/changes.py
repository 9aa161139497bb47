"""Decides what AlterConfigs and IncrementalAlterConfigs change, and whether they may.

Both result in the new settings of a resource. AlterConfigs names all of them (others go back to
their defaults), the incremental form names steps. The whole request is checked before anything is
stored. Pure: nothing is stored here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    LogConfig,
    Setting,
    SettingType,
)
from odradek.config.client_metrics import IllegalSubscription, check_client_metrics
from odradek.config.group import check_group_settings
from odradek.controller.configs.entries import check_broker
from odradek.controller.results import AlterOperation, ConfigAlteration
from odradek.controller.topics.names import check_topic_name
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.model import ConfigResourceType

MAX_VALUE_BYTES: Final = 32_767
"""The longest text of a field: a longer value could be stored, and never be shown."""

_TABLES: Mapping[ConfigResourceType, Mapping[str, Setting]] = {
    ConfigResourceType.TOPIC: TOPIC_SETTINGS,
    ConfigResourceType.BROKER: BROKER_SETTINGS,
    ConfigResourceType.GROUP: GROUP_SETTINGS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}


@dataclass(frozen=True, slots=True)
class ConfigPlanner:
    """Plans changes of settings, seen from broker `broker_id`."""

    config: BrokerConfig
    broker_id: int

    def plan_replacement(
        self,
        image: MetadataImage,
        resource: ConfigResource,
        settings: Sequence[tuple[str, str | None]],
    ) -> dict[str, str | None]:
        """The change after which the resource has exactly these settings.

        Raises:
            BrokerError: the resource or a setting is not acceptable.
        """
        _check_once([name for name, _ in settings])
        wanted: dict[str, str] = {}
        for name, value in settings:
            if value is None:
                raise _null_value(name)
            wanted[name] = value
        self._check_resource(image, resource)
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
        check_steps(steps)
        self._check_resource(image, resource)
        before = image.config(resource)
        change = {step.name: _outcome(resource, before, step) for step in steps}
        known = {name: value for name, value in before.items() if name in _TABLES[resource.type]}
        merged = {**known, **change}
        after = {name: value for name, value in merged.items() if value is not None}
        self._check_settings(resource, after)
        return change

    def _check_resource(self, image: MetadataImage, resource: ConfigResource) -> None:
        if resource.type not in _TABLES:
            message = f"Unsupported resource type: {resource.type.name}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if resource.type is ConfigResourceType.BROKER:
            if resource.name:
                check_broker(resource, self.broker_id)
        elif not resource.name:
            message = f"A {resource.type.name} needs a name: there are no settings for all of them"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        elif resource.type is ConfigResourceType.TOPIC and image.topic(resource.name) is None:
            check_topic_name(resource.name)
            message = f"The topic '{resource.name}' does not exist."
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)

    def _check_settings(self, resource: ConfigResource, settings: Mapping[str, str]) -> None:
        """Checks the new settings. A broker checks its own settings itself, and answers
        INVALID_REQUEST as Kafka's."""
        try:
            if resource.type is ConfigResourceType.TOPIC:
                LogConfig.from_settings(settings, self.config.topic_defaults())
            elif resource.type is ConfigResourceType.BROKER:
                self.config.check_dynamic(settings, per_broker=bool(resource.name))
            elif resource.type is ConfigResourceType.GROUP:
                check_group_settings(settings, self.config.get)
            else:
                check_client_metrics(settings)
        except ConfigError as error:
            of_request = resource.type is ConfigResourceType.BROKER or isinstance(
                error, IllegalSubscription
            )
            code = ErrorCode.INVALID_REQUEST if of_request else ErrorCode.INVALID_CONFIG
            raise BrokerError(code, str(error)) from error


def check_steps(steps: Sequence[ConfigAlteration]) -> None:
    """Refuses malformed steps, for any resource.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    _check_once([step.name for step in steps])
    for step in steps:
        if step.operation not in list(AlterOperation):
            message = f"Unknown operation type {step.operation}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if step.value is None and step.operation != AlterOperation.DELETE:
            raise _null_value(step.name)


def _check_once(names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _outcome(
    resource: ConfigResource, before: Mapping[str, str], step: ConfigAlteration
) -> str | None:
    """The setting's text after the step; None when it goes back to its default."""
    if step.operation == AlterOperation.DELETE:
        return None
    assert step.value is not None, f"{step.name} is to become null"
    if step.operation == AlterOperation.SET:
        return step.value
    row = _TABLES[resource.type].get(step.name)
    # Kafka allows lists of client metrics only to be set as a whole.
    is_whole = resource.type is ConfigResourceType.CLIENT_METRICS
    if row is None or row.type is not SettingType.LIST or is_whole:
        operation = AlterOperation(step.operation).name
        message = f"Can't {operation} to key {step.name} because its type is not LIST."
        raise BrokerError(ErrorCode.INVALID_CONFIG, message)
    edited = _edited_list(before.get(row.name), row, step.operation, step.value)
    if len(edited.encode()) > MAX_VALUE_BYTES:
        message = f"The value of {step.name} would have more than {MAX_VALUE_BYTES} bytes."
        raise BrokerError(ErrorCode.INVALID_CONFIG, message)
    return edited


def _edited_list(current: str | None, row: Setting, operation: int, value: str) -> str:
    """Edits a list. If the resource does not set it, the step applies to the default. An empty
    element counts, as in Kafka, and is refused like any illegal one."""
    text = row.render(row.default) if current is None else current
    elements = [each for each in (text or "").split(",") if each]
    named = value.rstrip(",").split(",")
    if operation == AlterOperation.APPEND:
        return ",".join(elements + [each for each in named if each not in elements])
    return ",".join(each for each in elements if each not in named)


def _null_value(name: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for {name}")
