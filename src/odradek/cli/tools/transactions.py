"""`odradek transactions`: looks at transactions and ends them, as `kafka-transactions.sh` does.

Tables go to standard output in Kafka's columns, errors to standard error.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from odradek import __version__
from odradek.cli.tools.connection import add_connection, client_config, print_json, run_async
from odradek.cli.tools.wording.java_values import converted
from odradek.client import Admin
from odradek.client.core.admin_types import ProducerState, TransactionDescription
from odradek.client.core.metadata import TopicMetadata
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode, text_of
from odradek.model import TopicPartition

_FORCE: Final = "forceTerminateTransaction"
_NONE: Final = "None"
_BATCH_SIZE: Final = 500
_MINUTE_MS: Final = 60_000
_LIST_COLUMNS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE_COLUMNS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCER_COLUMNS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING_COLUMNS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)

# A partition with a producer whose transaction is open in it.
_Open = tuple[TopicPartition, ProducerState]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser, reads_options=False)
    parser.add_argument(
        "-v", action="version", version=f"odradek {__version__}", help=argparse.SUPPRESS
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, help_text: str, *aliases: str) -> argparse.ArgumentParser:
        action = actions.add_parser(name, aliases=aliases, help=help_text, allow_abbrev=False)
        action.add_argument("--format", dest="output", choices=("text", "json"), default="text")
        return action

    listing = add("list", "list transactions")
    listing.add_argument("--duration-filter", type=converted("Long"), default=-1, metavar="MS")
    listing.add_argument("--transactional-id-pattern", metavar="REGEX")
    describe = add("describe", "describe the transaction of an id")
    describe.add_argument("--transactional-id", required=True, metavar="ID")
    producers = add("describe-producers", "describe the producers that a partition remembers")
    producers.add_argument(
        "--broker-id", type=converted("Integer"), metavar="N", help="ask this replica"
    )
    find = add("find-hanging", "find transactions that no coordinator will end")
    find.add_argument("--broker-id", type=converted("Integer"), metavar="N")
    find.add_argument(
        "--max-transaction-timeout", type=converted("Integer"), default=15, metavar="MINUTES"
    )
    abort = add("abort", "abort a hanging transaction in a partition")
    abort.add_argument("--start-offset", type=converted("Long"), metavar="N")
    abort.add_argument("--producer-id", type=converted("Long"), metavar="N")
    abort.add_argument("--producer-epoch", type=converted("Short"), metavar="N")
    abort.add_argument("--coordinator-epoch", type=converted("Integer"), metavar="N")
    for action in (producers, find, abort):
        action.add_argument("--topic", required=action is not find, metavar="NAME")
        action.add_argument(
            "--partition", type=converted("Integer"), required=action is not find, metavar="N"
        )
    force = add(_FORCE, "abort what an id has open and shut its producer out", "force-terminate")
    force.add_argument("--transactionalId", "--transactional-id", required=True, metavar="ID")


def run(arguments: argparse.Namespace) -> int:
    """Runs the action."""
    _check(arguments)
    action = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
    }.get(arguments.action, _force_terminate)

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            await action(admin, arguments)
        return 0

    return run_async(work, lambda error: print(text_of(error), file=sys.stderr))


def _check(arguments: argparse.Namespace) -> None:
    """Refuses flags that Kafka's tool refuses before it sends a request."""
    wrong = arguments.parser.error
    if arguments.action == "find-hanging":
        if arguments.topic is None and arguments.broker_id is None:
            wrong(
                "The `find-hanging` command requires either --topic or --broker-id to limit the "
                "scope of the search"
            )
        if arguments.partition is not None and arguments.topic is None:
            wrong("The --partition argument requires --topic to be provided")
    if arguments.action == "abort" and arguments.start_offset is None:
        if arguments.producer_id is None:
            wrong(
                "The transaction to abort must be identified either with --start-offset (for "
                "brokers on 3.0 or above) or with --producer-id, --producer-epoch, and "
                "--coordinator-epoch (for older brokers)"
            )
        for name in ("producer_epoch", "coordinator_epoch"):
            if getattr(arguments, name) is None:
                wrong(f"Missing required argument --{name.replace('_', '-')}")


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Puts the failed action in front of the error message."""
    try:
        yield
    except KafkaError as error:
        raise ValueError(f"{what}: {text_of(error)}") from error


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    with _failing("Failed to list transactions"):
        found = await admin.list_transactions(
            running_longer_than_ms=arguments.duration_filter,
            pattern=arguments.transactional_id_pattern,
        )
    rows = [
        (each.transactional_id, broker_id, each.producer_id, each.state)
        for broker_id, listings in found.items()
        for each in listings
    ]
    _show(arguments, _LIST_COLUMNS, rows)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    name = arguments.transactional_id
    with _failing(f"Failed to describe transaction state of transactional-id `{name}`"):
        found = (await admin.describe_transactions([name]))[name]
        if isinstance(found, KafkaError):
            raise found
    _show(arguments, _DESCRIBE_COLUMNS, [_description(found)])


def _description(found: TransactionDescription) -> Sequence[object]:
    is_open = found.start_ms >= 0
    return (
        found.coordinator_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms if is_open else None,
        _now_ms() - found.start_ms if is_open else None,
        [str(each) for each in sorted(found.partitions)],
    )


async def _describe_producers(admin: Admin, arguments: argparse.Namespace) -> None:
    partition = TopicPartition(arguments.topic, arguments.partition)
    broker = "leader" if arguments.broker_id is None else f"broker {arguments.broker_id}"
    with _failing(f"Failed to describe producers for partition {partition} on {broker}"):
        found = await _producers(admin, [partition], arguments.broker_id)
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.transaction_start_offset if each.transaction_start_offset >= 0 else None,
        )
        for each in found[partition]
    ]
    _show(arguments, _PRODUCER_COLUMNS, rows)


async def _find_hanging(admin: Admin, arguments: argparse.Namespace) -> None:
    candidates: list[_Open] = []
    shortest_ms = arguments.max_transaction_timeout * _MINUTE_MS
    searched = await _searched(admin, arguments)
    for first in range(0, len(searched), _BATCH_SIZE):
        some = searched[first : first + _BATCH_SIZE]
        with _failing(f"Failed to describe producers for {len(some)} partitions"):
            found = await _producers(admin, some, arguments.broker_id)
        candidates += [
            (partition, each)
            for partition, producers in found.items()
            for each in producers
            if each.transaction_start_offset >= 0 and _now_ms() - each.last_timestamp > shortest_ms
        ]
    found_hanging = await hanging(admin, candidates) if candidates else []
    _show(arguments, _HANGING_COLUMNS, [_hanging_row(*each) for each in found_hanging])


async def _searched(admin: Admin, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Returns the partitions that the flags name, at the broker that they name."""
    if arguments.partition is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    topics: Mapping[str, TopicMetadata | KafkaError]
    if arguments.topic is not None:
        with _failing("Failed to describe 1 topics"):
            topics = await admin.describe_topics([arguments.topic])
            if isinstance(refused := topics[arguments.topic], KafkaError):
                raise refused
    else:
        with _failing("Failed to list topics"):
            listed = await admin.list_topics()
        topics = {name: each for name, each in listed.items() if not each.is_internal}
    broker_id = arguments.broker_id
    return [
        TopicPartition(name, index)
        for name, topic in topics.items()
        if isinstance(topic, TopicMetadata)
        for index, each in topic.partition_metadata.items()
        if broker_id is None or broker_id in each.replicas
    ]


