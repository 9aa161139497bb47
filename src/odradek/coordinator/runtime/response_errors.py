"""The errors clients are answered when the append of a coordinator's records fails.

Clients do not know the internal topic. A failure there is answered as the loss of the coordinator,
since a client can only look for it again.
"""

from typing import Final

from odradek.errors import BrokerError, ErrorCode

_RESPONSE_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CORRUPT_MESSAGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""The log will never take such a write as it is."""


def response_code(append_code: ErrorCode) -> ErrorCode:
    """The code for a client; a code that is not about an append stays."""
    return _RESPONSE_ERRORS.get(append_code, append_code)


def response_error(error: BrokerError) -> BrokerError:
    """The error for a client, with its text."""
    return BrokerError(response_code(error.code), error.message)
