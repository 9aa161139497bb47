"""Principals as text: `User:alice`, in super users, access rules and requests.

A connection's own principal is `Exchange.principal`: `ANONYMOUS` unless its listener authenticates
clients, and then the principal that was proved before the request.
"""

from odradek.model import ANONYMOUS, USER_TYPE, KafkaPrincipal

__all__ = [
    "ANONYMOUS",
    "USER_TYPE",
    "KafkaPrincipal",
    "TokenPrincipal",
    "parse_principal",
    "user",
]


class TokenPrincipal(KafkaPrincipal):
    """A principal like any other of its name that has logged in by a delegation token: it must not
    get other tokens."""

    __slots__ = ()


def user(name: str) -> KafkaPrincipal:
    """The principal of a user."""
    return KafkaPrincipal(USER_TYPE, name)


def parse_principal(text: str) -> KafkaPrincipal:
    """Reads a principal; its name may have colons.

    Raises:
        ValueError: there is no colon; the sentence is Kafka's.
    """
    principal_type, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return KafkaPrincipal(principal_type, name)
