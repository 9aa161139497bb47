"""How a share partition's state is read and written, field by field: Kafka's messages, and in each
batch one tagged field of our own.

    due_ms   when records that came back may be handed out again, in milliseconds since 1970

Kafka's brokers ignore unknown tags: they hand the records out at once. Its number is far from those
that Kafka gives out, which begin with 0. The classes are made by `message_classes`.
"""

from types import MappingProxyType
from typing import Final

from odradek.protocol.schema import Field, Schema
from odradek.protocol.schemas.message_tables import MessagePair

READ_SHARE_GROUP_STATE: Final = 84
WRITE_SHARE_GROUP_STATE: Final = 85

DUE_TAG: Final = 10_000
AT_ONCE: Final = 0

_BATCHES: Final = Field(
    "state_batches",
    "[]struct",
    fields=(
        Field("first_offset", "int64"),
        Field("last_offset", "int64"),
        Field("delivery_state", "int8"),
        Field("delivery_count", "int16"),
        Field("due_ms", "int64", tag=DUE_TAG, default=AT_ONCE),
    ),
)


def _of_topics(name: str, *fields: Field) -> Field:
    """Fields of every partition of every topic."""
    partitions = Field("partitions", "[]struct", fields=(Field("partition", "int32"), *fields))
    return Field(name, "[]struct", fields=(Field("topic_id", "uuid"), partitions))


_GROUP_ID: Final = Field("group_id", "string")
_ERROR: Final = (Field("error_code", "error_code"), Field("error_message", "string?"))

SHARE_MESSAGES: Final = MappingProxyType(
    {
        READ_SHARE_GROUP_STATE: MessagePair(
            "read_share_group_state",
            Schema(
                "ReadShareGroupStateRequest",
                (_GROUP_ID, _of_topics("topics", Field("leader_epoch", "int32"))),
                flexible_since=0,
            ),
            Schema(
                "ReadShareGroupStateResponse",
                (
                    _of_topics(
                        "results",
                        *_ERROR,
                        Field("state_epoch", "int32"),
                        Field("start_offset", "int64"),
                        _BATCHES,
                    ),
                ),
                flexible_since=0,
            ),
        ),
        WRITE_SHARE_GROUP_STATE: MessagePair(
            "write_share_group_state",
            Schema(
                "WriteShareGroupStateRequest",
                (
                    _GROUP_ID,
                    _of_topics(
                        "topics",
                        Field("state_epoch", "int32"),
                        Field("leader_epoch", "int32"),
                        Field("start_offset", "int64"),
                        Field("delivery_complete_count", "int32", since=1, default=-1),
                        _BATCHES,
                    ),
                ),
                last_version=1,
                flexible_since=0,
            ),
            Schema(
                "WriteShareGroupStateResponse",
                (_of_topics("results", *_ERROR),),
                last_version=1,
                flexible_since=0,
            ),
        ),
    }
)
