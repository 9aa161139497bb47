"""`odradek reassign-partitions`: moves partitions, as `kafka-reassign-partitions.sh` does.

`--generate` proposes a plan, `--execute` begins it, `--verify` and `--list` show its progress,
`--cancel` cancels it. The plan is Kafka's JSON. A throttle consists of settings of topics and
brokers, so it stays until a `--verify` finds everything done and clears it.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.cli.tools.connection import (
    NO_ADMIN,
    NoAddress,
    NoFile,
    add_actions,
    add_connection,
    add_format,
    check_whom_to_ask,
    client_config,
    is_given,
    print_json,
    run_async,
    the_action,
)
from odradek.cli.tools.replicas.log_dir_moves import (
    MoveState,
    TimedOut,
    begin_moves,
    directories_of,
    move_states,
    take_back,
)
from odradek.cli.tools.replicas.reassignment_plan import (
    ANY_DIRECTORY,
    Moves,
    Placed,
    Plan,
    Replica,
    anywhere,
    as_json,
    check_plan,
    joined,
    read_plan,
    read_topics,
    refuse_repeated,
)
from odradek.cli.tools.wording.java_names import java_name, java_sentence
from odradek.cli.tools.wording.java_values import java_int, java_long
from odradek.cli.tools.wording.json_files import NoJson, read_json
from odradek.client import Admin
from odradek.client.core.admin_types import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    PartitionReassignment,
)
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode, text_of
from odradek.model import TopicPartition

BROKER_RATES: Final = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
TOPIC_REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)
_NO_MOVES: Final = "None of the specified partition moves are active."


# Which flags go with which action.
_FLAGS: Final = (
    "reassignment-json-file",
    "topics-to-move-json-file",
    "broker-list",
    "disable-rack-aware",
    "throttle",
    "replica-alter-log-dirs-throttle",
    "timeout",
    "additional",
    "preserve-throttles",
    "disallow-replication-factor-change",
    "bootstrap-controller",
)
_TAKES: Final = {
    "generate": ("topics-to-move-json-file", "broker-list", "disable-rack-aware"),
    "execute": (
        "reassignment-json-file",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "additional",
        "disallow-replication-factor-change",
    ),
    "verify": ("reassignment-json-file", "preserve-throttles"),
    "cancel": (
        "reassignment-json-file",
        "preserve-throttles",
        "timeout",
        "bootstrap-controller",
    ),
    "list": ("bootstrap-controller",),
}


class Refused(ValueError):
    """The tool refuses; the message is complete."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(
        parser,
        server_flags=("--bootstrap-server",),
        controller_flags=("--bootstrap-controller",),
    )
    add_format(parser)
    add_actions(
        parser,
        {
            "generate": "propose a plan for the topics of --topics-to-move-json-file",
            "execute": "begin what the plan says",
            "verify": "say how far it is, and clear throttles when it is done",
            "cancel": "take back what the plan began",
            "list": "say what is under way",
        },
    )
    parser.add_argument("--reassignment-json-file", metavar="FILE", help="the plan")
    parser.add_argument("--topics-to-move-json-file", metavar="FILE")
    parser.add_argument("--broker-list", dest="brokers", metavar="N,N", help="where to move them")
    parser.add_argument("--disable-rack-aware", action="store_true")
    parser.add_argument(
        "--throttle",
        type=java_long,
        default=-1,
        metavar="BYTES",
        help="bytes a second between brokers",
    )
    parser.add_argument(
        "--replica-alter-log-dirs-throttle",
        type=java_long,
        default=-1,
        metavar="BYTES",
        help="bytes a second between log directories of a broker",
    )
    parser.add_argument(
        "--timeout",
        type=java_long,
        default=10_000,
        metavar="MS",
        help="how long to wait until moves between log directories begin (default: 10000)",
    )
    parser.add_argument("--additional", action="store_true", help="beside what is under way")
    parser.add_argument("--preserve-throttles", action="store_true")
    parser.add_argument("--disallow-replication-factor-change", action="store_true")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action, in Kafka's words."""
    action = the_action(arguments, [*_ACTIONS])
    check_whom_to_ask(
        arguments,
        both="Please don't specify both --bootstrap-server and --bootstrap-controller",
        neither="Please specify either --bootstrap-server or --bootstrap-controller",
    )
    needed = {"list": (), "generate": ("topics_to_move_json_file", "brokers")}
    for name in needed.get(action, ("reassignment_json_file",)):
        if getattr(arguments, name) is None:
            flag = "broker-list" if name == "brokers" else name.replace("_", "-")
            arguments.parser.error(f'Missing required argument "[{flag}]"')
    for flag in _FLAGS:
        option = {"broker-list": "brokers"}.get(flag, flag)
        if flag not in _TAKES[action] and is_given(arguments, option):
            arguments.parser.error(f'Option "[{flag}]" can\'t be used with action "[{action}]"')

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            await _ACTIONS[action](admin, arguments)
        return 0

    return run_async(work, _show_error)


