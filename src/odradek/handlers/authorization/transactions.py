"""The rules of the APIs about producers and transactions."""

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.authorization.topics import by_topic
from odradek.handlers.transactions import add_partitions_to_txn
from odradek.model import AclOperation, ResourceType

_WRITE, _READ, _DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_ID: Final = ResourceType.TRANSACTIONAL_ID
_CLUSTER: Final = ResourceType.CLUSTER


def _init_producer_id(guarded: Guarded) -> None:
    """Without a transactional id, a producer that may write to any topic gets a producer id."""
    body = guarded.request.body()
    if body.transactional_id is not None:
        _of_one_transaction(guarded)
    elif _may_write_at_all(guarded):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_CLUSTER])


def _may_write_at_all(guarded: Guarded) -> bool:
    by_cluster = guarded.may_see_in_cluster(AclOperation.IDEMPOTENT_WRITE)
    return by_cluster or guarded.caller.may_on_any(_WRITE, _TOPIC)


def _of_one_transaction(guarded: Guarded) -> None:
    if guarded.may(_WRITE, _ID, guarded.request.body().transactional_id):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_ID])


def _add_partitions(guarded: Guarded) -> None:
    """From version 4 on brokers send the request; they have checked the topics of their
    producers."""
    body = guarded.request.body()
    if guarded.request.api_version >= add_partitions_to_txn.BATCH_VERSION:
        if guarded.may_in_cluster(AclOperation.CLUSTER_ACTION):
            guarded.serve()
        else:
            guarded.request.answer(error_code=REFUSALS[_CLUSTER])
        return
    if not guarded.may(_WRITE, _ID, body.v3_and_below_transactional_id):
        guarded.fail(REFUSALS[_ID])
        return
    denied = guarded.denied(_WRITE, _TOPIC, (topic.name for topic in body.v3_and_below_topics))
    if denied:
        add_partitions_to_txn.refuse_topics(guarded.context, guarded.request, denied)
    else:
        guarded.serve()


def _add_offsets(guarded: Guarded) -> None:
    body = guarded.request.body()
    if not guarded.may(_WRITE, _ID, body.transactional_id):
        guarded.fail(REFUSALS[_ID])
    elif not guarded.may(_READ, _GROUP, body.group_id):
        guarded.fail(REFUSALS[_GROUP])
    else:
        guarded.serve()


def _commit_offsets(guarded: Guarded) -> None:
    body = guarded.request.body()
    if not guarded.may(_WRITE, _ID, body.transactional_id):
        guarded.fail(REFUSALS[_ID])
    elif not guarded.may(_READ, _GROUP, body.group_id):
        guarded.fail(REFUSALS[_GROUP])
    else:
        by_topic(_name, _READ, "topics")(guarded)


def _write_markers(guarded: Guarded) -> None:
    allowed = guarded.may_see_in_cluster(AclOperation.ALTER)
    if allowed or guarded.may_in_cluster(AclOperation.CLUSTER_ACTION):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[_CLUSTER])


def _describe(guarded: Guarded) -> None:
    ids = guarded.request.body().transactional_ids

    def serve(denied: Collection[str]) -> None:
        field = "transaction_states"
        refused: list[Fields] = []
        if denied:
            left = tuple(each for each in ids if each in denied)
            refused = guarded.refusals(field, REFUSALS[_ID], transactional_ids=left)
        guarded.amend_each(field, partial(_hide_topics, guarded))
        allowed = [each for each in ids if each not in denied]
        guarded.serve_allowed("transactional_ids", allowed, field, refused)

    guarded.find_denied(_DESCRIBE, _ID, ids, serve)


def _hide_topics(guarded: Guarded, state: Fields) -> None:
    state["topics"] = [
        topic
        for topic in state.get("topics", ())
        if guarded.may_see(_DESCRIBE, _TOPIC, topic["topic"])
    ]


def _list(guarded: Guarded) -> None:
    guarded.keep(
        "transaction_states",
        lambda state: guarded.may_see(_DESCRIBE, _ID, state["transactional_id"]),
    )
    guarded.serve()


def _name(topic: Any) -> str:
    return str(topic.name)


RULES: Final = {
    22: _init_producer_id,
    24: _add_partitions,
    25: _add_offsets,
    26: _of_one_transaction,
    27: _write_markers,
    28: _commit_offsets,
    65: _describe,
    66: _list,
}
