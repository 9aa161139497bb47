"""DeleteGroups (42), versions 0 to 2: remove groups without members, and their offsets."""

from functools import partial

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when all of them are gone."""
    group_ids = list(request.body().groups_names)
    codes: dict[str, ErrorCode] = {}
    awaited = set(group_ids)

    def on_deleted(group_id: str, error: BrokerError | None) -> None:
        codes[group_id] = ErrorCode.NONE if error is None else error.code
        if codes.keys() == awaited:
            _answer(request, group_ids, codes)

    if not group_ids:
        _answer(request, group_ids, codes)
    for group_id in dict.fromkeys(group_ids):
        shared = context.share_groups.has(group_id)
        groups = context.share_groups if shared else context.groups
        groups.delete_group(group_id, request.guard(partial(on_deleted, group_id)))


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    group_ids = list(request.body().groups_names)
    _answer(request, group_ids, dict.fromkeys(group_ids, code))


def _answer(request: Request, group_ids: list[str], codes: dict[str, ErrorCode]) -> None:
    request.answer(
        results=[{"group_id": each, "error_code": codes[each]} for each in dict.fromkeys(group_ids)]
    )
