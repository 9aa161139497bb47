"""`guarded`: the table of APIs with the authorizer before each handler.

An API with its own rule (`RULES`) follows that. For all others the row has the operation on the
cluster that the caller needs; if the caller lacks it, the API's `fail` answers.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

from odradek.acl import CLUSTER_NAME
from odradek.handlers.acls.acl_fields import acl_filter, binding
from odradek.handlers.api import ANYBODY, Api
from odradek.handlers.authorization import (
    configs,
    groups,
    hot,
    share,
    tokens,
    topics,
    transactions,
)
from odradek.handlers.authorization.access import REFUSALS, Guard, Guarded
from odradek.handlers.authorization.operations import tell_cluster_operations
from odradek.handlers.long_requests import do_in_slices
from odradek.model import AclOperation, ResourceType
from odradek.security.authorizer import Authorizer, Caller

_LOG = logging.getLogger(__name__)


def _ask_for_all(guarded: Guarded) -> None:
    permission = guarded.row.permission
    assert permission is not None, f"{guarded.row.name} is for everybody"
    assert permission.resource is ResourceType.CLUSTER, f"{guarded.row.name} needs a rule"
    if guarded.may_in_cluster(permission.operation):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[permission.resource])


def _ask_for_acls(
    entries: Callable[[Any], Iterable[Any]], read: Callable[[Any], object]
) -> Callable[[Guarded], None]:
    """Refuses a malformed request by ending the connection, for any caller."""

    def rule(guarded: Guarded) -> None:
        request = guarded.request
        do_in_slices(request, entries(request.body()), read, lambda: _ask_who_alters(guarded))

    return rule


def _ask_who_alters(guarded: Guarded) -> None:
    if guarded.may_see_in_cluster(AclOperation.ALTER):
        guarded.amend(lambda _fields: _warn_who_is_out(guarded.caller))
    _ask_for_all(guarded)


def _warn_who_is_out(caller: Caller) -> None:
    """Warns if a caller has lost its permission to change ACLs by its own request."""
    if not caller.anew().may_see(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        _LOG.warning(
            "%s has changed the ACLs and may not change them any more: name it in super.users, "
            "or have a super user allow it Alter on the cluster",
            caller.principal,
        )


def _ask_for_quotas(guarded: Guarded) -> None:
    if guarded.may_in_cluster(AclOperation.DESCRIBE_CONFIGS):
        guarded.serve()
    else:
        guarded.fail(REFUSALS[ResourceType.CLUSTER], error_message=None)


def _ask_for_scram_users(guarded: Guarded) -> None:
    """As in Kafka the refusal has an entry without a name for every named user."""
    code = REFUSALS[ResourceType.CLUSTER]
    if guarded.may_in_cluster(AclOperation.DESCRIBE):
        guarded.serve()
    else:
        nobody = {"user": "", "error_code": code, "error_message": None, "credential_infos": ()}
        results = [nobody for _ in guarded.request.body().users or ()]
        guarded.request.answer(error_code=code, error_message=None, results=results)


RULES: Final[Mapping[int, Callable[[Guarded], None]]] = {
    **hot.RULES,
    **topics.RULES,
    **groups.RULES,
    **transactions.RULES,
    **configs.RULES,
    **share.RULES,
    **tokens.RULES,
    29: _ask_for_acls(lambda body: [body], acl_filter),
    30: _ask_for_acls(attrgetter("creations"), binding),
    31: _ask_for_acls(attrgetter("filters"), acl_filter),
    48: _ask_for_quotas,
    50: _ask_for_scram_users,
    60: tell_cluster_operations,
}
"""By API key."""


def guarded(apis: Mapping[int, Api], authorizer: Authorizer) -> dict[int, Api]:
    """The rows of the table, each behind the authorizer."""
    return {
        key: row
        if row.permission is ANYBODY
        else replace(row, handle=Guard(row, authorizer, RULES.get(key, _ask_for_all)))
        for key, row in apis.items()
    }
