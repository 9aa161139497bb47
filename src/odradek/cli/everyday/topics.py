"""`odradek topics` without an action: a table of all topics, or of those that a name or a pattern
selects, with their records and sizes.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.cli.everyday.flags import default_servers, settings_of
from odradek.cli.everyday.words import number_words, size_words, table_lines
from odradek.cli.terminal import takes_colours, tell
from odradek.cli.tools.connection import name_pattern, print_json, run_async
from odradek.client import Admin
from odradek.client.core.consuming.list_offsets import EARLIEST, LATEST
from odradek.client.core.metadata import TopicMetadata
from odradek.client.errors import KafkaError
from odradek.client.settings import ADMIN_SETTINGS
from odradek.errors import text_of
from odradek.model import TopicPartition
from odradek.suggestions import no_topic

# Actions, which users of other tools type as words.
_FLAGS: Final = ("alter", "create", "delete", "describe", "list")


class TopicSummary(NamedTuple):
    """A topic; `records` counts offsets, and the size counts all replicas; None where no broker
    tells.
    """

    topic: str
    partitions: int
    replicas: int
    records: int | None
    size_bytes: int | None


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; `--topic`, `--exclude-internal` and `--format` are the tool's. 1 when there
    is no topic of a name."""
    if arguments.bootstrap_server is None:
        arguments.bootstrap_server = default_servers()

    async def work() -> int:
        async with Admin(config=settings_of(arguments, ADMIN_SETTINGS)) as admin:
            topics = await admin.list_topics()
            patterns = [arguments.topic] if arguments.topic else arguments.other_words
            wanted = {
                name: topic
                for name, topic in sorted(topics.items())
                if _is_wanted(name, patterns)
                and not (arguments.exclude_internal and topic.is_internal)
            }
            missing = [each for each in patterns if not any(_is_wanted(n, [each]) for n in topics)]
            found = await _summaries(admin, wanted)
        if arguments.output == "json":
            print_json([each._asdict() for each in found])
        elif found or not missing:
            print("\n".join(_table(found)))
        for name in missing:
            is_flag = name in _FLAGS
            tell(f"{no_topic(name, topics)}{f'; a flag is --{name}' if is_flag else ''}")
        return 1 if missing else 0

    return run_async(work, lambda error: tell(text_of(error)))


def _is_wanted(topic: str, patterns: list[str]) -> bool:
    return not patterns or any(name_pattern(each)(topic) for each in patterns)


async def _summaries(admin: Admin, topics: Mapping[str, TopicMetadata]) -> list[TopicSummary]:
    partitions = [each for topic in topics.values() for each in topic.partitions]
    starts = await _offsets(admin, partitions, EARLIEST)
    ends = await _offsets(admin, partitions, LATEST)
    sizes: dict[str, int] = {}
    for found in (await admin.describe_log_dirs()).values():
        for directory in () if isinstance(found, KafkaError) else found:
            for (name, _), replica in directory.replicas.items():
                sizes[name] = sizes.get(name, 0) + replica.size_bytes
    return [
        TopicSummary(
            name,
            len(topic.partitions),
            max((len(each.replicas) for each in topic.partition_metadata.values()), default=0),
            sum(ends[each] - starts[each] for each in topic.partitions)
            if starts.keys() & ends.keys() >= set(topic.partitions)
            else None,
            sizes.get(name),
        )
        for name, topic in topics.items()
    ]


async def _offsets(
    admin: Admin, partitions: list[TopicPartition], question: int
) -> dict[TopicPartition, int]:
    answers = await admin.list_offsets(dict.fromkeys(partitions, question))
    return {
        partition: answer.offset
        for partition, answer in answers.items()
        if not isinstance(answer, KafkaError)
    }


def _table(topics: list[TopicSummary]) -> list[str]:
    rows = [
        (
            each.topic,
            str(each.partitions),
            str(each.replicas),
            number_words(each.records),
            size_words(each.size_bytes),
        )
        for each in topics
    ]
    titles = ("TOPIC", "#PARTITIONS", "#REPLICAS", "#RECORDS", "#SIZE")
    return table_lines(titles, rows, colours=takes_colours(sys.stdout))
