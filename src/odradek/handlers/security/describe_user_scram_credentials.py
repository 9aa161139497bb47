"""DescribeUserScramCredentials (50), version 0: the users that can log in by SCRAM, without their
credentials.

Behaviour: without names all of these users. A name that comes twice is DUPLICATE_RESOURCE, one
without credentials RESOURCE_NOT_FOUND.
"""

from collections import Counter

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    # A broker without passwords does not import these modules.
    from odradek.security import scram_users

    image = context.metadata.image
    users = request.body().users
    names = Counter(each.name for each in users or ())
    if not names:
        described = (_described(image, name) for name in scram_users.known_users(image))
        able = (each for each in described if each["error_code"] is ErrorCode.NONE)
        request.answer(error_message="", results=able)
        return
    request.answer(
        error_message="",
        results=(
            _described(image, name) if count == 1 else _twice(name) for name, count in names.items()
        ),
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for the whole."""
    request.answer(error_code=code, error_message=code.text, results=[])


def _described(image: MetadataImage, name: str) -> dict[str, object]:
    from odradek.security import scram_users

    found = scram_users.credentials_of(image, name)
    if not found:
        return _error(
            name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return {
        "user": name,
        "error_code": ErrorCode.NONE,
        "error_message": "",
        "credential_infos": [
            {"mechanism": int(mechanism), "iterations": iterations}
            for mechanism, iterations in found.items()
        ],
    }


def _twice(name: str) -> dict[str, object]:
    return _error(
        name,
        ErrorCode.DUPLICATE_RESOURCE,
        f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
    )


def _error(name: str, code: ErrorCode, text: str) -> dict[str, object]:
    return {"user": name, "error_code": code, "error_message": text, "credential_infos": []}
