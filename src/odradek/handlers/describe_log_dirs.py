"""DescribeLogDirs (35), versions 1 to 5: what lies in the data directories, and how large.

Behaviour: a null list of topics asks for everything. A directory that has failed is
KAFKA_STORAGE_ERROR and shows nothing more. The offset lag is what a replica is behind its
high watermark, so it is zero for a leader; there are no future replicas.

Version notes: 3 adds a top-level error, 4 the size of the volume and what is free of it, 5
whether a directory is closed to new replicas, which none is.
"""

from itertools import groupby
from os.path import abspath
from typing import Any

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
    logs = [log for log in context.log_manager.logs() if _is_wanted(log, wanted)]
    request.answer(
        results=[_directory(directory, logs) for directory in context.log_manager.directories]
    )


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


def _directory(directory: LogDirectory, logs: list[Log]) -> dict[str, object]:
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
    own = [log for log in logs if log.log_directory is directory]
    return {
        "log_dir": abspath(directory.path),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
        "topics": _topics(own),
    }


def _topics(logs: list[Log]) -> list[dict[str, object]]:
    ordered = sorted(logs, key=lambda log: log.topic_partition)
    return [
        {"name": topic, "partitions": [_partition(log) for log in group]}
        for topic, group in groupby(ordered, key=lambda log: log.topic_partition.topic)
    ]


def _partition(log: Log) -> dict[str, object]:
    return {
        "partition_index": log.topic_partition.partition,
        "partition_size": log.segments.size_bytes,
        "offset_lag": max(log.high_watermark - log.log_end_offset, 0),
    }
