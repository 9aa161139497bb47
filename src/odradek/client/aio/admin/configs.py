"""Settings of topics, brokers and groups: describe, change, list resources with settings."""

from collections.abc import Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES
from odradek.client.core.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
)
from odradek.client.core.cluster import Message
from odradek.client.errors import KafkaError, raise_for
from odradek.errors import ErrorCode
from odradek.model import ConfigResourceType

_FINAL = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
Configs = dict[str, ConfigEntry]


class ConfigCalls(AdminBase):
    """Calls about settings."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, Configs | KafkaError]:
        """The settings of resources by name. A broker is asked for its own."""

        async def ask(
            node_id: int | None, theirs: list[ConfigResource]
        ) -> dict[ConfigResource, Configs | KafkaError]:
            values = {
                "resources": [_resource(each) for each in theirs],
                "include_synonyms": include_synonyms,
                "include_documentation": include_documentation,
            }
            answer = await self._cluster.call(node_id, DESCRIBE_CONFIGS, values)
            return {
                resource: outcome(
                    result.error_code,
                    {entry.name: _entry(entry) for entry in result.configs},
                    result.error_message,
                )
                for resource, result in _by_resource(theirs, answer.results)
            }

        return await self._retrying_each(resources, _by_node, ask, final=_FINAL)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Changes single settings; those that are not named stay as they are."""
        wanted = {resource: list(each) for resource, each in changes.items()}

        async def ask(
            node_id: int | None, theirs: list[ConfigResource]
        ) -> dict[ConfigResource, KafkaError | None]:
            values = {
                "resources": [_changes(each, wanted[each]) for each in theirs],
                "validate_only": validate_only,
            }
            target = await self._controller() if node_id is None else node_id
            answer = await self._cluster.call(target, INCREMENTAL_ALTER_CONFIGS, values)
            return {
                resource: outcome(result.error_code, None, result.error_message)
                for resource, result in _by_resource(theirs, answer.responses)
            }

        return await self._retrying_each(wanted, _by_node, ask, final=_FINAL)

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = ()
    ) -> list[ConfigResource]:
        """The resources that have settings, of these types or of all.

        Raises:
            KafkaError: nobody answers, or the broker is older than 4.1.
        """

        async def attempt() -> list[ConfigResource]:
            values = {"resource_types": [int(each) for each in types]}
            answer = await self._cluster.call(None, LIST_CONFIG_RESOURCES, values)
            raise_for(int(answer.error_code))
            return [
                ConfigResource(
                    ConfigResourceType(getattr(each, "resource_type", 16)), each.resource_name
                )
                for each in answer.config_resources
            ]

        return await self._cluster.retrying(attempt)


async def _by_node(
    resources: list[ConfigResource],
) -> tuple[dict[int | None, list[ConfigResource]], dict[ConfigResource, KafkaError]]:
    """Groups resources by the broker to ask: a named broker for its own settings, any for the
    rest."""
    found: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        is_number = resource.name.isascii() and resource.name.isdigit()
        found.setdefault(int(resource.name) if own and is_number else None, []).append(resource)
    return found, {}


def _by_resource(
    asked: Iterable[ConfigResource], results: Iterable[Message]
) -> list[tuple[ConfigResource, Message]]:
    """The results by resource, without resources that were not requested."""
    known = {(int(each.type), each.name): each for each in asked}
    return [
        (known[key], result)
        for result in results
        if (key := (int(result.resource_type), result.resource_name)) in known
    ]


def _resource(resource: ConfigResource) -> dict[str, object]:
    return {
        "resource_type": int(resource.type),
        "resource_name": resource.name,
        "configuration_keys": None,
    }


def _changes(resource: ConfigResource, changes: list[ConfigChange]) -> dict[str, object]:
    return {
        "resource_type": int(resource.type),
        "resource_name": resource.name,
        "configs": [
            {"name": each.name, "config_operation": int(each.operation), "value": each.value}
            for each in changes
        ],
    }


def _entry(entry: Message) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        entry.config_source,
        getattr(entry, "config_type", 0),
        entry.read_only,
        entry.is_sensitive,
        tuple(ConfigSynonym(each.name, each.value, each.source) for each in entry.synonyms),
        getattr(entry, "documentation", None),
    )
