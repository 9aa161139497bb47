"""`odradek topics`: list, describe, create, alter and delete topics, as `kafka-topics.sh` does.

Without an action it shows a table of the topics, which Kafka's tool does not have.
"""

import argparse
import base64
import sys
from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.cli.tools.connection import (
    NoAddress,
    NoFile,
    add_actions,
    add_connection,
    add_format,
    client_config,
    is_given,
    name_pattern,
    print_json,
    refuse_together,
    run_async,
    the_action,
)
from odradek.cli.tools.replicas.reassignment_plan import joined, repeated
from odradek.cli.tools.wording.java_names import in_java_order, java_sentence
from odradek.cli.tools.wording.java_values import java_int
from odradek.client import Admin
from odradek.client.core.admin_types import (
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
)
from odradek.client.core.metadata import PartitionMetadata, TopicMetadata
from odradek.client.errors import KafkaError, UnsupportedVersion
from odradek.errors import BrokerError, text_of
from odradek.model import NO_LEADER, TopicPartition
from odradek.protocol.uuids import uuid_text

_DEFAULT_CONFIG: Final = 5
_COLLISION_WARNING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)
_NO_DELETE_CONFIG: Final = (
    "delete-config option is no longer supported and deprecated since version 4.0. The config will "
    "be fully removed in future releases."
)
_NO_TOPIC: Final = UUID(int=0)
_ACTIONS: Final = ("list", "describe", "create", "alter", "delete")
_FILTERS: Final = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
# Actions that change nothing.
_LOOKING: Final = (*_FILTERS, "topics-with-overrides", "exclude-internal")
# Flags that an action does not allow.
_ELSEWHERE: Final = {
    "list": (
        "partitions",
        "replication-factor",
        "replica-assignment",
        "config",
        "if-exists",
        "if-not-exists",
        "topics-with-overrides",
        *_FILTERS,
    ),
    "describe": (
        "partitions",
        "replication-factor",
        "replica-assignment",
        "config",
        "if-not-exists",
    ),
    "create": ("if-exists", *_LOOKING),
    "alter": ("if-not-exists", "replication-factor", *_LOOKING),
    "delete": (
        "config",
        "if-not-exists",
        "partitions",
        "replication-factor",
        "replica-assignment",
        *_LOOKING,
    ),
}
Replicas = Mapping[TopicPartition, tuple[tuple[int, ...] | None, tuple[int, ...] | None]]


class _Refused(ValueError):
    """The tool refuses."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    parser.add_argument("-b", dest="bootstrap_server", help=argparse.SUPPRESS)
    add_format(parser)
    add_actions(parser, dict.fromkeys(_ACTIONS))
    parser.add_argument("--topic", metavar="NAME", help="a name, or a pattern where many may be")
    parser.add_argument("--topic-id", metavar="ID", help="describe the topic of this id")
    parser.add_argument("--partitions", type=java_int, metavar="N")
    parser.add_argument("--replication-factor", type=java_int, metavar="N")
    parser.add_argument("--replica-assignment", metavar="1:2,2:1,..")
    parser.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--delete-config", action="append", default=[], help=argparse.SUPPRESS)
    for flag in (
        "if-exists",
        "if-not-exists",
        "exclude-internal",
        "under-replicated-partitions",
        "unavailable-partitions",
        "under-min-isr-partitions",
        "at-min-isr-partitions",
        "topics-with-overrides",
    ):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument(
        "--partition-size-limit-per-response", type=java_int, help=argparse.SUPPRESS
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs the action."""
    if not (arguments.actions or arguments.is_script):
        from odradek.cli.everyday import topics

        return topics.run(arguments)
    action = the_action(arguments, _ACTIONS, last=" or ")
    _check(action, arguments)
    if arguments.delete_config:
        print(_NO_DELETE_CONFIG, file=sys.stderr)

    def say(error: Exception) -> None:
        if isinstance(error, NoAddress | NoFile):
            print(error, file=sys.stderr)
            return
        text = java_sentence(error) if isinstance(error, BrokerError) else text_of(error)
        print(f"Error while executing topic command : {text}")

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            actions = {
                "list": _list,
                "describe": _describe,
                "create": _create,
                "alter": _alter,
                "delete": _delete,
            }
            await actions[action](admin, arguments)
        return 0

    return run_async(work, say)


