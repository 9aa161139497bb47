"""DescribeLogDirs (35), versions 1 to 5: the logs in the data directories, and their sizes.

Behaviour: a null list of topics asks for everything. A directory that has failed is
KAFKA_STORAGE_ERROR and shows nothing more. The offset lag is what a replica is behind its
high watermark, so it is zero for a leader; a replica that moves to another directory is shown there
as a future one, whose lag is what is left to copy.

Version notes: 3 adds a top-level error, 4 the size and free space of the volume, 5 whether a
directory is closed to new replicas, which none is.
"""

from collections.abc import Callable
from itertools import chain, repeat
from os.path import abspath
from typing import Any, NamedTuple, TypeAlias

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.model import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory

_Wanted = frozenset[TopicPartition] | None


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the logs that there are now: their sizes are known, nothing is walked."""
    wanted = _wanted(request.body())
    manager = context.log_manager
    replicas: dict[str, _Replicas] = {each.path: {} for each in manager.directories}

    def note(log: Log, offset_lag: Callable[[Log], int], is_future: bool) -> None:
        topic, partition = log.topic_partition
        if wanted is None or log.topic_partition in wanted:
            replica = _Replica(partition, log.segments.size_bytes, offset_lag(log), is_future)
            replicas[log.log_directory.path].setdefault(topic, []).append(replica)

    def answer() -> None:
        directories = manager.directories
        request.answer(results=(_directory(each, replicas[each.path]) for each in directories))

    future_lag = context.replicas.log_dir_moves.offset_lag
    logs = zip(manager.logs(), repeat(_lag), repeat(False))
    futures = zip(manager.futures.all(), repeat(future_lag), repeat(True))
    do_in_slices(request, chain(logs, futures), lambda each: note(*each), answer)


class _Replica(NamedTuple):
    """A log, as a replica that may be behind."""

    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


_Replicas: TypeAlias = dict[str, list[_Replica]]
"""The replicas in a directory, by their topics."""


def _lag(log: Log) -> int:
    return max(log.high_watermark - log.log_end_offset, 0)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no directory."""
    request.answer(error_code=code)


def _wanted(body: Any) -> _Wanted:
    if body.topics is None:
        return None
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in body.topics
        for partition in topic.partitions
    )


def _directory(directory: LogDirectory, replicas: _Replicas) -> dict[str, object]:
    failed: dict[str, object] = {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
        "log_dir": abspath(directory.path),
    }
    if directory.failure is not None:
        return failed
    try:
        total_bytes, usable_bytes = directory.file_system.space(directory.path)
    except OSError:
        return failed
    topics = (
        {"name": name, "partitions": [_partition(each) for each in sorted(replicas[name])]}
        for name in sorted(replicas)
    )
    return {
        "log_dir": abspath(directory.path),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "topics": topics,
    }


def _partition(replica: _Replica) -> dict[str, object]:
    return {
        "partition_index": replica.partition,
        "partition_size": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }
