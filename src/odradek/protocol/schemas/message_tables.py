"""The requests by which a controller of Kafka 3 commands its brokers, field by field.

Kafka 4 has removed them, and with them kio: a cluster whose metadata lies in ZooKeeper lives by
them. Names are as kio would have them; the types are those of `protocol.schema`, and beside them

    bool   error_code        a type that ends in `?` may be null

A field that has a `default` takes it where the version lacks it or nothing is given.
`message_classes` makes from this what kio's own classes are.
"""

from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.protocol.schema import Field, Schema

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7


class MessagePair(NamedTuple):
    """The request and the response of one key."""

    name: str
    request: Schema
    response: Schema


def _control_header(broker_epoch_since: int, kraft_since: int) -> tuple[Field, ...]:
    """Reads the controller's id and epochs, which begin every request of a controller."""
    return (
        Field("controller_id", "int32"),
        Field("is_kraft_controller", "bool", since=kraft_since, default=False),
        Field("controller_epoch", "int32"),
        Field("broker_epoch", "int64", since=broker_epoch_since, default=-1),
    )


_TOPIC_NAME: Final = Field("topic_name", "string")
_PARTITION_INDEX: Final = Field("partition_index", "int32")
_ERROR_CODE: Final = Field("error_code", "error_code")
_STATE: Final = (
    _PARTITION_INDEX,
    Field("controller_epoch", "int32"),
    Field("leader", "int32"),
    Field("leader_epoch", "int32"),
    Field("isr", "[]int32"),
    Field("partition_epoch", "int32"),  # of the state's znode
    Field("replicas", "[]int32"),
)

_REPLICA_STATE: Final = (
    _TOPIC_NAME._replace(until=1),
    *_STATE,
    Field("adding_replicas", "[]int32", since=3),
    Field("removing_replicas", "[]int32", since=3),
    Field("is_new", "bool", since=1, default=False),
    Field("leader_recovery_state", "int8", since=6, default=0),
)
_LEADER_AND_ISR_REQUEST: Final = Schema(
    "LeaderAndIsrRequest",
    (
        *_control_header(broker_epoch_since=2, kraft_since=7),
        Field("type", "int8", since=5),
        Field("ungrouped_partition_states", "[]struct", until=1, fields=_REPLICA_STATE),
        Field(
            "topic_states",
            "[]struct",
            since=2,
            fields=(
                _TOPIC_NAME,
                Field("topic_id", "uuid", since=5),
                Field("partition_states", "[]struct", fields=_REPLICA_STATE),
            ),
        ),
        Field(
            "live_leaders",
            "[]struct",
            fields=(
                Field("broker_id", "int32"),
                Field("host_name", "string"),
                Field("port", "int32"),
            ),
        ),
    ),
    last_version=7,
    flexible_since=4,
)
_REPLICA_ERROR: Final = (_TOPIC_NAME._replace(until=4), _PARTITION_INDEX, _ERROR_CODE)
_LEADER_AND_ISR_RESPONSE: Final = Schema(
    "LeaderAndIsrResponse",
    (
        _ERROR_CODE,
        Field("partition_errors", "[]struct", until=4, fields=_REPLICA_ERROR),
        Field(
            "topics",
            "[]struct",
            since=5,
            fields=(
                Field("topic_id", "uuid"),
                Field("partition_errors", "[]struct", fields=_REPLICA_ERROR),
            ),
        ),
    ),
    last_version=7,
    flexible_since=4,
)

_STOP_REPLICA_REQUEST: Final = Schema(
    "StopReplicaRequest",
    (
        *_control_header(broker_epoch_since=1, kraft_since=4),
        Field("delete_partitions", "bool", until=2),
        Field(
            "ungrouped_partitions",
            "[]struct",
            until=0,
            fields=(_TOPIC_NAME, _PARTITION_INDEX),
        ),
        Field(
            "topics",
            "[]struct",
            since=1,
            until=2,
            fields=(Field("name", "string"), Field("partition_indexes", "[]int32")),
        ),
        Field(
            "topic_states",
            "[]struct",
            since=3,
            fields=(
                _TOPIC_NAME,
                Field(
                    "partition_states",
                    "[]struct",
                    fields=(
                        _PARTITION_INDEX,
                        Field("leader_epoch", "int32", default=-1),
                        Field("delete_partition", "bool"),
                    ),
                ),
            ),
        ),
    ),
    last_version=4,
    flexible_since=2,
)
_STOP_REPLICA_RESPONSE: Final = Schema(
    "StopReplicaResponse",
    (
        _ERROR_CODE,
        Field("partition_errors", "[]struct", fields=(_TOPIC_NAME, _PARTITION_INDEX, _ERROR_CODE)),
    ),
    last_version=4,
    flexible_since=2,
)

_SHOWN_STATE: Final = (
    _TOPIC_NAME._replace(until=4),
    *_STATE,
    Field("offline_replicas", "[]int32", since=4),
)
_LIVE_BROKER: Final = (
    Field("id", "int32"),
    Field("v0_host", "string", until=0),
    Field("v0_port", "int32", until=0),
    Field(
        "endpoints",
        "[]struct",
        since=1,
        fields=(
            Field("port", "int32"),
            Field("host", "string"),
            Field("listener", "string", since=3),
            Field("security_protocol", "int16"),
        ),
    ),
    Field("rack", "string?", since=2),
)
_UPDATE_METADATA_REQUEST: Final = Schema(
    "UpdateMetadataRequest",
    (
        *_control_header(broker_epoch_since=5, kraft_since=8),
        Field("type", "int8", since=8, tag=0, default=0),
        Field("ungrouped_partition_states", "[]struct", until=4, fields=_SHOWN_STATE),
        Field(
            "topic_states",
            "[]struct",
            since=5,
            fields=(
                _TOPIC_NAME,
                Field("topic_id", "uuid", since=7),
                Field("partition_states", "[]struct", fields=_SHOWN_STATE),
            ),
        ),
        Field("live_brokers", "[]struct", fields=_LIVE_BROKER),
    ),
    last_version=8,
    flexible_since=6,
)
_UPDATE_METADATA_RESPONSE: Final = Schema(
    "UpdateMetadataResponse", (_ERROR_CODE,), last_version=8, flexible_since=6
)

_CONTROLLED_SHUTDOWN_REQUEST: Final = Schema(
    "ControlledShutdownRequest",
    (Field("broker_id", "int32"), Field("broker_epoch", "int64", since=2, default=-1)),
    last_version=3,
    flexible_since=3,
)
_CONTROLLED_SHUTDOWN_RESPONSE: Final = Schema(
    "ControlledShutdownResponse",
    (
        _ERROR_CODE,
        Field("remaining_partitions", "[]struct", fields=(_TOPIC_NAME, _PARTITION_INDEX)),
    ),
    last_version=3,
    flexible_since=3,
)

MESSAGES: Final = MappingProxyType(
    {
        LEADER_AND_ISR: MessagePair(
            "leader_and_isr", _LEADER_AND_ISR_REQUEST, _LEADER_AND_ISR_RESPONSE
        ),
        STOP_REPLICA: MessagePair("stop_replica", _STOP_REPLICA_REQUEST, _STOP_REPLICA_RESPONSE),
        UPDATE_METADATA: MessagePair(
            "update_metadata", _UPDATE_METADATA_REQUEST, _UPDATE_METADATA_RESPONSE
        ),
        CONTROLLED_SHUTDOWN: MessagePair(
            "controlled_shutdown", _CONTROLLED_SHUTDOWN_REQUEST, _CONTROLLED_SHUTDOWN_RESPONSE
        ),
    }
)
