"""The table of APIs: it routes requests, and ApiVersions lists it.

A row has an API, its served versions, the first flexible one, the module that handles it and
answers when the handler fails, the permission that its caller needs (Kafka's operation on the kind
of resource of the request), and the quota that it is charged to. The versions are Kafka 4.2's, and
older ones that clients in use still need: Produce from 0 and Fetch from 0 for the oldest mode of
librdkafka and for kafkajs, ListOffsets from 0 likewise. Every API with a row is advertised, unless
the row hides it, as Kafka does with APIs that a broker does not use.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Final, Protocol

from odradek._lazy import LazyModule
from odradek.errors import ErrorCode
from odradek.handlers.api import ANYBODY, Api, Cost, Permission
from odradek.handlers.cluster import api_versions
from odradek.handlers.context import HandlerContext
from odradek.handlers.groups import heartbeat, offset_commit
from odradek.handlers.records import fetch, list_offsets, produce
from odradek.handlers.request import Request
from odradek.handlers.topics import metadata
from odradek.model import AclOperation, ResourceType
from odradek.protocol.header import NEVER_FLEXIBLE
from odradek.protocol.messages import milliseconds

_OWN_CODECS: Final = frozenset(("Produce", "Fetch", "ListOffsets", "OffsetCommit", "Heartbeat"))
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class _Handlers(Protocol):
    """A module of this package that serves an API."""

    def handle(self, context: HandlerContext, request: Request, /) -> None: ...

    def fail(self, request: Request, code: ErrorCode, /) -> None: ...


class WhenAsked:
    """The module of an API, imported with its first request: most brokers are never asked for
    most of them."""

    def __init__(self, package: str, api: str) -> None:
        module = _CAPITAL.sub("_", api).lower()
        self.module = LazyModule(f"odradek.handlers.{package}.{module}")

    def handle(self, context: HandlerContext, request: Request) -> None:
        """Serves the request."""
        self.module.handle(context, request)

    def fail(self, request: Request, code: ErrorCode) -> None:
        """Answers the error in the shape of this API's response."""
        self.module.fail(request, code)


def _in_time(row: Api) -> Api:
    """Adds a time-out to a row that waits for the metadata store, which may be unreachable: it
    answers REQUEST_TIMED_OUT after its request's time-out, or the broker's if requests have none.
    The change continues, but its result is dropped."""
    fail = row.fail
    assert fail is not None, f"{row.name} has no place to say so"

    @wraps(row.handle)
    def handle(context: HandlerContext, request: Request) -> None:
        row.handle(context, request)
        if not request.answered:
            waiting = context.controller.await_answer(_timeout_ms(context, request), late(request))
            request.on_answered = waiting.on_answered

    def late(request: Request) -> Callable[[], None]:
        def answer() -> None:
            request.abandon()
            fail(request, ErrorCode.REQUEST_TIMED_OUT)

        return request.guard(answer)

    return replace(row, handle=handle)


def _timeout_ms(context: HandlerContext, request: Request) -> int:
    timeout = getattr(request.body(), "timeout", None)
    if timeout is not None:
        return milliseconds(timeout)
    of_broker: int = context.config["request.timeout.ms"]
    return of_broker


def _row(
    key: int,
    name: str,
    min_version: int,
    max_version: int,
    flexible_from: int,
    module: _Handlers | str,
    operation: AclOperation | None = None,
    resource: ResourceType = ResourceType.TOPIC,
    cost: Cost = Cost.REQUEST_TIME,
    is_hidden: bool = False,
    in_time: bool = False,
) -> Api:
    """Makes a row; without an operation any client may call the API. The package is given for a
    module that is imported on demand."""
    if isinstance(module, str):
        module = WhenAsked(module, name)
    permission = ANYBODY if operation is None else Permission(operation, resource)
    versions = (min_version, max_version, flexible_from)
    row = Api(
        key,
        name,
        *versions,
        module.handle,
        module.fail,
        permission,
        cost,
        end_of_read=getattr(module, "end_of_read", None),
        is_hidden=is_hidden,
        refuse=getattr(module, "refuse", None),
        has_own_codec=name in _OWN_CODECS,
    )
    return _in_time(row) if in_time else row


