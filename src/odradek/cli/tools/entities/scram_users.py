"""Credentials of users that log in by SCRAM, as `kafka-configs.sh` shows and sets them."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from odradek.client import Admin
from odradek.client.core.admin_types import LEAST_ITERATIONS, ScramPassword
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode

_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)")
# Kafka's word for: as many as usual.
_DEFAULT: Final = "-1"

Described = Mapping[str, Mapping[str, int]]


async def described(admin: Admin, name: str | None) -> Described:
    """Returns the mechanisms of a user, or of all users with credentials, and the iterations of
    each.

    Raises:
        KafkaError: the broker refuses.
    """
    found: dict[str, Mapping[str, int]] = {}
    answers = await admin.describe_scram_users([] if name is None else [name])
    for user, each in answers.items():
        if not isinstance(each, KafkaError):
            found[user] = each
        elif each.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise each
    return found


def print_described(found: Described) -> None:
    """Prints a line for each user."""
    for user, each in found.items():
        values = ", ".join(f"{key}=iterations={count}" for key, count in each.items())
        print(f"SCRAM credential configs for user-principal '{user}' are {values}")


def as_json(found: Described) -> list[dict[str, object]]:
    """An object for each user."""
    return [{"entity": {"user": user}, "scram": dict(each)} for user, each in found.items()]


async def alter(
    admin: Admin, name: str, added: Mapping[str, str], deleted: Collection[str]
) -> None:
    """Sets passwords of a user, and removes credentials.

    Raises:
        ValueError: a credential is malformed; the message does not show it.
        KafkaError: the broker refuses.
    """
    passwords = [_password(name, mechanism, text) for mechanism, text in added.items()]
    gone = [(name, mechanism) for mechanism in deleted]
    error = (await admin.alter_scram_users(passwords, gone))[name]
    if error is not None:
        raise error


def _password(name: str, mechanism: str, text: str) -> ScramPassword:
    found = _CREDENTIAL.fullmatch(text)
    if found is None or found[1] == "" or found[1] == "-":
        shown = mechanism.replace("-", "_")
        raise ValueError(f"Invalid credential property {shown}=[hidden]")
    count = LEAST_ITERATIONS if found[1] in (None, _DEFAULT) else int(found[1])
    if count < LEAST_ITERATIONS:
        raise ValueError(
            f"Iterations {count} is less than the minimum {LEAST_ITERATIONS} required for "
            f"{mechanism}"
        )
    return ScramPassword(name, mechanism, found[2], count)
