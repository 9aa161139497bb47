"""DeleteGroups (42), versions 0 to 2: remove groups without members, and their offsets."""

from functools import partial

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when all groups are deleted or refused."""
    group_ids = list(request.body().groups_names)
    codes: dict[str, ErrorCode] = {}
    awaited = set(group_ids)

    def on_deleted(group_id: str, error: BrokerError | None) -> None:
        codes[group_id] = ErrorCode.NONE if error is None else error.code
        if codes.keys() == awaited:
            _answer(request, group_ids, codes)

    def delete(group_id: str) -> None:
        shared = context.share_groups.has(group_id)
        groups = context.share_groups if shared else context.groups
        groups.delete_group(group_id, request.guard(partial(on_deleted, group_id)))

    if group_ids:
        do_in_slices(request, dict.fromkeys(group_ids), delete)
    else:
        _answer(request, group_ids, codes)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers every group with an error."""
    group_ids = list(request.body().groups_names)
    _answer(request, group_ids, dict.fromkeys(group_ids, code))


def _answer(request: Request, group_ids: list[str], codes: dict[str, ErrorCode]) -> None:
    once = dict.fromkeys(group_ids)
    request.answer(results=({"group_id": each, "error_code": codes[each]} for each in once))
