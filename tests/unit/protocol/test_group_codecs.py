"""The hand-written codecs of OffsetCommit and Heartbeat, against the generic ones."""

from uuid import UUID

import pytest

from odradek.protocol import messages
from odradek.protocol.direct.heartbeat import decode_heartbeat_request, encode_heartbeat_response
from odradek.protocol.direct.offset_commit import (
    TOPIC_ID_VERSION,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from odradek.protocol.primitives import ProtocolError

TOPIC_ID = UUID(int=77)


def commit_fields(version):
    partition = {"partition_index": 3, "committed_offset": 2**40, "committed_metadata": "ü"}
    if version >= 6:
        partition["committed_leader_epoch"] = 9
    topic = {"partitions": [partition, {**partition, "committed_metadata": None}]}
    topic |= {"topic_id": TOPIC_ID} if version >= TOPIC_ID_VERSION else {"name": "t"}
    fields = {"group_id": "g", "generation_id_or_member_epoch": 4, "member_id": "m"}
    if version >= 7:
        fields["group_instance_id"] = "i"
    if version <= 4:
        fields["retention_time_ms"] = 1000
    return {**fields, "topics": [topic]}


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_read_as_the_generic_codec_writes_them(version):
    """Fails when a version's commit is misread."""
    frame = b"head" + messages.encode_request(8, version, commit_fields(version))
    found = decode_offset_commit_request(memoryview(frame), version, 4)
    assert (found.group_id, found.generation_or_epoch, found.member_id) == ("g", 4, "m")
    assert found.group_instance_id == ("i" if version >= 7 else None)
    assert found.retention_ms == (1000 if version <= 4 else -1)
    (topic,) = found.topics
    named = (topic.name, topic.topic_id)
    assert named == (("", TOPIC_ID) if version >= TOPIC_ID_VERSION else ("t", None))
    first, second = topic.partitions
    assert (first.index, first.offset, first.metadata) == (3, 2**40, "ü")
    assert first.leader_epoch == (9 if version >= 6 else -1)
    assert second.metadata == ""
    for cut in range(4, len(frame)):
        with pytest.raises(ProtocolError):
            decode_offset_commit_request(memoryview(frame[:cut]), version, 4)


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_are_answered_as_the_generic_codec_reads_them(version):
    """Fails when a version's answer cannot be read."""
    frame = messages.encode_request(8, version, commit_fields(version))
    message = decode_offset_commit_request(memoryview(frame), version, 0)
    answer = encode_offset_commit_response(message, [[0, 12]], version, 5)
    position = 5 if version >= 8 else 4
    response = messages.decode_response(8, version, memoryview(answer), position)
    (topic,) = response.topics
    assert [each.partition_index for each in topic.partitions] == [3, 3]
    assert [int(each.error_code) for each in topic.partitions] == [0, 12]
    assert answer[:4] == b"\0\0\0\5"


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(version):
    """Fails when a version's heartbeat is misread or its answer cannot be read."""
    fields = {"group_id": "g", "generation_id": 4, "member_id": "m"}
    if version >= 3:
        fields["group_instance_id"] = "i"
    frame = messages.encode_request(12, version, fields)
    found = decode_heartbeat_request(memoryview(frame), version, 0)
    assert found == ("g", 4, "m", "i" if version >= 3 else None)
    answer = encode_heartbeat_response(27, version, 5)
    position = 5 if version >= 4 else 4
    response = messages.decode_response(12, version, memoryview(answer), position)
    assert int(response.error_code) == 27
