"""Building and reading the messages of cold APIs."""

from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from odradek.errors import ErrorCode
from odradek.protocol import messages
from odradek.protocol.primitives import ProtocolError

METADATA, API_VERSIONS, DELETE_TOPICS = 3, 18, 20


def again(api_key, version, values):
    """A response as its reader sees it."""
    data = messages.encode_response(api_key, version, values)
    return messages.decode_response(api_key, version, memoryview(data), 0)


def test_plain_values_are_written():
    """Handlers would have to know kio's types."""
    topic = {
        "error_code": ErrorCode.UNKNOWN_TOPIC_ID,
        "name": None,
        "topic_id": UUID(int=5),
        "partitions": [{"partition_index": 3, "replica_nodes": [1, 2]}],
    }
    message = again(METADATA, 13, {"throttle_time_ms": 1500, "topics": [topic]})
    assert message.throttle_time == timedelta(seconds=1.5)
    assert message.topics[0].error_code is KioErrorCode.unknown_topic_id
    assert message.topics[0].topic_id == UUID(int=5)
    assert message.topics[0].partitions[0].replica_nodes == (1, 2)
    assert message.topics[0].partitions[0].leader_epoch == -1
    assert message.brokers == ()


def test_what_a_version_does_not_know_is_left_out():
    """Every handler would have to ask for the version."""
    partition = {"partition_index": 3, "leader_epoch": 7, "offline_replicas": [1]}
    topic = {"name": "t", "partitions": [partition]}
    message = again(METADATA, 0, {"throttle_time_ms": 1, "topics": [topic]})
    assert message.topics[0].partitions[0].partition_index == 3


def test_a_name_that_no_version_knows_is_asserted():
    """A misspelt field would silently be a default."""
    topic = {"name": "t", "partitons": []}
    with pytest.raises(AssertionError, match="partitons"):
        messages.encode_response(METADATA, 1, {"topics": [topic]})


def test_an_unknown_version_has_no_class():
    """An API could be advertised that cannot be read."""
    assert messages.versions(999) == []
    assert messages.versions(DELETE_TOPICS)[0] == 1
    with pytest.raises(LookupError):
        messages.request_type(DELETE_TOPICS, 0)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b"\x7f\xff\xff\xff" + bytes(20)),
        (12, b"\xff\xff\xff\xff\x07" + bytes(20)),
        (12, b"\xfe\xff\xff\xff\x07" + bytes(20)),
    ],
)
def test_a_count_of_thousands_of_millions_is_refused(version, body):
    """Thirty bytes would end the process, as they do with kio's own reader."""
    with pytest.raises(ProtocolError, match="elements"):
        messages.decode_request(METADATA, version, memoryview(body), 0)


def test_bytes_behind_a_message_are_ignored():
    """Kafka ignores them, and some clients may have come to rely on it."""
    assert messages.decode_request(METADATA, 1, memoryview(bytes(9)), 0).topics == ()


def test_milliseconds():
    """Time-outs would be rounded, or a thousand times too long."""
    assert messages.milliseconds(timedelta(milliseconds=-1)) == -1
    assert messages.milliseconds(timedelta(days=2)) == 172_800_000


def test_tagged_fields_have_their_defaults():
    """A field that is not sent would be missing or of another type."""
    message = again(API_VERSIONS, 4, {})
    assert (message.finalized_features_epoch, message.supported_features) == (-1, ())
    assert message.zk_migration_ready is False


def test_tagged_fields_are_written_when_they_differ():
    """A feature or an epoch would be lost."""
    feature = {"name": "f", "min_version": 0, "max_version": 2}
    values = {"finalized_features_epoch": 7, "supported_features": [feature]}
    message = again(API_VERSIONS, 4, values)
    assert message.finalized_features_epoch == 7
    assert message.supported_features[0].name == "f"
