"""FindCoordinator (10), versions 0 to 6: which broker coordinates a group.

Behaviour: the leader of the group's partition of `__consumer_offsets`. The topic is made when
somebody first asks; where Kafka answers with an error and lets the client ask again, the answer
here waits for the creation. Transactions and share groups are not served: they are answered
with UNSUPPORTED_VERSION, which clients take for final, as they do for InitProducerId.

Version notes: 1 adds the kind of key and error texts, 3 is flexible, 4 asks for many keys at
once, 6 knows share groups.
"""

from typing import Any, Final

from odradek.coordinator.runtime.partitioning import partition_for
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import TopicImage
from odradek.model import GROUP_METADATA_TOPIC

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
BATCH_VERSION: Final = 4
SHARE_VERSION: Final = 6
CREATION_TIMEOUT_MS: Final = 5_000

_NOWHERE: Final[dict[str, object]] = {"node_id": -1, "host": "", "port": -1}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once, or when the internal topic has been created."""
    body = request.body()
    kind = getattr(body, "key_type", GROUP_KEY)
    if kind != GROUP_KEY:
        known = kind == TRANSACTION_KEY or (
            kind == SHARE_KEY and request.api_version >= SHARE_VERSION
        )
        fail(request, ErrorCode.UNSUPPORTED_VERSION if known else ErrorCode.INVALID_REQUEST)
    elif context.metadata.image.topic(GROUP_METADATA_TOPIC) is not None:
        _answer_keys(context, request)
    else:
        context.controller.auto_create_topics(
            [GROUP_METADATA_TOPIC],
            CREATION_TIMEOUT_MS,
            request.guard(lambda _results: _answer_keys(context, request)),
        )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every key with an error."""
    failed = {**_NOWHERE, "error_code": code, "error_message": code.text}
    _answer(request, [{**failed, "key": key} for key in _keys(request.body(), request)])


def _keys(body: Any, request: Request) -> list[str]:
    return list(body.coordinator_keys) if request.api_version >= BATCH_VERSION else [body.key]


def _answer_keys(context: HandlerContext, request: Request) -> None:
    topic = context.metadata.image.topic(GROUP_METADATA_TOPIC)
    _answer(
        request,
        [
            {"key": key, **_coordinator(context, topic, key, request.exchange.listener_name)}
            for key in _keys(request.body(), request)
        ],
    )


def _coordinator(
    context: HandlerContext, topic: TopicImage | None, group_id: str, listener_name: str
) -> dict[str, object]:
    """Where the group's coordinator can be reached; nowhere while its partition has no leader."""
    if topic is not None:
        partition = topic.partitions[partition_for(group_id, len(topic.partitions))]
        broker = context.metadata.image.brokers.get(partition.leader)
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            return {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port}
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {**_NOWHERE, "error_code": code, "error_message": code.text}


def _answer(request: Request, coordinators: list[dict[str, object]]) -> None:
    if request.api_version >= BATCH_VERSION:
        request.answer(coordinators=coordinators)
    else:
        only = coordinators[0]
        del only["key"]
        request.answer(**only)
