"""SCRAM credentials in the metadata: changes, and descriptions.

A user's settings have one for each mechanism, under its name, in the form that Kafka's brokers keep
in ZooKeeper. If a request has an error about a user, nothing about this user is done.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.model import ConfigResourceType
from odradek.security.sasl import scram
from odradek.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512

logger = logging.getLogger(__name__)

SALT_BYTES: Final = 20


class ScramMechanism(IntEnum):
    """Mechanisms by the numbers of requests."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


_NAMES: Final = {
    ScramMechanism.SCRAM_SHA_256: SCRAM_SHA_256,
    ScramMechanism.SCRAM_SHA_512: SCRAM_SHA_512,
}


class Deletion(NamedTuple):
    """The deletion of a credential."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """Creates or replaces a credential from a salted password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism})"


Alteration: TypeAlias = Deletion | Upsertion


class NewUser(NamedTuple):
    """A user that can log in from the start."""

    mechanism: str
    name: str
    password: str
    iterations: int = scram.MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"NewUser({self.mechanism}, {self.name!r})"


_NEW_USER: Final = re.compile(
    r"(?P<mechanism>SCRAM-SHA-(?:256|512))=\[name=(?P<name>[^,\]]+)"
    r"(?:,iterations=(?P<iterations>[0-9]{1,9}))?,password=(?P<password>.+)\]"
)


def scram_credential(
    image: MetadataImage, mechanism: str, name: str
) -> scram.ScramCredential | None:
    """The credential of a user, if there is one. An unreadable one counts as missing."""
    text = image.config(ConfigResource(ConfigResourceType.USER, name)).get(mechanism)
    try:
        return None if text is None else scram.parse_credential(text)
    except ValueError:
        logger.error("The %s credential of user %r is not understood", mechanism, name)
        return None


def credentials_of(image: MetadataImage, name: str) -> dict[ScramMechanism, int]:
    """The mechanisms by which a user can log in, with their iterations."""
    found = ((each, scram_credential(image, _NAMES[each], name)) for each in _NAMES)
    return {each: known.iterations for each, known in found if known is not None}


def known_users(image: MetadataImage) -> list[str]:
    """All users with stored values, most often credentials."""
    return sorted(each.name for each in image.configs if each.type is ConfigResourceType.USER)


_ALTERED_TWICE: Final = BrokerError(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


def mistakes(image: MetadataImage, asked: Iterable[Alteration]) -> dict[str, BrokerError]:
    """Finds the mistakes of a request, by user."""
    found: dict[str, BrokerError] = {}
    seen: set[str] = set()
    for each in asked:
        error = _ALTERED_TWICE if each.user in seen else _mistake(image, each)
        seen.add(each.user)
        if error is not None:
            found.setdefault(each.user, error)
    return found


def altered(asked: Iterable[Alteration]) -> dict[str, Mapping[str, str | None]]:
    """The changes of a request without mistakes, by user."""
    changes: dict[str, dict[str, str | None]] = {}
    for each in asked:
        name = _NAMES[ScramMechanism(each.mechanism)]
        text = None if isinstance(each, Deletion) else _credential_text(name, each)
        changes.setdefault(each.user, {})[name] = text
    return dict(changes)


def _credential_text(name: str, asked: Upsertion) -> str:
    known = scram.credential_of(name, asked.salted_password, asked.salt, asked.iterations)
    return scram.credential_text(known)


def new_users(
    users: Iterable[NewUser], random_bytes: Callable[[int], bytes], image: MetadataImage
) -> dict[str, Mapping[str, str | None]]:
    """Creates credentials of users that have none for that mechanism; others keep theirs."""
    changes: dict[str, dict[str, str | None]] = {}
    for each in users:
        if scram_credential(image, each.mechanism, each.name) is None:
            salt = random_bytes(SALT_BYTES)
            known = scram.credential(each.mechanism, each.password, salt, each.iterations)
            changes.setdefault(each.name, {})[each.mechanism] = scram.credential_text(known)
    return dict(changes)


def parse_new_user(text: str) -> NewUser:
    """Reads `SCRAM-SHA-256=[name=alice,password=secret]`, as Kafka's storage tool takes it.

    Raises:
        ValueError: it is something else; the text is not shown, it has a password.
    """
    match = _NEW_USER.fullmatch(text.strip())
    if match is None:
        raise ValueError("it must be SCRAM-SHA-256=[name=NAME,password=PASSWORD], or SHA-512")
    iterations = int(match["iterations"] or scram.MIN_ITERATIONS)
    if not scram.MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        raise ValueError(
            f"iterations must be from {scram.MIN_ITERATIONS} to {scram.MAX_ITERATIONS}"
        )
    return NewUser(match["mechanism"], match["name"], match["password"], iterations)


def _mistake(image: MetadataImage, each: Alteration) -> BrokerError | None:
    if not each.user:
        return BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if each.mechanism not in tuple(_NAMES):
        return BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(each, Deletion):
        if ScramMechanism(each.mechanism) in credentials_of(image, each.user):
            return None
        return BrokerError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    if each.iterations < scram.MIN_ITERATIONS:
        return BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if each.iterations > scram.MAX_ITERATIONS:
        return BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None
