"""Settings of topics, brokers and groups: describe, change, list who has any."""

from collections.abc import Iterable, Mapping

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.aio.cluster import Message
from odradek.client.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES
from odradek.client.core.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
    ResourceType,
)
from odradek.client.errors import KafkaError, raise_for
from odradek.errors import ErrorCode

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

        async def attempt(
            pending: list[ConfigResource],
        ) -> dict[ConfigResource, Configs | KafkaError]:
            found: dict[ConfigResource, Configs | KafkaError] = {}
            for node_id, resources in _by_node(pending).items():
                values = {
                    "resources": [_resource(each) for each in resources],
                    "include_synonyms": include_synonyms,
                    "include_documentation": include_documentation,
                }
                answer = await self._cluster.call(node_id, DESCRIBE_CONFIGS, values)
                for result in answer.results:
                    resource = ConfigResource(
                        ResourceType(result.resource_type), result.resource_name
                    )
                    entries = {entry.name: _entry(entry) for entry in result.configs}
                    found[resource] = outcome(result.error_code, entries, result.error_message)
            return found

        return await self._retrying(resources, attempt, final=_FINAL)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Changes single settings; those that are not named stay as they are."""
        wanted = {resource: list(each) for resource, each in changes.items()}

        async def attempt(
            pending: list[ConfigResource],
        ) -> dict[ConfigResource, KafkaError | None]:
            found: dict[ConfigResource, KafkaError | None] = {}
            for node_id, resources in _by_node(pending).items():
                values = {
                    "resources": [_changes(each, wanted[each]) for each in resources],
                    "validate_only": validate_only,
                }
                target = await self._controller() if node_id is None else node_id
                answer = await self._cluster.call(target, INCREMENTAL_ALTER_CONFIGS, values)
                for result in answer.responses:
                    resource = ConfigResource(
                        ResourceType(result.resource_type), result.resource_name
                    )
                    found[resource] = outcome(result.error_code, None, result.error_message)
            return found

        return await self._retrying(wanted, attempt, final=_FINAL)

    async def list_config_resources(
        self, types: Iterable[ResourceType] = ()
    ) -> list[ConfigResource]:
        """The resources that have settings of their own, of these types or of all.

        Raises:
            KafkaError: nobody answers, or the broker is older than 4.1.
        """

        async def attempt() -> list[ConfigResource]:
            values = {"resource_types": [int(each) for each in types]}
            answer = await self._cluster.call(None, LIST_CONFIG_RESOURCES, values)
            raise_for(int(answer.error_code))
            return [
                ConfigResource(ResourceType(getattr(each, "resource_type", 16)), each.resource_name)
                for each in answer.config_resources
            ]

        return await self._cluster.retrying(attempt)


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Who is asked: a broker for what only it knows, anybody for the rest."""
    found: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        is_number = resource.name.isascii() and resource.name.isdigit()
        found.setdefault(int(resource.name) if own and is_number else None, []).append(resource)
    return found


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