async def hanging(admin: Admin, candidates: Sequence[_Open]) -> list[_Open]:
    """Finds open transactions in partitions that their coordinator does not know about."""
    producer_ids = {each.producer_id for _, each in candidates}
    with _failing(f"Failed to list transactions for {len(producer_ids)} producers"):
        listed = await admin.list_transactions(producer_ids=producer_ids)
    names = {e.producer_id: e.transactional_id for some in listed.values() for e in some}
    expected: set[tuple[int, TopicPartition]] = set()
    with _failing(f"Failed to describe {len(names)} transactions"):
        described = await admin.describe_transactions(names.values())
        for producer_id, name in names.items():
            found = described[name]
            if isinstance(found, TransactionDescription):
                expected |= {(producer_id, each) for each in found.partitions}
            elif found.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise found
    return [each for each in candidates if (each[1].producer_id, each[0]) not in expected]


def _hanging_row(partition: TopicPartition, producer: ProducerState) -> Sequence[object]:
    return (
        partition.topic,
        partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        producer.last_timestamp,
        (_now_ms() - producer.last_timestamp) // _MINUTE_MS,
    )


async def _abort(admin: Admin, arguments: argparse.Namespace) -> None:
    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is None:
        producer_id, producer_epoch = arguments.producer_id, arguments.producer_epoch
        coordinator_epoch = arguments.coordinator_epoch
    else:
        producer = await _opened_at(admin, partition, arguments.start_offset)
        producer_id, producer_epoch = producer.producer_id, producer.producer_epoch
        coordinator_epoch = producer.coordinator_epoch
    # A partition that never saw a marker has no epoch; 0 is none that a coordinator is behind of.
    coordinator_epoch = max(coordinator_epoch, 0)
    spec = (
        f"AbortTransactionSpec(topicPartition={partition}, producerId={producer_id}, "
        f"producerEpoch={producer_epoch}, coordinatorEpoch={coordinator_epoch})"
    )
    with _failing(f"Failed to abort transaction {spec}"):
        await admin.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch)


async def _opened_at(admin: Admin, partition: TopicPartition, offset: int) -> ProducerState:
    with _failing(f"Failed to validate producer state for partition {partition}"):
        producers = (await _producers(admin, [partition]))[partition]
    for each in producers:
        if each.transaction_start_offset == offset >= 0:
            return each
    raise ValueError(
        f"Could not find any open transactions starting at offset {offset} on partition {partition}"
    )


async def _force_terminate(admin: Admin, arguments: argparse.Namespace) -> None:
    name = arguments.transactionalId
    with _failing(f"Failed to force terminate transactionalId `{name}`"):
        await admin.force_terminate_transaction(name)


async def _producers(
    admin: Admin, partitions: Sequence[TopicPartition], broker_id: int | None = None
) -> dict[TopicPartition, list[ProducerState]]:
    """Returns the producers of partitions; every partition must answer."""
    found: dict[TopicPartition, list[ProducerState]] = {}
    for partition, producers in (
        await admin.describe_producers(partitions, broker_id=broker_id)
    ).items():
        if isinstance(producers, KafkaError):
            raise producers
        found[partition] = producers
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _show(
    arguments: argparse.Namespace, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> None:
    """Prints a table; every cell is as wide as the widest of its column, and a tab follows it."""
    if arguments.output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    lines = [columns, *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))


def _text(cell: object) -> str:
    if isinstance(cell, list):
        return ",".join(cell)
    return _NONE if cell is None else str(cell)
