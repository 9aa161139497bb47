"""The rules of the APIs about settings: of topics and groups by their names, of all else by the
cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from odradek.acl import CLUSTER_NAME
from odradek.errors import ErrorCode
from odradek.handlers.authorization.access import REFUSALS, Fields, Guarded
from odradek.handlers.long_requests import in_list
from odradek.model import ConfigResourceType, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_OWNERS: Final = {
    ConfigResourceType.TOPIC: ResourceType.TOPIC,
    ConfigResourceType.GROUP: ResourceType.GROUP,
    ConfigResourceType.BROKER: _CLUSTER,
    ConfigResourceType.BROKER_LOGGER: _CLUSTER,
    ConfigResourceType.CLIENT_METRICS: _CLUSTER,
}


def _by_resource(answered: str) -> Callable[[Guarded], None]:
    def serve(guarded: Guarded, codes: list[ErrorCode | None]) -> None:
        pairs = list(zip(guarded.request.body().resources, codes, strict=True))
        refused: list[Fields] = []
        for code in dict.fromkeys(codes):
            if code is not None:
                denied = tuple(each for each, found in pairs if found is code)
                refused += guarded.refusals(answered, code, resources=denied)
        allowed = [each for each, code in pairs if code is None]
        guarded.serve_allowed("resources", allowed, answered, refused)

    def rule(guarded: Guarded) -> None:
        asked = guarded.request.body().resources
        in_list(guarded.request, map(partial(_refusal, guarded), asked), partial(serve, guarded))

    return rule


def _refusal(guarded: Guarded, resource: Any) -> ErrorCode | None:
    permission = guarded.row.permission
    assert permission is not None, "settings are not for everybody"
    owner = _OWNERS.get(resource.resource_type)
    if owner is None:
        return None  # the handler knows no resources of that type
    name = CLUSTER_NAME if owner is _CLUSTER else resource.resource_name
    return None if guarded.may(permission.operation, owner, name) else REFUSALS[owner]


RULES: Final = {
    32: _by_resource("results"),
    33: _by_resource("responses"),
    44: _by_resource("responses"),
}
