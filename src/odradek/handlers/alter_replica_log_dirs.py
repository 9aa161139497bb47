"""AlterReplicaLogDirs (34), versions 1 and 2: moves replicas between directories of this broker.

Behaviour: a replica that lies where it is to lie is done. A directory that is not among `log.dirs`
is LOG_DIR_NOT_FOUND whatever the partition is, one that has failed KAFKA_STORAGE_ERROR, and a
partition that is not here UNKNOWN_TOPIC_OR_PARTITION. Replicas cannot be moved yet: that is
REPLICA_NOT_AVAILABLE, and logged.
"""

import logging
from os.path import abspath
from typing import Any, Final

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.model import TopicPartition

_LOG: Final = logging.getLogger(__name__)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers every partition at once."""
    _answer(request, lambda path, topic_partition: _outcome(context, path, topic_partition))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    _answer(request, lambda _path, _partition: code)


def _answer(request: Request, outcome: Any) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for directory in request.body().dirs:
        for topic in directory.topics:
            partitions = topics.setdefault(topic.name, [])
            for index in topic.partitions:
                code = outcome(directory.path, TopicPartition(topic.name, index))
                partitions.append({"partition_index": index, "error_code": code})
    request.answer(
        results=[{"topic_name": name, "partitions": each} for name, each in topics.items()]
    )


def _outcome(context: HandlerContext, path: str, topic_partition: TopicPartition) -> ErrorCode:
    directories = {abspath(each.path): each for each in context.log_manager.directories}
    directory = directories.get(path)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    log = context.log_manager.get(topic_partition)
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if log.log_directory is directory:
        return ErrorCode.NONE
    _LOG.warning("%s stays in %s: replicas cannot be moved yet", topic_partition, path)
    return ErrorCode.REPLICA_NOT_AVAILABLE
