"""The end of a socket read: what its requests left to be done together is done.

Produce requests and offset commits gather, so that those of one read share one append for each
partition.
"""

from odradek.handlers import produce
from odradek.handlers.context import HandlerContext


def settle(context: HandlerContext) -> None:
    """Appends what is queued, and answers what can be answered."""
    produce.settle(context)
    context.groups.flush()
