"""ListPartitionReassignments (46), version 0: the reassignments in progress.

Behaviour: partitions that are unknown, or not being reassigned, are left out. Null topics ask for
all.
"""

from collections.abc import Iterable, Mapping, Sequence

from odradek.controller.replicas.reassignments import reassignments_in_progress
from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.metadata.image import PartitionImage


def handle(context: HandlerContext, request: Request) -> None:
    """Answers with what the metadata says now."""
    topics = request.body().topics
    image = context.metadata.image
    asked: Iterable[tuple[str, frozenset[int] | None]]
    if topics is None:
        asked = ((name, None) for name in image.topics)
    else:
        wanted = {each.name: each.partition_indexes for each in topics}
        asked = ((name, frozenset(indexes)) for name, indexes in wanted.items())
    found: dict[str, list[PartitionImage]] = {}

    def look(each: tuple[str, frozenset[int] | None]) -> None:
        moving = reassignments_in_progress(image, *each)
        if moving:
            found[each[0]] = moving

    do_in_slices(request, asked, look, lambda: _answer(request, found))


def _answer(request: Request, found: Mapping[str, Sequence[PartitionImage]]) -> None:
    request.answer(
        topics=(
            {"name": name, "partitions": (_fields(each) for each in partitions)}
            for name, partitions in found.items()
        )
    )


def _fields(partition: PartitionImage) -> dict[str, object]:
    return {
        "partition_index": partition.partition,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
    }


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error; named partitions have no replicas then, or are left out if another
    broker has to be asked."""
    topics = [
        {
            "name": topic.name,
            "partitions": [{"partition_index": index} for index in topic.partition_indexes],
        }
        for topic in request.body().topics or ()
        if code is not ErrorCode.NOT_CONTROLLER
    ]
    request.answer(error_code=code, error_message=code.text, topics=topics)
