"""`odradek configs`: describe and change settings, as `kafka-configs.sh` does.

For topics, brokers, groups and client metrics; `entities` has users, clients and addresses.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import Final

from odradek.cli.tools.connection import (
    NoAddress,
    NoFile,
    add_actions,
    add_connection,
    add_format,
    check_whom_to_ask,
    client_config,
    is_given,
    print_json,
    read_properties,
    run_async,
    the_action,
)
from odradek.cli.tools.entities.commands import alter_entity, describe_entity
from odradek.cli.tools.entities.keys import ENTITIES
from odradek.cli.tools.option_words import TakesFirst
from odradek.cli.tools.replicas.reassignment_plan import joined, repeated
from odradek.cli.tools.wording.java_names import java_text
from odradek.client import Admin
from odradek.client.core.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
)
from odradek.client.errors import KafkaError
from odradek.errors import BrokerError
from odradek.model import ConfigResourceType

_TYPES: Final = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "broker-loggers": ConfigResourceType.BROKER_LOGGER,
    "groups": ConfigResourceType.GROUP,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
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
_ACTIONS: Final = ("describe", "alter")
# The types of resources with settings in Kafka, in the order of its tool.
_ENTITIES: Final = (
    *("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups"),
    "broker-loggers",
)
# The sources of values that were set for a resource itself.
_OWN: Final = {
    ConfigResourceType.TOPIC: 1,
    ConfigResourceType.BROKER: 2,
    ConfigResourceType.BROKER_LOGGER: 6,
    ConfigResourceType.CLIENT_METRICS: 7,
    ConfigResourceType.GROUP: 8,
}
_OWN_DEFAULT_BROKER: Final = 3
_BRACKETED: Final = re.compile(r",(?![^\[\]]*\])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser, controller_flags=("--bootstrap-controller",))
    add_format(parser)
    add_actions(parser, dict.fromkeys(_ACTIONS))
    parser.add_argument("--all", action="store_true", help="values that are defaults as well")
    parser.add_argument("--entity-type", action="append", default=[], metavar="TYPE")
    # A user and a client may have one each.
    parser.add_argument("--entity-name", action=_Named, metavar="NAME")
    parser.add_argument("--entity-default", action=_Default, nargs=0, default=False)
    for kind in _TYPES:
        parser.add_argument(f"--{_flag(kind)}", metavar="NAME")
    parser.add_argument("--broker-defaults", action="store_true")
    for kind in ENTITIES:
        parser.add_argument(f"--{_flag(kind)}", help=argparse.SUPPRESS)
        parser.add_argument(
            f"--{_flag(kind)}-defaults", action="store_true", help=argparse.SUPPRESS
        )
    parser.add_argument("--add-config", metavar="K=V,K=[V,V]")
    parser.add_argument("--add-config-file", metavar="FILE")
    parser.add_argument("--delete-config", metavar="K,K")


class _Named(TakesFirst):
    """Takes a name; users and clients may have one each, in the order of their types."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """The flag was given."""
        super().__call__(parser, namespace, values, option_string)
        _note_name(namespace, values)


class _Default(argparse.Action):
    """Takes the default entity, for all without settings of their own."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        _option_string: str | None = None,
    ) -> None:
        """The flag was given."""
        setattr(namespace, self.dest, True)
        _note_name(namespace, "")


def _note_name(namespace: argparse.Namespace, name: object) -> None:
    namespace.entity_names = [*getattr(namespace, "entity_names", ()), name]


def run(arguments: argparse.Namespace) -> int:
    """Runs the action."""
    action = the_action(arguments, _ACTIONS)
    check_whom_to_ask(
        arguments,
        both="Only one of --bootstrap-server or --bootstrap-controller can be specified",
        neither="Either --bootstrap-server or --bootstrap-controller must be specified.",
    )
    types, names = _types_and_names(arguments)
    if set(types) <= ENTITIES.keys():
        given = [*names, *([None] * len(types))]
        entity = [(ENTITIES[kind], name) for kind, name in zip(types, given, strict=False)]
        return _run_entity(action, entity, arguments)
    kind, name = _TYPES[types[0]], names[0] if names else None
    _check(action, kind, name, arguments)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            if action == "alter":
                assert name is not None, "checked above"
                return await _alter(admin, ConfigResource(kind, name), arguments)
            return await _describe(admin, kind, name, arguments)

    return run_async(work, _say)