def _check(action: str, arguments: argparse.Namespace) -> None:
    """Ends with wrong usage where Kafka's tool does, in its words."""
    wrong = arguments.parser.error
    if arguments.bootstrap_server is None:
        wrong("--bootstrap-server must be specified")
    if action in ("create", "alter", "delete") and arguments.topic is None:
        wrong('Missing required argument "[topic]"')
    if action == "alter":
        if arguments.config:
            wrong(
                'Option combination "[[bootstrap-server], [config]]" can\'t be used with option '
                '"[alter]" (To alter topic configurations, the kafka-configs tool can be used.)'
            )
        if arguments.partitions is None:
            wrong('Missing required argument "[partitions]"')
    refuse_together(arguments, action, _ELSEWHERE[action])
    if action == "create" and arguments.replica_assignment is not None:
        for option in ("partitions", "replication-factor"):
            if is_given(arguments, option):
                refuse_together(arguments, option, ("replica-assignment",))
    if arguments.topics_with_overrides:
        refuse_together(arguments, "topics-with-overrides", _FILTERS)


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    names = _selected(await admin.list_topics(), arguments)
    if arguments.output == "json":
        print_json(names)
    else:
        print("\n".join(names))


def _selected(topics: Mapping[str, TopicMetadata], arguments: argparse.Namespace) -> list[str]:
    match = None if arguments.topic is None else name_pattern(_as_pattern(arguments.topic))
    return sorted(
        name
        for name, topic in topics.items()
        if (match is None or match(name)) and not (arguments.exclude_internal and topic.is_internal)
    )


def _as_pattern(text: str) -> str:
    """Turns a list of names into Kafka's pattern: blanks and quotes are removed, a comma means
    "or".
    """
    return text.strip("\"'").replace(",", "|").replace(" ", "")


