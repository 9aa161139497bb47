"""AlterReplicaLogDirs (34), versions 1 and 2: moves replicas between directories of this broker.

Behaviour: answered when the moves have begun; DescribeLogDirs tells how far they are
(`replication.alter_log_dirs` does them). A replica that is already in the directory is done; its
move elsewhere, if any, is given up. A directory that is not in `log.dirs` is LOG_DIR_NOT_FOUND for
any partition, a failed one KAFKA_STORAGE_ERROR; an unknown partition is UNKNOWN_TOPIC_OR_PARTITION,
one without a replica here REPLICA_NOT_AVAILABLE: its replica will be created there. The last of
several requests for one partition counts.
"""

from collections.abc import Callable

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.model import TopicPartition


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the moves have begun."""
    move = context.replicas.log_dir_moves.alter

    def outcome(topic_partition: TopicPartition, path: str) -> ErrorCode:
        try:
            move(topic_partition, path)
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    _answer(request, outcome)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every partition with an error."""
    _answer(request, lambda _partition, _path: code)


def _answer(request: Request, outcome: Callable[[TopicPartition, str], ErrorCode]) -> None:
    requests = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.body().dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[dict[str, object]]] = {}

    def alter(requested: tuple[TopicPartition, str]) -> None:
        topic, index = requested[0]
        partition: dict[str, object] = {"partition_index": index}
        partition["error_code"] = outcome(*requested)
        topics.setdefault(topic, []).append(partition)

    def answer() -> None:
        results = ({"topic_name": name, "partitions": each} for name, each in topics.items())
        request.answer(results=results)

    do_in_slices(request, requests.items(), alter, answer)
