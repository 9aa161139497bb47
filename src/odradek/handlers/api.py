"""`Api`, a row of the table: all facts about an API in one place.

Routing, ApiVersions, authorisation, quotas, metrics and the reference pages read it from here. So
no handler decides by itself who may call it or what a call costs: permissions for a request as a
whole are checked before its handler is called, and the table has the permission that is needed for
every resource that the request names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.model import AclOperation, ResourceType, TopicPartition

if TYPE_CHECKING:
    from odradek.handlers.context import HandlerContext
    from odradek.handlers.request import Request


Concerns = Callable[[TopicPartition], bool]
"""Whether a partition is one of those that are meant."""


class Permission(NamedTuple):
    """An operation on a kind of resource, which a caller must be allowed."""

    operation: AclOperation
    resource: ResourceType


class Cost(Enum):
    """The resource that a request uses besides time, which decides its quota."""

    REQUEST_TIME = "request_percentage"
    PRODUCED_BYTES = "producer_byte_rate"
    FETCHED_BYTES = "consumer_byte_rate"
    CONTROLLER_MUTATIONS = "controller_mutation_rate"


ANYBODY: Final = None


@dataclass(frozen=True, slots=True)
class Api:
    """A row of the table: an API, its served versions, its handler, the permission it needs.

    `fail` answers a request in the shape of this API's own response when its handler failed
    unexpectedly; an API whose responses have no place for such an error has none, and the
    connection is closed instead. `refuse` answers an error for the selected partitions and serves
    the others. `permission` is what a caller needs for each resource that the request is about, or
    `ANYBODY`; `cost` is what the request is charged for. An API whose handler may leave requests
    `batched` has `end_of_read`, which carries them out. An API that `is_hidden` is served, but not
    listed in ApiVersions. An API that `has_own_codec` decodes its frame by itself; all others have
    kio's messages (`Request.body`).
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    handle: "Callable[[HandlerContext, Request], None]"
    fail: "Callable[[Request, ErrorCode], None] | None" = None
    permission: Permission | None = ANYBODY
    cost: Cost = Cost.REQUEST_TIME
    end_of_read: "Callable[[HandlerContext], None] | None" = None
    is_hidden: bool = False
    refuse: "Callable[[HandlerContext, Request, ErrorCode, Concerns], None] | None" = None
    has_own_codec: bool = False

    def serves(self, version: int) -> bool:
        """Whether that version is advertised."""
        return self.min_version <= version <= self.max_version
