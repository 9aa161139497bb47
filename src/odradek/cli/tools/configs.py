"""`odradek configs`: describe and change settings, as `kafka-configs.sh` does.

Of topics, brokers, groups and client metrics; users, clients and addresses come with security.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Final

from odradek.cli.tools.connection import (
    add_connection,
    add_format,
    client_config,
    print_json,
    refuse_together,
    run_async,
)
from odradek.cli.tools.java_names import java_text
from odradek.client import Admin
from odradek.client.core.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from odradek.client.errors import KafkaError
from odradek.config.properties import parse_properties
from odradek.errors import BrokerError

_TYPES: Final = {
    "topics": ResourceType.TOPIC,
    "brokers": ResourceType.BROKER,
    "broker-loggers": ResourceType.BROKER_LOGGER,
    "groups": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
# Where a value that was set for a resource itself comes from.
_OWN: Final = {
    ResourceType.TOPIC: 1,
    ResourceType.BROKER: 2,
    ResourceType.BROKER_LOGGER: 6,
    ResourceType.CLIENT_METRICS: 7,
    ResourceType.GROUP: 8,
}
_OWN_DEFAULT_BROKER: Final = 3
_BRACKETED: Final = re.compile(r",(?![^\[\]]*\])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--describe", action="store_true")
    action.add_argument("--alter", action="store_true")
    parser.add_argument("--all", action="store_true", help="values that are defaults as well")
    parser.add_argument("--entity-type", choices=sorted(_TYPES))
    parser.add_argument("--entity-name", metavar="NAME")
    parser.add_argument("--entity-default", action="store_true")
    for kind in _TYPES:
        parser.add_argument(f"--{_flag(kind)}", metavar="NAME")
    parser.add_argument("--broker-defaults", action="store_true")
    parser.add_argument("--add-config", metavar="K=V,K=[V,V]")
    parser.add_argument("--add-config-file", metavar="FILE")
    parser.add_argument("--delete-config", metavar="K,K")
    parser.add_argument("--force", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Does what is asked."""
    kind, name = _entity(arguments)
    if arguments.alter and not (
        arguments.add_config or arguments.add_config_file or arguments.delete_config
    ):
        arguments.parser.error(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified "
            "with --alter"
        )
    if arguments.alter and (name is None or not (name or kind is ResourceType.BROKER)):
        arguments.parser.error(f"An entity name must be specified with --alter of {_plural(kind)}")
    is_broker = kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
    if is_broker and name and not name.lstrip("-").isdecimal():
        arguments.parser.error(
            f"The entity name for {_plural(kind)} must be a valid integer broker id, but it is: "
            f"{name}"
        )
    if arguments.describe:
        refuse_together(arguments, "describe", ("add-config", "add-config-file", "delete-config"))
    else:
        refuse_together(arguments, "alter", ("all",))

    def say(error: Exception) -> None:
        text = java_text(error) if isinstance(error, BrokerError) else str(error)
        print(f"Error while executing config command: {text}", file=sys.stderr)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            if arguments.alter:
                assert name is not None, "checked above"
                return await _alter(admin, ConfigResource(kind, name), arguments)
            return await _describe(admin, kind, name, arguments)

    return run_async(work, say)


def _entity(arguments: argparse.Namespace) -> tuple[ResourceType, str | None]:
    named: list[tuple[ResourceType, str | None]] = [
        (resource_type, name)
        for kind, resource_type in _TYPES.items()
        if (name := getattr(arguments, _flag(kind).replace("-", "_"))) is not None
    ]
    if arguments.broker_defaults:
        named.append((ResourceType.BROKER, ""))
    if arguments.entity_type is not None:
        name = "" if arguments.entity_default else arguments.entity_name
        named.append((_TYPES[arguments.entity_type], name))
    if not named:
        arguments.parser.error("At least one entity type must be specified")
    if len(named) > 1:
        arguments.parser.error("Only one entity can be named: one of a type, or all of a type")
    return named[0]


def _flag(kind: str) -> str:
    """The short way to name an entity: `--topic orders`."""
    return kind if kind == "client-metrics" else kind[:-1]


def _plural(kind: ResourceType) -> str:
    return next(word for word, each in _TYPES.items() if each is kind)


def _noun(resource: ConfigResource) -> str:
    nouns = {kind: word[:-1] for word, kind in _TYPES.items()}
    nouns[ResourceType.CLIENT_METRICS] = "client-metric"
    return nouns[resource.type]


