"""Kafka's error table, and the exceptions that carry an outcome through the floors.

`ErrorCode` is the table: number, name, whether a client may retry, and a sentence for people. The
wire, the docs page and the clients read it from here. `BrokerError` is an operating error: the
answer to one partition, topic or request. `EnvironmentFailure` is an error of the environment; its
subclass `LogDirFailure` takes a log directory offline, not the broker. Our own broken invariants
are `AssertionError`s and are caught nowhere below the dispatcher.
"""

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Every error code of the protocol up to Kafka 4.3; the numbers are the wire's.

    An unknown number is read as UNKNOWN_SERVER_ERROR, as Kafka does: brokers may be newer than this
    table.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def _missing_(cls, value: object) -> "ErrorCode | None":
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None

    @property
    def retriable(self) -> bool:
        """Whether a client may repeat the same request."""
        return self in _RETRIABLE

    @property
    def text(self) -> str:
        """A sentence for people, used when the place of failure gives none."""
        return _TEXTS[self]


class BrokerError(Exception):
    """An operating error: the answer to one request, topic or partition.

    `message` says what exactly was wrong; the default is the code's text.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code: Final = code
        self.message: Final = code.text if message is None else message
        super().__init__(f"{code.name}: {self.message}")


def without_frames(error: BrokerError) -> BrokerError:
    """The error as the answer to one of many entries. Its traceback would keep frames, and often
    itself, in memory: the garbage collector would walk over all of them, and stop all requests
    meanwhile."""
    return error.with_traceback(None)


class EnvironmentFailure(Exception):
    """The environment refused something: a disk, a file, an address."""


class LogDirFailure(EnvironmentFailure):
    """A log directory stopped working: its partitions go offline, the others stay online."""

    def __init__(self, directory: str, cause: OSError | None = None) -> None:
        self.directory: Final = directory
        self.cause: Final = cause
        reason = "failed" if cause is None else f"failed: {text_of(cause)}"
        super().__init__(f"log directory {directory} {reason}")


def text_of(error: BaseException) -> str:
    """Returns the message of an error without its code or number; the code's own text if it has no
    message, and for a file its name before the reason.
    """
    if isinstance(error, OSError):
        return f"{error.filename}: {reason_of(error)}" if error.filename else reason_of(error)
    if isinstance(error, UnicodeEncodeError):
        unwritable = ascii(error.object[error.start : error.end])
        return f"{unwritable} cannot be written in {error.encoding}; is LANG a locale of UTF-8?"
    if not isinstance(error, BrokerError):
        return str(error)
    if " " in error.message:
        return error.message
    return f"{error.message}: {error.code.text}" if error.message else error.code.text


def reason_of(error: object) -> str:
    """Returns why, in the system's words without its number; an error of another kind says it, or
    is named."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_TEXTS: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "Something went wrong in the broker that no other code describes."
    ),
    ErrorCode.NONE: "No error.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset lies outside what the partition holds.",
    ErrorCode.CORRUPT_MESSAGE: (
        "A record failed its checksum, has an illegal size, or lacks the key that its topic needs."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker does not host that topic or partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is not a legal one.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "This broker is not the leader, or not a replica, that the request needs."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The time that the request allowed has passed.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker cannot be reached.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available on this broker.",
    ErrorCode.MESSAGE_TOO_LARGE: "A batch is larger than the topic or the broker accepts.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The controller that asked has been succeeded by another.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata beside a committed offset is too long.",
    ErrorCode.NETWORK_EXCEPTION: "The connection broke before an answer came.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading its state.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator yet.",
    ErrorCode.NOT_COORDINATOR: "Another broker coordinates this.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "The topic's name is illegal, or the topic may not be used in this way."
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: "The records are together larger than a segment.",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "Fewer replicas are in sync than the topic demands; nothing was appended."
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "The records were appended, but to fewer in-sync replicas than the topic demands."
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be 0, 1 or -1.",
    ErrorCode.ILLEGAL_GENERATION: "The group has moved on to another generation.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member's protocols do not fit those of the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not a legal one.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session time-out lies outside the broker's bounds.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member has to join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The offsets to commit do not fit into one batch.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The principal may not do this to the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The principal may not do this to the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The principal may not do this to the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is too far from the broker's time.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the state of the SASL exchange.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not speak this version of the request.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic of this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not a legal one.",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "The replication factor is below 1 or above the number of brokers."
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is not a legal one.",
    ErrorCode.INVALID_CONFIG: "A setting has an illegal value.",
    ErrorCode.NOT_CONTROLLER: "Another broker is the controller.",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself or lacks something.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The topic's message format cannot do this.",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids this.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The producer's sequence numbers have a gap.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The broker has already seen this sequence number.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "A newer instance of this producer is at work.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is in a state that does not allow this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "The producer id is not the one that the transactional id stands for."
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction time-out is above the broker's limit.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The producer's previous transaction is not finished yet.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "A newer transaction coordinator has taken over.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "The principal may not use this transactional id."
    ),
    ErrorCode.SECURITY_DISABLED: "The broker runs without the security feature that this needs.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not tried, because another part of the request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk failed the broker.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The credentials were not accepted.",
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        "The broker holds nothing about this producer id, perhaps because its records were deleted."
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition's replicas are being reassigned.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not switched on.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "The principal neither owns nor may renew this delegation token."
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation tokens cannot be asked for on this connection."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "The principal may not do this to the delegation token."
    ),
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "This type of principal is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker does not hold this fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session is at another epoch.",
    ErrorCode.LISTENER_NOT_FOUND: (
        "The leader has no listener of the name that the request came through."
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: "Deleting topics is switched off.",
    ErrorCode.FENCED_LEADER_EPOCH: "The request's leader epoch is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The request's leader epoch is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "The client cannot read this codec in the version of the request that it uses."
    ),
    ErrorCode.STALE_BROKER_EPOCH: "The broker's registration has been replaced by a newer one.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not know the high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: (
        "The member has to join again with the id that it was just given."
    ),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader cannot lead now.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group is full.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group.instance.id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica may become the leader.",
    ErrorCode.ELECTION_NOT_NEEDED: "The leader is already the one that an election would choose.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being reassigned.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group's members are subscribed to this topic.",
    ErrorCode.INVALID_RECORD: "The broker's validation refused a record.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "There are offsets whose transaction is not decided yet.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota is used up.",
    ErrorCode.PRODUCER_FENCED: "Another producer uses the same transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "There is no such resource.",
    ErrorCode.DUPLICATE_RESOURCE: "The resource is named twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the broker's rules.",
    ErrorCode.INCONSISTENT_VOTER_SET: "One side names voters that the other does not know.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version of the update is not a legal one.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The features could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The forwarded principal could not be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker hosts no topic of that id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "A live broker of this id is registered already.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker of this id is registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The log belongs to a topic of another id.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request is meant for another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic ids and names.",
    ErrorCode.INELIGIBLE_REPLICA: "The replica may not join the in-sync replicas.",
    ErrorCode.NEW_LEADER_ELECTED: (
        "The change of the in-sync replicas has made another replica the leader."
    ),
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset has moved to tiered storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The coordinator has fenced this member; it has to join again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member still uses this instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group cannot use this assignor.",
    ErrorCode.STALE_MEMBER_EPOCH: (
        "The member's epoch is out of date; it has to learn the new one first."
    ),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request went to the wrong kind of endpoint.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not known.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller of this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The client's telemetry subscription is out of date.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker takes.",
    ErrorCode.INVALID_REGISTRATION: "The registration is not a legal one.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction failed and has to be aborted.",
    ErrorCode.INVALID_RECORD_STATE: (
        "The record is in a state that does not allow this acknowledgement."
    ),
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker does not hold this share session.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session is at another epoch.",
    ErrorCode.FENCED_STATE_EPOCH: "The share state is at a newer epoch.",
    ErrorCode.INVALID_VOTER_KEY: "The voter's key is not that of the receiver.",
    ErrorCode.DUPLICATE_VOTER: "The voter is in the set already.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression cannot be parsed.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client has to start again from its bootstrap servers.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The streams topology is not a legal one.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: (
        "The epoch of the streams topology is not a legal one."
    ),
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "A newer streams topology is in force.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker holds as many share sessions as it may.",
}