_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_CLUSTER_ACTION, _CREATE_TOKENS = AclOperation.CLUSTER_ACTION, AclOperation.CREATE_TOKENS
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_TOKEN, _USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER
_MUTATIONS = Cost.CONTROLLER_MUTATIONS

# key, name, versions served from and to, the first flexible one, module or its package; operation
# and resource that a caller must be allowed; the cost besides time; whether the row adds a time-out
# (requests of administrators).
_ROWS: Final = (
    _row(0, "Produce", 0, 13, 9, produce, _WRITE, _TOPIC, Cost.PRODUCED_BYTES),
    _row(1, "Fetch", 0, 18, 12, fetch, _READ, _TOPIC, Cost.FETCHED_BYTES),
    _row(2, "ListOffsets", 0, 11, 6, list_offsets, _DESCRIBE, _TOPIC),
    _row(3, "Metadata", 0, 13, 9, metadata, _DESCRIBE, _TOPIC),
    _row(8, "OffsetCommit", 2, 10, 8, offset_commit, _READ, _GROUP),
    _row(9, "OffsetFetch", 1, 10, 6, "groups", _DESCRIBE, _GROUP),
    _row(10, "FindCoordinator", 0, 6, 3, "groups", _DESCRIBE, _GROUP),
    _row(11, "JoinGroup", 0, 9, 6, "groups", _READ, _GROUP),
    _row(12, "Heartbeat", 0, 4, 4, heartbeat, _READ, _GROUP),
    _row(13, "LeaveGroup", 0, 5, 4, "groups", _READ, _GROUP),
    _row(14, "SyncGroup", 0, 5, 4, "groups", _READ, _GROUP),
    _row(15, "DescribeGroups", 0, 6, 5, "groups", _DESCRIBE, _GROUP),
    _row(16, "ListGroups", 0, 5, 3, "groups", _DESCRIBE, _GROUP),
    _row(17, "SaslHandshake", 0, 1, NEVER_FLEXIBLE, "security"),
    _row(18, "ApiVersions", 0, 4, 3, api_versions),
    _row(19, "CreateTopics", 2, 7, 5, "topics", _CREATE, _TOPIC, _MUTATIONS),
    _row(20, "DeleteTopics", 1, 6, 4, "topics", _DELETE, _TOPIC, _MUTATIONS),
    _row(21, "DeleteRecords", 0, 2, 2, "topics", _DELETE, _TOPIC),
    _row(22, "InitProducerId", 0, 5, 2, "transactions", _WRITE, _TRANSACTIONAL_ID),
    _row(23, "OffsetForLeaderEpoch", 2, 4, 4, "topics", _DESCRIBE, _TOPIC),
    _row(24, "AddPartitionsToTxn", 0, 5, 3, "transactions", _WRITE, _TRANSACTIONAL_ID),
    _row(25, "AddOffsetsToTxn", 0, 4, 3, "transactions", _WRITE, _TRANSACTIONAL_ID),
    _row(26, "EndTxn", 0, 5, 3, "transactions", _WRITE, _TRANSACTIONAL_ID),
    _row(27, "WriteTxnMarkers", 1, 2, 1, "transactions", _CLUSTER_ACTION, _CLUSTER),
    _row(28, "TxnOffsetCommit", 0, 5, 3, "transactions", _WRITE, _TRANSACTIONAL_ID),
    _row(29, "DescribeAcls", 1, 3, 2, "acls", _DESCRIBE, _CLUSTER),
    _row(30, "CreateAcls", 1, 3, 2, "acls", _ALTER, _CLUSTER, in_time=True),
    _row(31, "DeleteAcls", 1, 3, 2, "acls", _ALTER, _CLUSTER, in_time=True),
    _row(32, "DescribeConfigs", 1, 4, 4, "configs", _DESCRIBE_CONFIGS, _TOPIC),
    _row(33, "AlterConfigs", 0, 2, 2, "configs", _ALTER_CONFIGS, _TOPIC, in_time=True),
    _row(34, "AlterReplicaLogDirs", 1, 2, 2, "replicas", _ALTER, _CLUSTER),
    _row(35, "DescribeLogDirs", 1, 5, 2, "replicas", _DESCRIBE, _CLUSTER),
    _row(36, "SaslAuthenticate", 0, 2, 2, "security"),
    _row(37, "CreatePartitions", 0, 3, 2, "topics", _ALTER, _TOPIC, _MUTATIONS),
    _row(38, "CreateDelegationToken", 1, 3, 2, "tokens", _CREATE_TOKENS, _USER, in_time=True),
    _row(39, "RenewDelegationToken", 1, 2, 2, "tokens", _DESCRIBE, _TOKEN, in_time=True),
    _row(40, "ExpireDelegationToken", 1, 2, 2, "tokens", _DESCRIBE, _TOKEN, in_time=True),
    _row(41, "DescribeDelegationToken", 1, 3, 2, "tokens", _DESCRIBE, _TOKEN),
    _row(42, "DeleteGroups", 0, 2, 2, "groups", _DELETE, _GROUP),
    _row(43, "ElectLeaders", 0, 2, 2, "replicas", _ALTER, _CLUSTER),
    _row(44, "IncrementalAlterConfigs", 0, 1, 1, "configs", _ALTER_CONFIGS, _TOPIC, in_time=True),
    _row(45, "AlterPartitionReassignments", 0, 1, 0, "replicas", _ALTER, _CLUSTER, in_time=True),
    _row(46, "ListPartitionReassignments", 0, 0, 0, "replicas", _DESCRIBE, _CLUSTER),
    _row(47, "OffsetDelete", 0, 0, 1, "groups", _DELETE, _GROUP),
    _row(48, "DescribeClientQuotas", 0, 1, 1, "configs", _DESCRIBE_CONFIGS, _CLUSTER),
    _row(49, "AlterClientQuotas", 0, 1, 1, "configs", _ALTER_CONFIGS, _CLUSTER, in_time=True),
    _row(50, "DescribeUserScramCredentials", 0, 0, 0, "security", _DESCRIBE, _CLUSTER),
    _row(51, "AlterUserScramCredentials", 0, 0, 0, "security", _ALTER, _CLUSTER, in_time=True),
    _row(55, "DescribeQuorum", 0, 2, 0, "cluster", _DESCRIBE, _CLUSTER),
    _row(57, "UpdateFeatures", 0, 2, 0, "cluster", _ALTER, _CLUSTER, in_time=True),
    _row(60, "DescribeCluster", 0, 2, 0, "cluster", _DESCRIBE, _CLUSTER),
    _row(61, "DescribeProducers", 0, 0, 0, "transactions", _READ, _TOPIC),
    _row(65, "DescribeTransactions", 0, 0, 0, "transactions", _DESCRIBE, _TRANSACTIONAL_ID),
    _row(66, "ListTransactions", 0, 2, 0, "transactions", _DESCRIBE, _TRANSACTIONAL_ID),
    _row(68, "ConsumerGroupHeartbeat", 0, 1, 0, "groups", _READ, _GROUP),
    _row(69, "ConsumerGroupDescribe", 0, 1, 0, "groups", _DESCRIBE, _GROUP),
    _row(71, "GetTelemetrySubscriptions", 0, 0, 0, "telemetry", is_hidden=True),
    _row(72, "PushTelemetry", 0, 0, 0, "telemetry", is_hidden=True),
    _row(74, "ListConfigResources", 0, 1, 0, "configs", _DESCRIBE_CONFIGS, _CLUSTER),
    _row(75, "DescribeTopicPartitions", 0, 0, 0, "topics", _DESCRIBE, _TOPIC),
    _row(76, "ShareGroupHeartbeat", 1, 1, 0, "share", _READ, _GROUP),
    _row(77, "ShareGroupDescribe", 1, 1, 0, "share", _DESCRIBE, _GROUP),
    _row(78, "ShareFetch", 1, 2, 0, "share", _READ, _GROUP, Cost.FETCHED_BYTES),
    _row(79, "ShareAcknowledge", 1, 2, 0, "share", _READ, _GROUP),
    _row(83, "InitializeShareGroupState", 0, 0, 0, "share.states", _CLUSTER_ACTION, _CLUSTER),
    _row(84, "ReadShareGroupState", 0, 0, 0, "share.states", _CLUSTER_ACTION, _CLUSTER),
    _row(85, "WriteShareGroupState", 0, 1, 0, "share.states", _CLUSTER_ACTION, _CLUSTER),
    _row(86, "DeleteShareGroupState", 0, 0, 0, "share.states", _CLUSTER_ACTION, _CLUSTER),
    _row(87, "ReadShareGroupStateSummary", 0, 1, 0, "share.states", _CLUSTER_ACTION, _CLUSTER),
    _row(90, "DescribeShareGroupOffsets", 0, 1, 0, "share", _DESCRIBE, _GROUP),
    _row(91, "AlterShareGroupOffsets", 0, 0, 0, "share", _READ, _GROUP),
    _row(92, "DeleteShareGroupOffsets", 0, 0, 0, "share", _DELETE, _GROUP),
)

