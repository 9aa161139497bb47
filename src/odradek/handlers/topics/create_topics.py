"""CreateTopics (19), versions 2 to 7: the controller decides topic by topic.

Behaviour: -1 partitions or replicas (from version 4) take the broker's defaults; assignments
replace both. With `validate_only` nothing changes. When the answer says that a topic exists,
it can be appended to.

Version notes: 5 returns counts and settings of a created topic, 7 its id.
"""

from collections.abc import Sequence
from typing import Any, Final

from odradek.controller.results import CreatableTopic, CreateTopicResult
from odradek.errors import ErrorCode
from odradek.handlers.configs.config_fields import entry_fields
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.handlers.topics.mutations import charge_of
from odradek.protocol.messages import milliseconds

STRICT_VERSION: Final = 6


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when everything that could be created has been."""
    body = request.body()

    def on_created(results: Sequence[CreateTopicResult]) -> None:
        # A topic that is refused for being named twice is answered once.
        once = {result.name: result for result in results}
        request.answer(topics=(_result_fields(result) for result in once.values()))

    def create(wishes: list[CreatableTopic]) -> None:
        context.controller.create_topics(
            wishes,
            milliseconds(body.timeout),
            request.guard(on_created),
            validate_only=body.validate_only,
            defer=request.defer,
            charge=charge_of(request, strict_from=STRICT_VERSION),
        )

    in_list(request, map(_wish, body.topics), create)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every topic."""
    names = dict.fromkeys(topic.name for topic in request.body().topics)
    results = [CreateTopicResult(name, code, code.text) for name in names]
    request.answer(topics=[_result_fields(result) for result in results])


def _wish(topic: Any) -> CreatableTopic:
    return CreatableTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(each.partition_index, each.broker_ids) for each in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result_fields(result: CreateTopicResult) -> dict[str, object]:
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_code": result.error_code,
        "error_message": result.message,
        "num_partitions": result.num_partitions,
        "replication_factor": result.replication_factor,
        "configs": [entry_fields(entry) for entry in result.configs],
    }