def _show_error(error: Exception) -> None:
    if isinstance(error, Refused | TimedOut):
        print(error)
    elif isinstance(error, NoFile):
        print(f"Error: {error.path}")
    elif isinstance(error, NoAddress):
        print(error, file=sys.stderr)
        print(f"Error: {NO_ADMIN}")
    elif isinstance(error, KafkaError):
        print(f"Error: {java_name(error)}: {text_of(error)}")
    else:
        print(f"Error: {text_of(error)}")


# --- the actions ------------------------------------------------------------------------------


async def _generate(admin: Admin, arguments: argparse.Namespace) -> None:
    from odradek.controller.topics.placement import PlacementBroker, place_replicas

    try:
        topics = read_topics(read_json(arguments.topics_to_move_json_file))
    except NoJson:
        raise ValueError("The input string is not a valid JSON") from None
    brokers = [java_int(each) for each in arguments.brokers.split(",")]
    refuse_repeated(brokers, "Broker list contains duplicate entries: {}")
    refuse_repeated(topics, "List of topics to reassign contains duplicate entries: {}")
    racks = {node.id: node.rack for node in (await admin.describe_cluster()).nodes}
    current = await _placed(admin, topics)
    where = [
        PlacementBroker(each, None if arguments.disable_rack_aware else racks.get(each))
        for each in brokers
    ]
    if any(each.rack for each in where) and not all(each.rack for each in where):
        raise ValueError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to "
            "make replica assignment without rack information."
        )
    rng = random.SystemRandom()
    proposed: Plan = {}
    for topic in topics:
        partitions = sorted(each for each in current if each.topic == topic)
        placed = place_replicas(
            where,
            len(partitions),
            len(current[partitions[0]].replicas),
            start=rng.randrange(len(where)),
            shift=rng.randrange(len(where)),
        )
        proposed |= dict(zip(partitions, placed, strict=True))
    print("Current partition replica assignment")
    print(as_json(current))
    print("\nProposed partition reassignment configuration")
    print(as_json({each: anywhere(replicas) for each, replicas in proposed.items()}))


