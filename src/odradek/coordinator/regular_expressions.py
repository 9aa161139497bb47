"""Names by regular expression: subscriptions (KIP-848), transactional ids.

See `odradek.expressions` for their syntax. A name matches when the whole of it does.
"""

from collections.abc import Iterable

from odradek.errors import BrokerError, ErrorCode
from odradek.expressions import ExpressionError, ExpressionsUnavailable, compiled


def matching_names(expression: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole.

    Raises:
        BrokerError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        match = compiled(expression)
    except ExpressionError as error:
        what = "is not a valid regular expression"
        if isinstance(error, ExpressionsUnavailable):
            what = "cannot be matched"
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{expression}` {what}: {error}.",
        ) from error
    return frozenset(name for name in names if match(name) is not None)
