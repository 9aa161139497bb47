"""ListPartitionReassignments (46), version 0: the reassignments in progress.

Behaviour: partitions that are unknown, or not being reassigned, are left out. Null topics ask for
all.
"""

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once, with what the metadata says."""
    topics = request.body().topics
    wanted = None if topics is None else {each.name: each.partition_indexes for each in topics}
    request.answer(
        topics=[
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "replicas": partition.replicas,
                        "adding_replicas": partition.adding,
                        "removing_replicas": partition.removing,
                    }
                    for partition in partitions
                ],
            }
            for name, partitions in context.controller.reassigner.in_progress(wanted).items()
        ]
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error; the partitions that were named have no replicas then, or are left out
    where another broker is to be asked."""
    topics = [
        {
            "name": topic.name,
            "partitions": [{"partition_index": index} for index in topic.partition_indexes],
        }
        for topic in request.body().topics or ()
        if code is not ErrorCode.NOT_CONTROLLER
    ]
    request.answer(error_code=code, error_message=code.text, topics=topics)
