"""The names that Apache Kafka's tools give errors: the class of the exception and its usual
sentence.

Its tools print exceptions of single items as they are, so a script may look for these words.
"""

import re
from collections.abc import Iterable
from typing import Final

from odradek.coordinator.runtime.partitioning import java_hash
from odradek.errors import BrokerError, ErrorCode

# Kafka had some classes within others: `TransactionLog$TransactionLogMessageFormatter`.
_KAFKAS_CLASS: Final = re.compile(r"(?:(?:org\.apache\.)?kafka\.(?:\w+\.)*(?:\w+\$)?)?(\w+)")
_PACKAGE: Final = "org.apache.kafka.common.errors."
_NAMES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "UnknownTopicOrPartitionException",
        "This server does not host this topic-partition.",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "GroupIdNotFoundException",
        "The group id does not exist.",
    ),
    ErrorCode.NON_EMPTY_GROUP: ("GroupNotEmptyException", "The group is not empty."),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it.",
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "OffsetOutOfRangeException",
        "The requested offset is not within the range of offsets maintained by the server.",
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "UnknownMemberIdException",
        "The coordinator is not aware of this member.",
    ),
    ErrorCode.POLICY_VIOLATION: (
        "PolicyViolationException",
        "Request parameters do not satisfy the configured policy.",
    ),
    ErrorCode.REQUEST_TIMED_OUT: ("TimeoutException", "The request timed out."),
    ErrorCode.INVALID_GROUP_ID: ("InvalidGroupIdException", "The configured groupId is invalid."),
    ErrorCode.ELECTION_NOT_NEEDED: (
        "ElectionNotNeededException",
        "Leader election not needed for topic partition.",
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: (
        "PreferredLeaderNotAvailableException",
        "The preferred leader was not available.",
    ),
    ErrorCode.INVALID_CONFIG: ("InvalidConfigurationException", "Configuration is invalid."),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (
        "BrokerIdNotRegisteredException",
        "The given broker ID was not registered.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "UnsupportedVersionException",
        "The version of API is not supported.",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "TopicAuthorizationException",
        "Topic authorization failed.",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "GroupAuthorizationException",
        "Group authorization failed.",
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "ClusterAuthorizationException",
        "Cluster authorization failed.",
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "TransactionalIdAuthorizationException",
        "Transactional Id authorization failed.",
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "RecordTooLargeException",
        "The request included a message larger than the max message size the server will accept.",
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "InvalidTopicException",
        "The request attempted to perform an operation on an invalid topic.",
    ),
    ErrorCode.TOPIC_ALREADY_EXISTS: (
        "TopicExistsException",
        "Topic with this name already exists.",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "KafkaStorageException",
        "Disk error when trying to access log file on the disk.",
    ),
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "UnknownServerException",
        "The server experienced an unexpected error when processing the request.",
    ),
    ErrorCode.NETWORK_EXCEPTION: (
        "NetworkException",
        "The server disconnected before a response was received.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "NotEnoughReplicasException",
        "Messages are rejected since there are fewer in-sync replicas than required.",
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "NotEnoughReplicasAfterAppendException",
        "Messages are written to the log, but to fewer in-sync replicas than required.",
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "OutOfOrderSequenceException",
        "The broker received an out of order sequence number.",
    ),
    ErrorCode.CORRUPT_MESSAGE: (
        "CorruptRecordException",
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a "
        "compacted topic, or is otherwise corrupt.",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "RecordBatchTooLargeException",
        "The request included message batch larger than the configured segment size on the server.",
    ),
}


def java_sentence(error: BrokerError) -> str:
    """The sentence of an error: the broker's where it gave one, else the usual one."""
    known = _NAMES.get(error.code)
    # A single word only names what the error is about; none at all is what the broker gave.
    is_name = bool(error.message) and " " not in error.message
    is_ours = is_name or error.message == error.code.text
    return known[1] if known is not None and is_ours else error.message


def java_name(error: BrokerError) -> str:
    """The class of an error, as exceptions are printed."""
    known = _NAMES.get(error.code)
    if known is not None:
        return _PACKAGE + known[0]
    words = error.code.name.title().replace("_", "")
    return f"{_PACKAGE}{words}Exception"


def java_text(error: BrokerError) -> str:
    """Class and sentence."""
    return f"{java_name(error)}: {java_sentence(error)}"


def execution_exception(error: BrokerError) -> ValueError:
    """Returns the message of a tool that reports a failure wrapped in an ExecutionException."""
    return ValueError(f"java.util.concurrent.ExecutionException: {java_text(error)}")


def in_java_order(names: Iterable[str], *, is_copy: bool = False) -> list[str]:
    """Sorts names in the order in which a Java `HashMap` iterates over them, or a copy of it: the
    order of settings and groups in the output of Kafka's tools.
    """
    names = list(names)
    # A table of 16 buckets that doubles when it is filled to three quarters; a copy has what it
    # takes from the beginning.
    least = int(len(names) / 0.75 + 1) if is_copy else 16
    buckets = 1
    while buckets < least or len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = java_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) % buckets

    return sorted(names, key=bucket)


def simple_name(class_name: str) -> str:
    """Returns the name of one of Kafka's classes without its package, old or new; the full name of
    another class, since the simple name may be the same.
    """
    found = _KAFKAS_CLASS.fullmatch(class_name.strip())
    return found[1] if found else class_name
