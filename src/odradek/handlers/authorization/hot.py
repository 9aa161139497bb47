"""The rules of the APIs that read their requests themselves: their handlers ask, entry by entry."""

import logging
from typing import Final

from odradek.handlers.authorization.access import REFUSALS, Guarded
from odradek.handlers.groups import offset_commit
from odradek.handlers.records import fetch, list_offsets, produce
from odradek.model import AclOperation, ResourceType, TopicPartition
from odradek.protocol.direct.heartbeat import decode_heartbeat_request
from odradek.security.authorizer.authorizer import AUDIT_LOG, slot

_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_PLACE_OF_WRITE: Final = slot(_WRITE, _TOPIC)
_PLACE_OF_READ: Final = slot(_READ, _TOPIC)


def _produce(guarded: Guarded) -> None:
    topics = _Topics(guarded, _WRITE, _PLACE_OF_WRITE)
    produce.handle_allowed(guarded.context, guarded.request, topics.may_transact, topics.is_denied)


def _fetch(guarded: Guarded) -> None:
    topics = _Topics(guarded, _READ, _PLACE_OF_READ)
    fetch.handle_allowed(guarded.context, guarded.request, topics.may_follow, topics.is_denied)


def _list_offsets(guarded: Guarded) -> None:
    topics = _Topics(guarded, AclOperation.DESCRIBE, slot(AclOperation.DESCRIBE, _TOPIC))
    list_offsets.handle_allowed(guarded.context, guarded.request, topics.is_denied)


def _offset_commit(guarded: Guarded) -> None:
    offset_commit.handle_allowed(
        guarded.context,
        guarded.request,
        lambda group_id: guarded.may(_READ, _GROUP, group_id),
        lambda topic: not guarded.may(_READ, _TOPIC, topic),
    )


def _heartbeat(guarded: Guarded) -> None:
    request = guarded.request
    group_id, *_ = decode_heartbeat_request(
        request.exchange.frame, request.api_version, request.body_position
    )
    if guarded.may(_READ, _GROUP, group_id):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_GROUP])


class _Topics:
    """The access of one request to the topics that it names; each is logged once."""

    __slots__ = ("_denied", "_guarded", "_operation", "_place", "_remembers")

    def __init__(self, guarded: Guarded, operation: AclOperation, place: int) -> None:
        self._guarded = guarded
        self._operation = operation
        self._place = place
        # Allowed decisions are not asked for again, unless the audit log shows them.
        self._remembers = not AUDIT_LOG.isEnabledFor(logging.DEBUG)
        self._denied: dict[str, bool] | None = None

    def is_denied(self, partition: TopicPartition) -> bool:
        """Whether the caller may not do this with a partition's topic."""
        topic = partition.topic
        if self._remembers and self._guarded.caller.known_to_be_allowed(self._place, topic):
            return False
        # A topic without a name has an unknown id.
        return bool(topic) and self._ask(topic)

    def may_transact(self, transactional_id: str) -> bool:
        """Whether the caller may write in this transaction."""
        return self._guarded.may(_WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def may_follow(self) -> bool:
        """Whether the caller may copy partitions, as brokers do."""
        return self._guarded.may_in_cluster(AclOperation.CLUSTER_ACTION)

    def _ask(self, topic: str) -> bool:
        if self._denied is None:
            self._denied = {}
        denied = self._denied.get(topic)
        if denied is None:
            denied = not self._guarded.may(self._operation, _TOPIC, topic)
            self._denied[topic] = denied
        return denied


RULES: Final = {0: _produce, 1: _fetch, 2: _list_offsets, 8: _offset_commit, 12: _heartbeat}