def _run_entity(
    action: str, entity: list[tuple[str, str | None]], arguments: argparse.Namespace
) -> int:
    if action == "alter":
        _check_changes(arguments)
        if any(name is None for _, name in entity):
            arguments.parser.error("An entity name must be specified with --alter of quotas")

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            if action == "describe":
                return await describe_entity(admin, entity, arguments.output)
            return await alter_entity(admin, entity, _additions(arguments), _deletions(arguments))

    return run_async(work, _say)


def _say(error: Exception) -> None:
    doing = "Error while executing config command: "
    if isinstance(error, ValueError) and not isinstance(error, NoFile | NoAddress):
        print(error, file=sys.stderr)
    elif isinstance(error, BrokerError):
        print(f"{doing}{java_text(error)}", file=sys.stderr)
    else:
        print(f"{doing}{error}", file=sys.stderr)


def _types_and_names(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Reads the entities from the flags, an empty name for the default; ends with wrong usage where
    Kafka's tool does, in its words."""
    wrong = arguments.parser.error
    named: list[tuple[str, str | None]] = [
        (kind, name)
        for kind in _ENTITIES
        if (name := getattr(arguments, _flag(kind).replace("-", "_"))) is not None
    ]
    with_defaults = ("brokers", *ENTITIES)
    named += [
        (kind, "") for kind in with_defaults if is_given(arguments, f"{_flag(kind)}-defaults")
    ]
    types = [kind for kind, _ in named] + arguments.entity_type
    if twice := repeated(types):
        wrong(f"Duplicate entity type(s) specified: {joined(twice)}")
    has_name = arguments.entity_name is not None
    if named and (arguments.entity_type or has_name or arguments.entity_default):
        wrong(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )
    if not types:
        wrong("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        wrong("Only 'users' and 'clients' entity types may be specified together")
    for kind in types:
        if kind not in _ENTITIES:
            wrong(
                f"Invalid entity type {kind}, the entity type must be one of "
                f"{', '.join(_ENTITIES)} with a --bootstrap-server or --bootstrap-controller "
                "argument"
            )
    names = [name for _, name in named if name is not None]
    if named:
        return types, names
    if len(types) == 1 and arguments.entity_default:
        return types, [""]
    return types, getattr(arguments, "entity_names", [])


def _check(
    action: str, kind: ConfigResourceType, name: str | None, arguments: argparse.Namespace
) -> None:
    """Ends with wrong usage where Kafka's tool does, in its words."""
    wrong = arguments.parser.error
    is_broker = kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    if action == "describe":
        for option in ("add-config", "delete-config"):
            if is_given(arguments, option):
                wrong(f'Option "[describe]" can\'t be used with option "[{option}]"')
        if arguments.entity_default and kind is not ConfigResourceType.BROKER:
            wrong(f"--entity-default must not be specified with --describe of {_plural(kind)}")
    if is_broker and name and not name.lstrip("-").isdecimal():
        wrong(
            f"The entity name for {_plural(kind)} must be a valid integer broker id, but it is: "
            f"{name}"
        )
    if action == "describe" and kind is ConfigResourceType.BROKER_LOGGER and not name:
        wrong(f"An entity name must be specified with --describe of {_plural(kind)}")
    if action == "alter":
        if name is None or not (name or kind is ConfigResourceType.BROKER):
            wrong(f"An entity name must be specified with --alter of {_plural(kind)}")
        _check_changes(arguments)


def _check_changes(arguments: argparse.Namespace) -> None:
    """Ends with wrong usage unless the flags change something, in Kafka's words."""
    wrong = arguments.parser.error
    if arguments.add_config and arguments.add_config_file:
        wrong("Only one of --add-config or --add-config-file must be specified")
    if not (arguments.add_config or arguments.add_config_file or arguments.delete_config):
        wrong(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )


def _flag(kind: str) -> str:
    """Adds the short flag for an entity: `--topic orders`."""
    return kind if kind == "client-metrics" else kind[:-1]


def _plural(kind: ConfigResourceType) -> str:
    return next(word for word, each in _TYPES.items() if each is kind)


def _noun(resource: ConfigResource) -> str:
    nouns = {kind: word[:-1] for word, kind in _TYPES.items()}
    nouns[ConfigResourceType.CLIENT_METRICS] = "client-metric"
    return nouns[resource.type]


# --- describe -----------------------------------------------------------------------------------


async def _describe(
    admin: Admin, kind: ConfigResourceType, name: str | None, arguments: argparse.Namespace
) -> int:
    resources = [ConfigResource(kind, name)] if name is not None else await _all(admin, kind)
    shown = []
    for resource in resources:
        is_named = bool(name) or (name is not None and kind is ConfigResourceType.BROKER)
        if is_named and not arguments.all and not await _exists(admin, resource):
            print(f"The {_noun(resource)} '{name}' doesn't exist and doesn't have dynamic config.")
            continue
        if arguments.output == "text":
            _print_headline(resource, show_all=arguments.all)
        found = (await admin.describe_configs([resource], include_synonyms=True))[resource]
        if isinstance(found, KafkaError):
            raise found
        entries = _shown(resource, found, show_all=arguments.all)
        if arguments.output == "json":
            shown.append(_as_json(resource, entries))
        else:
            _print(entries)
    if arguments.output == "json":
        print_json(shown)
    return 0


async def _all(admin: Admin, kind: ConfigResourceType) -> list[ConfigResource]:
    if kind is ConfigResourceType.TOPIC:
        return [ConfigResource(kind, name) for name in sorted(await admin.list_topics())]
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        nodes = (await admin.describe_cluster()).nodes
        found = [ConfigResource(kind, str(node.id)) for node in nodes]
        return found + ([ConfigResource(kind, "")] if kind is ConfigResourceType.BROKER else [])
    names = {each.name for each in await admin.list_config_resources([kind])}
    if kind is ConfigResourceType.GROUP:
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
    is_default_broker = resource.type is ConfigResourceType.BROKER and not resource.name
    own = _OWN_DEFAULT_BROKER if is_default_broker else _OWN[resource.type]
    return [each for each in ordered if each.source == own]


def _print_headline(resource: ConfigResource, *, show_all: bool) -> None:
    what = "All" if show_all else "Dynamic"
    if resource.name or resource.type is not ConfigResourceType.BROKER:
        print(f"{what} configs for {_noun(resource)} {resource.name} are:")
    else:
        print("Default configs for brokers in the cluster are:")


def _print(entries: list[ConfigEntry]) -> None:
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
    changes += [ConfigChange(name, None, ConfigOperation.DELETE) for name in _deletions(arguments)]
    if resource.type is ConfigResourceType.BROKER_LOGGER:
        await _check_loggers(admin, resource, [change.name for change in changes])
    error = (await admin.alter_configs({resource: changes}))[resource]
    if error is not None:
        raise error
    noun = _noun(resource)
    if resource.name:
        print(f"Completed updating config for {noun} {resource.name}.")
    else:
        print(f"Completed updating default config for {noun}s in the cluster.")
    return 0


async def _check_loggers(admin: Admin, resource: ConfigResource, names: list[str]) -> None:
    """Refuses loggers that the broker, which is asked first, does not have."""
    found = (await admin.describe_configs([resource]))[resource]
    if isinstance(found, KafkaError):
        raise found
    if unknown := [name for name in names if name not in found]:
        raise ValueError(f"Invalid broker logger(s): {joined(unknown)}")


def _deletions(arguments: argparse.Namespace) -> list[str]:
    names = (name.strip() for name in (arguments.delete_config or "").split(","))
    return [name for name in names if name]


def _additions(arguments: argparse.Namespace) -> dict[str, str]:
    added: dict[str, str] = {}
    if arguments.add_config_file:
        added |= read_properties(arguments.add_config_file)
    for part in _BRACKETED.split(arguments.add_config or ""):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                "requirement failed: Invalid entity config: all configs to be added must be in the "
                'format "key=val" or  "key=[val1,val2]" to group values which contain commas.'
            )
        value = value.strip()
        added[name.strip()] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return added