# --- describe -----------------------------------------------------------------------------------


async def _describe(
    admin: Admin, kind: ResourceType, name: str | None, arguments: argparse.Namespace
) -> int:
    resources = [ConfigResource(kind, name)] if name is not None else await _all(admin, kind)
    shown = []
    for resource in resources:
        if name and not await _exists(admin, resource):
            print(f"The {_noun(resource)} '{name}' doesn't exist and doesn't have dynamic config.")
            continue
        found = (await admin.describe_configs([resource], include_synonyms=True))[resource]
        if isinstance(found, KafkaError):
            raise found
        entries = _shown(resource, found, show_all=arguments.all)
        if arguments.output == "json":
            shown.append(_as_json(resource, entries))
        else:
            _print(resource, entries, show_all=arguments.all)
    if arguments.output == "json":
        print_json(shown)
    return 0


async def _all(admin: Admin, kind: ResourceType) -> list[ConfigResource]:
    if kind is ResourceType.TOPIC:
        return [ConfigResource(kind, name) for name in sorted(await admin.list_topics())]
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        nodes = (await admin.describe_cluster()).nodes
        found = [ConfigResource(kind, str(node.id)) for node in nodes]
        return found + ([ConfigResource(kind, "")] if kind is ResourceType.BROKER else [])
    names = {each.name for each in await admin.list_config_resources([kind])}
    if kind is ResourceType.GROUP:
        names |= {each.group_id for each in await admin.list_groups()}
    return [ConfigResource(kind, name) for name in sorted(names)]


async def _exists(admin: Admin, resource: ConfigResource) -> bool:
    return resource in await _all(admin, resource.type)


def _shown(
    resource: ConfigResource, entries: Mapping[str, ConfigEntry], *, show_all: bool
) -> list[ConfigEntry]:
    ordered = sorted(entries.values(), key=lambda each: each.name)
    if show_all:
        return ordered
    is_default_broker = resource.type is ResourceType.BROKER and not resource.name
    own = _OWN_DEFAULT_BROKER if is_default_broker else _OWN[resource.type]
    return [each for each in ordered if each.source == own]


def _print(resource: ConfigResource, entries: list[ConfigEntry], *, show_all: bool) -> None:
    what = "All" if show_all else "Dynamic"
    if resource.name or resource.type is not ResourceType.BROKER:
        print(f"{what} configs for {_noun(resource)} {resource.name} are:")
    else:
        print("Default configs for brokers in the cluster are:")
    for each in entries:
        synonyms = ", ".join(
            f"{_SOURCES.get(s.source, 'UNKNOWN')}:{s.name}={_value(s.value)}" for s in each.synonyms
        )
        sensitive = "true" if each.is_sensitive else "false"
        print(f"  {each.name}={_value(each.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _as_json(resource: ConfigResource, entries: list[ConfigEntry]) -> dict[str, object]:
    return {
        "type": _noun(resource),
        "name": resource.name,
        "configs": {
            each.name: {
                "value": each.value,
                "source": _SOURCES.get(each.source, "UNKNOWN"),
                "is_sensitive": each.is_sensitive,
            }
            for each in entries
        },
    }


# --- alter --------------------------------------------------------------------------------------


async def _alter(admin: Admin, resource: ConfigResource, arguments: argparse.Namespace) -> int:
    changes = [ConfigChange(name, value) for name, value in _additions(arguments).items()]
    changes += [
        ConfigChange(name.strip(), None, ConfigOperation.DELETE)
        for name in (arguments.delete_config or "").split(",")
        if name.strip()
    ]
    error = (await admin.alter_configs({resource: changes}))[resource]
    if error is not None:
        raise error
    noun = _noun(resource)
    if resource.name:
        print(f"Completed updating config for {noun} {resource.name}.")
    else:
        print(f"Completed updating default config for {noun}s in the cluster.")
    return 0


def _additions(arguments: argparse.Namespace) -> dict[str, str]:
    added: dict[str, str] = {}
    if arguments.add_config_file:
        with open(arguments.add_config_file, encoding="utf-8") as file:
            added |= parse_properties(file.read())
    for part in _BRACKETED.split(arguments.add_config or ""):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                "Invalid entity config: all configs to be added must be in the format "
                '"key=val" or "key=[val1,val2]" to group values which contain commas.'
            )
        value = value.strip()
        added[name.strip()] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return added
