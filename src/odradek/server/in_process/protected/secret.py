"""Passwords and tokens in a test's own variables, which pytest prints when the test fails."""

from collections.abc import Mapping
from typing import Final

_HIDDEN: Final = "[hidden]"


class Secret(str):
    """Text that is used as ever, while its `repr` hides it.

    Lists and mappings show their items by `repr`, and so do pytest's report of a failed test,
    debuggers and notebooks.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _HIDDEN


class NotUsers(str):
    """The type's name of what was given in place of a mapping of users."""

    __slots__ = ()


def hide_passwords(users: object) -> "Mapping[object, object] | NotUsers":
    """The users with hidden passwords, for `Protection` to check; None is no users."""
    if users is None:
        return {}
    if isinstance(users, Mapping):
        return {name: _hidden(password) for name, password in users.items()}
    return users if isinstance(users, NotUsers) else NotUsers(type(users).__name__)


def _hidden(password: object) -> object:
    return Secret(password) if isinstance(password, str) else password