API_TABLE: Final[Mapping[int, Api]] = MappingProxyType({row.key: row for row in _ROWS})


def all_told(apis: Mapping[int, Api]) -> Mapping[int, Api]:
    """The table with no row hidden, for a broker that receives clients' metrics."""
    return {key: replace(row, is_hidden=False) for key, row in apis.items()}


_CONTROL_ROWS: Final = (
    _row(4, "LeaderAndIsr", 0, 7, 4, "replicas", _CLUSTER_ACTION, _CLUSTER),
    _row(5, "StopReplica", 0, 4, 2, "replicas", _CLUSTER_ACTION, _CLUSTER),
    _row(6, "UpdateMetadata", 0, 8, 6, "replicas", _CLUSTER_ACTION, _CLUSTER),
    _row(7, "ControlledShutdown", 0, 3, 3, "replicas", _CLUSTER_ACTION, _CLUSTER),
    _row(56, "AlterPartition", 2, 3, 0, "replicas", _CLUSTER_ACTION, _CLUSTER),
    _row(67, "AllocateProducerIds", 0, 0, 0, "transactions", _CLUSTER_ACTION, _CLUSTER),
)

CONTROLLERS_ALONE: Final = frozenset({19, 20, 37, 43, 45, 46, 51, 57})
_RAFT_ALONE: Final = frozenset({55})
_TOLD_BY_CONTROLLER: Final = frozenset({3, 60, 75})
UNTOLD_TIMEOUT_MS: Final = 5_000


