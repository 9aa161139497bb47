"""FindCoordinator (10), versions 0 to 6: which broker coordinates a group or transactional id.

Behaviour: the leader of the name's partition of `__consumer_offsets` or `__transaction_state`. The
topic is created with the first request; Kafka answers with an error and lets the client ask again,
here the response waits for the creation. The leader of a partition of `__share_group_state`
coordinates the state of a share partition, under a key of three parts.

Version notes: 1 adds the kind of key and error texts, 3 is flexible, 4 asks for many keys at
once, 6 knows share groups.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from odradek.coordinator.runtime.partitioning import partition_for
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import TopicImage
from odradek.model import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
BATCH_VERSION: Final = 4
SHARE_VERSION: Final = 6
CREATION_TIMEOUT_MS: Final = 5_000

_TOPICS: Final = {
    GROUP_KEY: GROUP_METADATA_TOPIC,
    TRANSACTION_KEY: TRANSACTION_STATE_TOPIC,
    SHARE_KEY: SHARE_GROUP_STATE_TOPIC,
}
_SHARE_KEY: Final = re.compile(r".+:[\w-]{22}:\d{1,10}", re.ASCII | re.DOTALL)
_NOWHERE: Final[dict[str, object]] = {"node_id": -1, "host": "", "port": -1}


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once, or when the internal topic has been created."""
    body = request.body()
    kind = getattr(body, "key_type", GROUP_KEY)
    topic = _TOPICS.get(kind)
    if topic is None:
        fail(request, ErrorCode.INVALID_REQUEST)
    elif not _may_ask(kind, request):
        failed = {**_NOWHERE, "error_code": ErrorCode.INVALID_REQUEST, "error_message": None}
        _answer(request, [{**failed, "key": key} for key in _keys(body, request)])
    elif context.metadata.image.topic(topic) is not None:
        _answer_keys(context, request, topic)
    else:
        context.controller.auto_create_topics(
            [topic],
            CREATION_TIMEOUT_MS,
            # The metadata tells whether it is there.
            request.guard(lambda _results: _answer_keys(context, request, topic)),
        )


def _may_ask(kind: int, request: Request) -> bool:
    """Whether the version knows the kind of key, and the keys are well-formed: that of a share
    partition is a group's name, a topic's id in 22 letters, and a partition."""
    if kind != SHARE_KEY:
        return True
    keys = _keys(request.body(), request)
    return request.api_version >= SHARE_VERSION and all(map(_SHARE_KEY.fullmatch, keys))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every key with an error."""
    failed = {**_NOWHERE, "error_code": code, "error_message": code.text}
    _answer(request, [{**failed, "key": key} for key in _keys(request.body(), request)])


def _keys(body: Any, request: Request) -> list[str]:
    return list(body.coordinator_keys) if request.api_version >= BATCH_VERSION else [body.key]


def _answer_keys(context: HandlerContext, request: Request, name: str) -> None:
    topic = context.metadata.image.topic(name)
    _answer(
        request,
        (
            {"key": key, **_coordinator(context, topic, key, request.exchange.listener_name)}
            for key in _keys(request.body(), request)
        ),
    )


def _coordinator(
    context: HandlerContext, topic: TopicImage | None, key: str, listener_name: str
) -> dict[str, object]:
    """The address of a name's coordinator; none while its partition has no leader."""
    if topic is not None:
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = context.metadata.image.brokers.get(partition.leader)
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            return {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port}
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {**_NOWHERE, "error_code": code, "error_message": code.text}


def _answer(request: Request, coordinators: Iterable[dict[str, object]]) -> None:
    if request.api_version >= BATCH_VERSION:
        request.answer(coordinators=coordinators)
    else:
        only = {"error_message": ErrorCode.NONE.name, **next(iter(coordinators))}
        del only["key"]
        request.answer(**only)