async def _execute(admin: Admin, arguments: argparse.Namespace) -> None:
    plan, moves = read_plan(read_json(arguments.reassignment_json_file))
    check_plan(plan)
    under_way = await admin.list_partition_reassignments()
    if under_way and not arguments.additional:
        raise Refused(
            "Cannot execute because there is an existing partition assignment.  Use --additional "
            "to override this and create a new partition assignment in addition to the existing "
            "one. The --additional flag can also be used to change the throttle by resubmitting "
            "the current reassignment."
        )
    live = {node.id for node in (await admin.describe_cluster()).nodes}
    for broker_id in sorted({each for replicas in plan.values() for each in replicas} - live):
        raise ValueError(f"Unknown broker id {broker_id}")
    current = await _placed(admin, {each.topic for each in plan}, plan)
    print(f"Current partition replica assignment\n\n{as_json(current)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    directory_rate = arguments.replica_alter_log_dirs_throttle
    if arguments.throttle >= 0 or directory_rate >= 0:
        print(
            "Warning: You must run --verify periodically, until the reassignment completes, to "
            "ensure the throttle is removed."
        )
    if arguments.throttle >= 0:
        await _throttle(admin, plan, current, under_way, arguments.throttle)
        print(f"The inter-broker throttle limit was set to {arguments.throttle} B/s")
    if directory_rate >= 0:
        await _throttle_moves(admin, moves, directory_rate)
        print(f"The replica-alter-dir throttle limit was set to {directory_rate} B/s")
    results = await admin.alter_partition_reassignments(
        plan,
        allow_replication_factor_change=not arguments.disallow_replication_factor_change,
    )
    _refuse_failed("Error reassigning partition(s):", results)
    names = ",".join(map(str, sorted(plan)))
    print(f"Successfully started partition reassignment{'s' if len(plan) > 1 else ''} for {names}")
    if moves:
        await begin_moves(admin, moves, arguments.timeout)


async def _verify(admin: Admin, arguments: argparse.Namespace) -> None:
    plan, moves = read_plan(read_json(arguments.reassignment_json_file))
    under_way = await admin.list_partition_reassignments()
    described = await admin.describe_topics({each.topic for each in plan})
    states = {}
    for partition, target in sorted(plan.items()):
        topic = described[partition.topic]
        known = {} if isinstance(topic, KafkaError) else topic.partition_metadata
        found = known.get(partition.partition)
        replicas = () if found is None else tuple(found.replicas)
        states[partition] = (partition in under_way, replicas, target)
    moved = await move_states(admin, moves)
    if arguments.output == "json":
        print_json([_state_as_json(each, moved, *state) for each, state in states.items()])
    else:
        print("Status of partition reassignment:")
        for partition, state in states.items():
            print(_state_as_text(partition, *state))
        print("\n".join(each.text for each in moved.values()))
    is_done = not under_way and all(each.is_done for each in moved.values())
    if is_done and not arguments.preserve_throttles:
        await _clear_throttles(admin, plan, is_text=arguments.output == "text")


async def _cancel(admin: Admin, arguments: argparse.Namespace) -> None:
    plan, moves = read_plan(read_json(arguments.reassignment_json_file))
    under_way = await admin.list_partition_reassignments(plan)
    to_cancel = [each for each in sorted(plan) if each in under_way]
    if to_cancel:
        results = await admin.alter_partition_reassignments(dict.fromkeys(to_cancel))
        _refuse_failed("Error cancelling partition reassignment(s) for:", results)
        ending = "s" if len(to_cancel) > 1 else ""
        names = ",".join(map(str, to_cancel))
        print(f"Successfully cancelled partition reassignment{ending} for: {names}")
    else:
        print("None of the specified partition reassignments are active.")
    if not await take_back(admin, moves, arguments.timeout):
        # Without a new line behind it, as Kafka's tool has it.
        print(_NO_MOVES, end="")
    if not arguments.preserve_throttles:
        await _clear_throttles(admin, plan, is_text=True)


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    under_way = await admin.list_partition_reassignments()
    if arguments.output == "json":
        print_json(
            [
                {"topic": each.topic, "partition": each.partition, **_lists_of(state)}
                for each, state in sorted(under_way.items())
            ]
        )
        return
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, state in sorted(under_way.items()):
        shown = [f"replicas: {joined(state.replicas)}."]
        shown += [f"adding: {joined(state.adding)}."] if state.adding else []
        shown += [f"removing: {joined(state.removing)}."] if state.removing else []
        print(f"{partition}: {' '.join(shown)}")


_ACTIONS: Final = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}


# --- throttles --------------------------------------------------------------------------------


