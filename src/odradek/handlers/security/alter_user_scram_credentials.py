"""AlterUserScramCredentials (51), version 0: sets and removes users that log in by SCRAM.

Behaviour: see `security.scram_users`. The client salts the password, so a broker never sees it; the
broker keeps only what verifies a login. Users are answered one by one.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from odradek.controller.slices import OnSlice, slice_by_slice
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.long_requests import do_in_slices
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage

if TYPE_CHECKING:
    from collections.abc import Mapping


def handle(context: HandlerContext, request: Request) -> None:
    """Answers when the credentials are committed."""
    # As in DescribeUserScramCredentials: imported only if needed.
    from odradek.security import scram_users

    by_user: dict[str, list[scram_users.Alteration]] = {}

    def note(each: scram_users.Alteration) -> None:
        by_user.setdefault(each.user, []).append(each)

    def alter(users: Sequence[str], on_some: OnSlice[dict[str, object]]) -> None:
        asked = [each for user in users for each in by_user[user]]
        wrong: dict[str, BrokerError] = {}

        def plan(image: MetadataImage) -> "Mapping[str, Mapping[str, str | None]]":
            wrong.update(scram_users.mistakes(image, asked))
            return scram_users.altered(each for each in asked if each.user not in wrong)

        def on_done(outcome: BrokerError | None) -> None:
            on_some(_result(user, wrong.get(user, outcome)) for user in users)

        context.controller.alter_users(plan, request.guard(on_done))

    def answer(results: list[dict[str, object]]) -> None:
        request.answer(results=results)

    def alter_all() -> None:
        slice_by_slice(list(by_user), alter, answer, request.defer)

    body = request.body()
    deletions = (scram_users.Deletion(each.name, each.mechanism) for each in body.deletions)
    upsertions = (
        scram_users.Upsertion(
            each.name, each.mechanism, each.iterations, each.salt, each.salted_password
        )
        for each in body.upsertions
    )
    asked: Iterator[scram_users.Alteration] = chain(deletions, upsertions)
    do_in_slices(request, asked, note, alter_all)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every user."""
    request.answer(results=[_result(name, BrokerError(code)) for name in _names(request.body())])


def _names(body: Any) -> list[str]:
    return list(dict.fromkeys(each.name for each in (*body.deletions, *body.upsertions)))


def _result(name: str, error: BrokerError | None) -> dict[str, object]:
    if not isinstance(error, BrokerError):
        return {"user": name, "error_code": ErrorCode.NONE, "error_message": None}
    return {"user": name, "error_code": error.code, "error_message": error.message}