async def _existing(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    """Returns the named topics, which must exist unless `--if-exists` is given."""
    names = _selected(await admin.list_topics(), arguments)
    if not names and arguments.topic is not None and not arguments.if_exists:
        raise _Refused(f"Topic '{arguments.topic}' does not exist as expected")
    return names


async def _create(admin: Admin, arguments: argparse.Namespace) -> None:
    name = arguments.topic
    if not name:
        raise _Refused(f"The given topic name '{name}' cannot be represented in a request.")
    if "." in name or "_" in name:
        print(_COLLISION_WARNING)
    if arguments.partitions is not None and arguments.partitions < 1:
        raise _Refused("The partitions must be greater than 0")
    factor = arguments.replication_factor
    if factor is not None and not 1 <= factor <= 32767:
        raise _Refused("The replication factor must be between 1 and 32767 inclusive")
    assignment = _assignment(arguments.replica_assignment)
    topic = NewTopic(
        name,
        -1 if arguments.partitions is None else arguments.partitions,
        -1 if factor is None else factor,
        dict(_setting(each) for each in arguments.config),
        assignment,
    )
    result = (await admin.create_topics([topic]))[name]
    if isinstance(result, KafkaError):
        if arguments.if_not_exists and result.code.name == "TOPIC_ALREADY_EXISTS":
            return
        raise result
    print(f"Created topic {name}.")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or "=" in value:
        raise _Refused(
            "requirement failed: Invalid topic config: all configs to be added must be in the "
            'format "key=val".'
        )
    return name.strip(), value.strip()


def _assignment(text: str | None) -> dict[int, list[int]] | None:
    if text is None:
        return None
    lists = [[java_int(each) for each in part.split(":")] for part in text.split(",")]
    for index, replicas in enumerate(lists):
        if twice := repeated(replicas):
            raise _Refused(
                f"Partition replica lists may not contain duplicate entries: {joined(twice)}"
            )
        if len(replicas) != len(lists[0]):
            raise _Refused(f"Partition {index} has different replication factor: {replicas}")
    return dict(enumerate(lists))


async def _alter(admin: Admin, arguments: argparse.Namespace) -> None:
    names = await _existing(admin, arguments)
    assignment = _assignment(arguments.replica_assignment)
    wanted = {}
    topics = await admin.list_topics() if assignment else {}
    for name in names:
        fresh = None
        if assignment is not None:
            have = len(topics[name].partitions)
            fresh = [replicas for index, replicas in assignment.items() if index >= have]
        wanted[name] = NewPartitions(arguments.partitions, fresh)
    _raise_first((await admin.create_partitions(wanted)).values())


async def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    _raise_first((await admin.delete_topics(await _existing(admin, arguments))).values())


def _raise_first(results: Iterable[object]) -> None:
    for result in results:
        if isinstance(result, KafkaError):
            raise result


# --- describe -----------------------------------------------------------------------------------


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    topics = await admin.list_topics()
    wanted_id = _NO_TOPIC if arguments.topic_id is None else _topic_id(arguments.topic_id)
    if wanted_id != _NO_TOPIC:
        names = [_by_id(topics, wanted_id, arguments)]
    else:
        names = _selected(topics, arguments)
        if not names and arguments.topic is not None and not arguments.if_exists:
            raise _Refused(f"Topic '{arguments.topic}' does not exist as expected")
    names = [name for name in names if name]
    described = await admin.describe_topics(names)
    _raise_first(described.values())
    resources = [ConfigResource.topic(name) for name in names]
    configs = await admin.describe_configs(resources)
    _raise_first(configs.values())
    # Kafka's tool asks for a topic of an id in a way that does not tell them.
    eligible = await _eligible(admin, names if wanted_id == _NO_TOPIC else [])
    moving = await _moving(admin, described)
    shown = []
    for name, resource in zip(names, resources, strict=True):
        topic, entries = described[name], configs[resource]
        assert isinstance(topic, TopicMetadata), "errors were raised above"
        assert isinstance(entries, dict), "errors were raised above"
        if arguments.output == "json":
            shown.append(_as_json(topic, entries, eligible, moving))
        else:
            _print_topic(topic, entries, eligible, moving, arguments)
    if arguments.output == "json":
        print_json(shown)


def _by_id(topics: Mapping[str, TopicMetadata], wanted: UUID, arguments: argparse.Namespace) -> str:
    for topic in topics.values():
        if topic.topic_id == wanted:
            return topic.name
    if arguments.if_exists:
        return ""
    raise _Refused(f"TopicId '{arguments.topic_id}' does not exist as expected")


def _topic_id(text: str) -> UUID:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        data = b""
    if len(data) != 16:
        raise _Refused(
            f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the "
            "expected 16 bytes of a base64-encoded UUID"
        )
    return UUID(bytes=data)


async def _eligible(admin: Admin, names: list[str]) -> Replicas:
    """Returns the eligible leader replicas; empty where brokers do not report them."""
    if not names:
        return {}
    try:
        return await admin.eligible_leaders(names)
    except UnsupportedVersion:
        return {}


async def _moving(
    admin: Admin, described: Mapping[str, TopicMetadata | KafkaError]
) -> Mapping[TopicPartition, PartitionReassignment]:
    """Returns the current reassignments; empty where brokers cannot report them."""
    topics = [topic for topic in described.values() if isinstance(topic, TopicMetadata)]
    if not topics:
        return {}
    try:
        return await admin.list_partition_reassignments(
            partition for topic in topics for partition in topic.partitions
        )
    except UnsupportedVersion:
        return {}


def _print_topic(
    topic: TopicMetadata,
    entries: Mapping[str, ConfigEntry],
    eligible: Replicas,
    moving: Mapping[TopicPartition, PartitionReassignment],
    arguments: argparse.Namespace,
) -> None:
    ordered = [entries[name] for name in in_java_order(entries)]
    overrides = [each for each in ordered if each.source != _DEFAULT_CONFIG]
    least = (
        int(entries["min.insync.replicas"].value or 1) if "min.insync.replicas" in entries else 1
    )
    filters = (
        arguments.under_replicated_partitions,
        arguments.unavailable_partitions,
        arguments.under_min_isr_partitions,
        arguments.at_min_isr_partitions,
    )
    if arguments.topics_with_overrides and not overrides:
        return
    if not any(filters):
        _print_headline(topic, overrides, moving)
    if arguments.topics_with_overrides:
        return
    for partition in topic.partitions:
        each = topic.partition_metadata[partition.partition]
        moves = moving.get(partition)
        if not any(filters) or _matches(each, least, moves, arguments):
            _print_partition(partition, each, moves, eligible.get(partition, (None, None)))


def _print_headline(
    topic: TopicMetadata,
    overrides: list[ConfigEntry],
    moving: Mapping[TopicPartition, PartitionReassignment],
) -> None:
    first = topic.partitions[0]
    factor = _factor(topic.partition_metadata[first.partition], moving.get(first))
    shown = ",".join(f"{each.name}={each.value}" for each in overrides)
    identity = f"\tTopicId: {uuid_text(topic.topic_id)}" if topic.topic_id is not None else ""
    print(
        f"Topic: {topic.name}{identity}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {factor}\tConfigs: {shown}"
    )


def _factor(partition: PartitionMetadata, moves: PartitionReassignment | None) -> int:
    """Returns the number of replicas without those that a reassignment adds."""
    return len(partition.replicas) - (len(moves.adding) if moves is not None else 0)


def _matches(
    partition: PartitionMetadata,
    least: int,
    moves: PartitionReassignment | None,
    arguments: argparse.Namespace,
) -> bool:
    in_sync = len(partition.in_sync_replicas)
    is_unavailable = partition.leader == NO_LEADER
    return bool(
        (arguments.under_replicated_partitions and in_sync < _factor(partition, moves))
        or (arguments.unavailable_partitions and is_unavailable)
        # The last replica in sync stays so when its broker goes: it takes no record, though.
        or (arguments.under_min_isr_partitions and (is_unavailable or in_sync < least))
        or (arguments.at_min_isr_partitions and in_sync == least)
    )


def _print_partition(
    partition: TopicPartition,
    each: PartitionMetadata,
    moves: PartitionReassignment | None,
    eligible: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
) -> None:
    leader = "none" if each.leader == NO_LEADER else each.leader
    moved = ""
    if moves is not None:
        moved = (
            f"\tAdding Replicas: {_joined(moves.adding)}"
            f"\tRemoving Replicas: {_joined(moves.removing)}"
        )
    print(
        f"\tTopic: {partition.topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_joined(each.replicas)}\tIsr: {_joined(each.in_sync_replicas)}{moved}"
        f"\tElr: {_joined(eligible[0])}\tLastKnownElr: {_joined(eligible[1])}"
    )


def _joined(ids: tuple[int, ...] | None) -> str:
    return "N/A" if ids is None else joined(ids)


def _as_json(
    topic: TopicMetadata,
    entries: Mapping[str, ConfigEntry],
    eligible: Replicas,
    moving: Mapping[TopicPartition, PartitionReassignment],
) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": "" if topic.topic_id is None else uuid_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "configs": {
            each.name: each.value for each in entries.values() if each.source != _DEFAULT_CONFIG
        },
        "partitions": [
            {
                "partition": partition.partition,
                "leader": None if each.leader == NO_LEADER else each.leader,
                "replicas": each.replicas,
                "isr": each.in_sync_replicas,
                "elr": eligible.get(partition, (None, None))[0],
                "last_known_elr": eligible.get(partition, (None, None))[1],
                "adding": moves.adding if (moves := moving.get(partition)) is not None else (),
                "removing": moves.removing if moves is not None else (),
            }
            for partition in topic.partitions
            for each in (topic.partition_metadata[partition.partition],)
        ],
    }
