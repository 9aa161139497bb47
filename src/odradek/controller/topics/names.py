"""The rules for topic names.

A name is part of file names and of metric names. Metrics turn `.` into `_`, so two names that
differ only in those would be equal there: the second one is refused.
"""

import re
from typing import Final

from odradek.errors import BrokerError, ErrorCode

MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuses an illegal topic name.

    Raises:
        BrokerError: INVALID_TOPIC_EXCEPTION, saying which rule the name breaks.
    """
    if not name:
        raise _invalid("Topic name is invalid: it must not be empty")
    if name in (".", ".."):
        raise _invalid(f"Topic name is invalid: it must not be '{name}'")
    if len(name) > MAX_LENGTH:
        raise _invalid(
            f"Topic name is invalid: '{name}' is longer than the longest that is allowed, "
            f"{MAX_LENGTH} characters"
        )
    if not _LEGAL.fullmatch(name):
        raise _invalid(
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII letters, digits, '.', '_' and '-'"
        )


def collision_key(name: str) -> str:
    """The name as metrics show it; two topics must not share it."""
    return name.replace(".", "_")


def has_collision_chars(name: str) -> bool:
    """Whether another name could be taken for this one."""
    return "." in name or "_" in name


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
