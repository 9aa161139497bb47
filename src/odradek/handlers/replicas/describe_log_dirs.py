"""DescribeLogDirs (35), versions 1 to 5: the logs in the data directories, and their sizes.

Behaviour: a null list of topics asks for everything. A directory that has failed is
KAFKA_STORAGE_ERROR and shows nothing more. The offset lag is what a replica is behind its
high watermark, so it is zero for a leader; a replica that moves to another directory is shown there
as a future one, whose lag is what is left to copy.

Version notes: 3 adds a top-level error, 4 the size and free space of the volume, 5 whether a
directory is closed to new replicas, which none is.
"""

from itertools import groupby
from os.path import abspath
from typing import Any, NamedTuple

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory

_Wanted = frozenset[TopicPartition] | None


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once: the sizes of logs are known, nothing is walked."""
    wanted = _wanted(request.body())
    manager = context.log_manager
    replicas = [_replica(log) for log in manager.logs() if _is_wanted(log, wanted)]
    for log in manager.futures.all():
        if _is_wanted(log, wanted):
            lag = context.replicas.log_dir_moves.offset_lag(log)
            replicas.append(_Replica(log, lag, is_future=True))
    request.answer(results=[_directory(directory, replicas) for directory in manager.directories])


class _Replica(NamedTuple):
    """A log, as a replica that may be behind."""

    log: Log
    offset_lag: int
    is_future: bool = False


def _replica(log: Log) -> _Replica:
    return _Replica(log, max(log.high_watermark - log.log_end_offset, 0))


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


def _is_wanted(log: Log, wanted: _Wanted) -> bool:
    return wanted is None or log.topic_partition in wanted


def _directory(directory: LogDirectory, replicas: list[_Replica]) -> dict[str, object]:
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
    own = [each for each in replicas if each.log.log_directory is directory]
    return {
        "log_dir": abspath(directory.path),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "topics": _topics(own),
    }


def _topics(replicas: list[_Replica]) -> list[dict[str, object]]:
    ordered = sorted(replicas, key=lambda each: each.log.topic_partition)
    return [
        {"name": topic, "partitions": [_partition(each) for each in group]}
        for topic, group in groupby(ordered, key=lambda each: each.log.topic_partition.topic)
    ]


def _partition(replica: _Replica) -> dict[str, object]:
    return {
        "partition_index": replica.log.topic_partition.partition,
        "partition_size": replica.log.segments.size_bytes,
        "offset_lag": replica.offset_lag,
        "is_future_key": replica.is_future,
    }