async def _throttle(
    admin: Admin,
    plan: Plan,
    current: Mapping[TopicPartition, Placed],
    under_way: Mapping[TopicPartition, PartitionReassignment],
    rate: int,
) -> None:
    """Throttles leaders on the current replicas, and followers on the new ones.

    Partitions of the plan that stay where they are count too, as in Kafka's tool.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for partition, target in sorted(plan.items()):
        moving = under_way.get(partition)
        sources = [
            each
            for each in current[partition].replicas
            if moving is None or each not in moving.adding
        ]
        comers = [each for each in target if each not in sources]
        brokers |= {*sources, *comers}
        topic, index = partition
        leaders.setdefault(topic, []).extend(f"{index}:{each}" for each in sources)
        followers.setdefault(topic, []).extend(f"{index}:{each}" for each in comers)
    changes = {
        ConfigResource.topic(topic): [
            ConfigChange(name, ",".join(replicas[topic]))
            for name, replicas in zip(TOPIC_REPLICAS, (leaders, followers), strict=True)
            if replicas[topic]
        ]
        for topic in leaders
    }
    changes |= {
        ConfigResource.broker(each): [ConfigChange(name, str(rate)) for name in BROKER_RATES[:2]]
        for each in sorted(brokers)
    }
    await _alter(admin, changes)


async def _throttle_moves(admin: Admin, moves: Moves, rate: int) -> None:
    """Throttles brokers on all moves between their log directories."""
    change = ConfigChange(BROKER_RATES[2], str(rate))
    brokers = sorted({each.broker_id for each in moves})
    await _alter(admin, {ConfigResource.broker(each): [change] for each in brokers})


async def _clear_throttles(admin: Admin, plan: Plan, *, is_text: bool) -> None:
    live = {node.id for node in (await admin.describe_cluster()).nodes}
    brokers = sorted(live | {each for replicas in plan.values() for each in replicas})
    if is_text:
        ending = "s" if len(brokers) > 1 else ""
        print(f"Clearing broker-level throttles on broker{ending} {joined(brokers)}")
    await _alter(admin, {ConfigResource.broker(each): _deletions(BROKER_RATES) for each in brokers})
    topics = sorted({each.topic for each in plan})
    if is_text:
        ending = "s" if len(topics) > 1 else ""
        print(f"Clearing topic-level throttles on topic{ending} {joined(topics)}")
    await _alter(admin, {ConfigResource.topic(each): _deletions(TOPIC_REPLICAS) for each in topics})


def _deletions(names: Iterable[str]) -> list[ConfigChange]:
    return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]


async def _alter(admin: Admin, changes: Mapping[ConfigResource, Sequence[ConfigChange]]) -> None:
    for error in (await admin.alter_configs(changes)).values():
        if error is not None:
            raise error


# --- what is there ----------------------------------------------------------------------------


async def _placed(
    admin: Admin, topics: Iterable[str], wanted: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, Placed]:
    """Returns the current replicas of these partitions, or of all partitions of the topics."""
    replicas: Plan = {}
    for name, topic in (await admin.describe_topics(sorted(topics))).items():
        if isinstance(topic, KafkaError):
            if topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise KafkaError(f"Topic {name} not found.", topic.code)
            raise topic
        for index, found in topic.partition_metadata.items():
            replicas[TopicPartition(name, index)] = tuple(found.replicas)
    for partition in wanted or ():
        if partition not in replicas:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(f"Unable to find partition: {partition}", code)
    chosen = sorted(replicas if wanted is None else wanted)
    brokers = {each for one in chosen for each in replicas[one]}
    lie_in = (await directories_of(admin, brokers)).current
    return {
        each: Placed(
            replicas[each],
            tuple(lie_in.get(Replica(broker, each), ANY_DIRECTORY) for broker in replicas[each]),
        )
        for each in chosen
    }


# --- words ------------------------------------------------------------------------------------


def _refuse_failed(head: str, results: Mapping[TopicPartition, KafkaError | None]) -> None:
    failed = [
        f"{each}: {java_sentence(error)}"
        for each, error in sorted(results.items())
        if error is not None
    ]
    if failed:
        raise Refused("\n".join([head, *failed]))


def _state_as_text(
    partition: TopicPartition, is_moving: bool, replicas: tuple[int, ...], target: tuple[int, ...]
) -> str:
    if is_moving:
        return f"Reassignment of partition {partition} is still in progress."
    if replicas == target:
        return f"Reassignment of partition {partition} is completed."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is "
        f"{joined(replicas)} rather than {joined(target)}."
    )


def _state_as_json(
    partition: TopicPartition,
    moved: Mapping[Replica, MoveState],
    is_moving: bool,
    replicas: tuple[int, ...],
    target: tuple[int, ...],
) -> dict[str, object]:
    state = "in progress" if is_moving else "completed" if replicas == target else "other replicas"
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": replicas,
        "target": target,
        "state": state,
        "log_dirs": {
            str(replica.broker_id): {"is_done": each.is_done, "text": each.text}
            for replica, each in moved.items()
            if replica.partition == partition
        },
    }


def _lists_of(state: PartitionReassignment) -> dict[str, object]:
    return {"replicas": state.replicas, "adding": state.adding, "removing": state.removing}
