"""Reassignment plans: Kafka's JSON, checked when read, and written as Kafka's tool writes it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from odradek.cli.tools.wording.json_files import field, rows
from odradek.model import TopicPartition

ANY_DIRECTORY: Final = "any"

T = TypeVar("T")
Plan = dict[TopicPartition, tuple[int, ...]]


class Replica(NamedTuple):
    """The state of a replica on one broker; shown as Kafka shows it."""

    broker_id: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker_id}"


# Log directories, by the replicas that go there.
Moves = dict[Replica, str]


class Placed(NamedTuple):
    """The replicas of a partition now, and the log directories they lie in."""

    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


def read_plan(data: Any) -> tuple[Plan, Moves]:
    """Reads the plan in a file: the new replicas of partitions, and their log directories if not
    `any`.

    Raises:
        ValueError: it is malformed, or contains something twice.
    """
    found = []
    directories = []
    for row in rows(data, "partitions"):
        partition = TopicPartition(field(row, "topic", str), field(row, "partition", int))
        replicas = tuple(map(int, field(row, "replicas", list)))
        found.append((partition, replicas))
        anywhere_else = [ANY_DIRECTORY] * len(replicas)
        directories.append(field({"log_dirs": anywhere_else} | row, "log_dirs", list))
    refuse_repeated(
        [str(partition) for partition, _ in found],
        "Partition reassignment contains duplicate topic partitions: {}",
        brackets=False,
    )
    moves: Moves = {}
    for (partition, replicas), paths in zip(found, directories, strict=True):
        if len(replicas) != len(paths):
            raise ValueError(
                f"Size of replicas list [{', '.join(map(str, replicas))}] is different from size "
                f"of log dirs list [{', '.join(paths)}] for partition {partition}"
            )
        moves |= {
            Replica(broker_id, partition): path
            for broker_id, path in zip(replicas, paths, strict=True)
            if path != ANY_DIRECTORY
        }
    return dict(found), moves


def check_plan(plan: Plan) -> None:
    """Refuses a plan that cannot be carried out.

    Raises:
        ValueError: the plan is empty, or a partition has no replicas, or one twice.
    """
    if not plan:
        raise ValueError("Partition reassignment list cannot be empty")
    for partition, replicas in plan.items():
        if not replicas:
            raise ValueError("Partition replica list cannot be empty")
        if twice := repeated(replicas):
            raise ValueError(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {joined(twice)}"
            )


def read_topics(data: Any) -> list[str]:
    """Reads the topics to move, the input of `--generate`.

    Raises:
        ValueError: the file is malformed.
    """
    return [field(row, "topic", str) for row in rows(data, "topics")]


def refuse_repeated(items: Sequence[object], text: str, *, brackets: bool = True) -> None:
    """Raises a ValueError of `text`, which names them, if items occur twice."""
    if twice := repeated(items):
        shown = ", ".join(map(str, twice))
        raise ValueError(text.format(f"[{shown}]" if brackets else shown))


def as_json(placed: Mapping[TopicPartition, Placed]) -> str:
    """A plan in one line, in the order of the partitions."""
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "replicas": where.replicas,
            "log_dirs": where.log_dirs,
        }
        for each, where in sorted(placed.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def anywhere(replicas: tuple[int, ...]) -> Placed:
    """Returns replicas in any log directory."""
    return Placed(replicas, (ANY_DIRECTORY,) * len(replicas))


def repeated(items: Iterable[T]) -> list[T]:
    """Returns the items that occur more than once."""
    return [each for each, count in Counter(items).items() if count > 1]


def joined(items: Iterable[object]) -> str:
    """Formats items as a list."""
    return ",".join(map(str, items))