def _by_controller(row: Api) -> Api:
    """Lets only the controller serve a row; clients of other brokers look for the controller and
    ask again."""
    fail = row.fail
    assert fail is not None, f"{row.name} has no place to say so"

    def handle(context: HandlerContext, request: Request) -> None:
        if context.metadata.image.controller_id == context.broker_id:
            row.handle(context, request)
        else:
            fail(request, ErrorCode.NOT_CONTROLLER)

    return replace(row, handle=handle)


def _once_told(row: Api) -> Api:
    """Refuses a row until a new broker has received the metadata: otherwise clients would consider
    topics deleted, or know no broker to ask again."""

    def handle(context: HandlerContext, request: Request) -> None:
        if context.metadata.is_told:
            row.handle(context, request)
        else:
            request.body()  # while the frame is valid
            context.controller.await_metadata(
                UNTOLD_TIMEOUT_MS, request.guard(lambda: row.handle(context, request))
            )

    return replace(row, handle=handle)


ZOOKEEPER_API_TABLE: Final[Mapping[int, Api]] = MappingProxyType(
    {row.key: row for row in (*API_TABLE.values(), *_CONTROL_ROWS) if row.key not in _RAFT_ALONE}
    | {key: _by_controller(API_TABLE[key]) for key in CONTROLLERS_ALONE}
    | {key: _once_told(API_TABLE[key]) for key in _TOLD_BY_CONTROLLER}
)
"""The APIs of a broker with its metadata in ZooKeeper: also a controller's requests to brokers, and
those that only a controller answers. Clients do not ask it for a quorum."""
