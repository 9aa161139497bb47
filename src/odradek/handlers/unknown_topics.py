"""The error for a topic that does not exist."""

from odradek.controller.topics.names import check_topic_name
from odradek.errors import BrokerError, ErrorCode


def unknown_name_error(name: str) -> ErrorCode:
    """INVALID_TOPIC_EXCEPTION for an illegal topic name, else UNKNOWN_TOPIC_OR_PARTITION."""
    try:
        check_topic_name(name)
    except BrokerError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
