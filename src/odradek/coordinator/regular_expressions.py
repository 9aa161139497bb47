"""Names by regular expression, in the syntax of RE2: subscriptions (KIP-848), transactional ids.

The expressions come from clients and are matched on the event loop against every name, so they
must not be able to take long: RE2 matches in linear time and knows no look-around and no
back references. A name matches when the whole of it does.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

from odradek.errors import BrokerError, ErrorCode

MAX_PROGRAM_BYTES: Final = 1 << 20
"""What a compiled expression may take; `((a{100}){100}){100}` is refused."""

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = MAX_PROGRAM_BYTES
_OPTIONS.log_errors = False


@lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    try:
        return re2.compile(expression, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be parsed"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` is not a valid regular expression: {text}.",
        ) from error


def matching_names(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole.

    Raises:
        BrokerError: INVALID_REGULAR_EXPRESSION.
    """
    matches = _compiled(expression).fullmatch
    return frozenset(name for name in names if matches(name) is not None)
