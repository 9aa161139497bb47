"""Passwords and tokens in a test's own variables, which pytest prints when the test fails."""

from collections.abc import Mapping
from typing import Final, NamedTuple

_HIDDEN: Final = "[hidden]"


class Secret(str):
    """Text that is used as ever, while its `repr` hides it.

    Lists and mappings show their items by `repr`, and so do pytest's report of a failed test,
    debuggers and notebooks.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _HIDDEN


class NotUsers(NamedTuple):
    """Stands for something else than a mapping of users: it may hold passwords, so that only the
    name of its type is kept."""

    type_name: str


HiddenUsers = Mapping[object, object] | NotUsers
"""Users whose passwords no report shows."""


def hide_passwords(users: object) -> HiddenUsers:
    """The users with hidden passwords; `NotUsers` for something else, which `Protection` refuses.
    None is no users."""
    if users is None:
        return {}
    if isinstance(users, NotUsers):
        return users  # hidden before
    if isinstance(users, Mapping):
        return {name: _hidden(password) for name, password in users.items()}
    return NotUsers(type(users).__name__)


def _hidden(password: object) -> object:
    return Secret(password) if isinstance(password, str) else password
