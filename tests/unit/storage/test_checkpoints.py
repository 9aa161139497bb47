"""Kafka's small text files: what they look like, and what is done about broken ones."""

from uuid import UUID

import pytest

from odradek.model import TopicPartition
from odradek.storage import checkpoints, names
from odradek.storage.checkpoints import CorruptCheckpoint


def test_offsets_look_as_kafka_writes_them():
    """Kafka's own broker could not read our checkpoints."""
    offsets = {TopicPartition("b", 1): 8, TopicPartition("a", 0): 4711}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n2\na 0 4711\nb 1 8\n"
    assert checkpoints.parse_offsets(data) == offsets


def test_a_checkpoint_cut_anywhere_is_noticed():
    """A torn checkpoint would pass for a shorter, true one."""
    data = checkpoints.encode_epochs([(0, 0), (3, 170), (4, 180)])
    for size_bytes in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            checkpoints.parse_epochs(data[:size_bytes])
    assert checkpoints.parse_epochs(data) == [(0, 0), (3, 170), (4, 180)]


@pytest.mark.parametrize(
    "text",
    ["1\n0\n", "0\n1\n5 x\n", "0\n2\n1 5\n0 9\n", "0\n2\n0 9\n1 5\n", "0\n1\n1 2 3\n", "\xff\n"],
)
def test_nonsense_is_refused(text: str):
    """A flipped byte would become a wrong epoch."""
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_epochs(text.encode("latin-1"))


def test_partition_metadata_has_kafkas_form_of_an_id():
    """Kafka would refuse the directory for another topic's."""
    topic_id = UUID("00112233-4455-6677-8899-aabbccddeeff")
    data = checkpoints.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    assert checkpoints.parse_partition_metadata(data) == topic_id


@pytest.mark.parametrize("data", [b"", b"version: 0", b"version: 1\ntopic_id: AA", b"\xff"])
def test_broken_partition_metadata_is_refused(data: bytes):
    """A broken id would look like another topic, whose log is deleted."""
    with pytest.raises(CorruptCheckpoint):
        checkpoints.parse_partition_metadata(data)


def test_clean_shutdown_marker_is_kafka_4s():
    """Kafka reads the broker's epoch from it."""
    assert checkpoints.encode_clean_shutdown(42) == b'{"version":0,"brokerEpoch":42}'


def test_names_of_segments_and_partitions():
    """A file or directory would be missed, or taken for what it is not."""
    assert names.segment_file("d", 42, ".log") == "d/00000000000000000042.log"
    assert names.parse_segment_file("00000000000000000042.index") == (42, ".index")
    assert names.parse_segment_file("00000000000000000042.log.deleted") is None
    assert names.parse_segment_file("42.log") is None
    assert names.parse_partition_directory("a-b-7") == TopicPartition("a-b", 7)
    assert names.parse_partition_directory("a-b") is None
    assert names.parse_partition_directory("a-0.00-delete") is None


def test_deleted_directories_fit_the_file_system():
    """A topic with a long name could not be deleted."""
    name = names.deleted_directory(TopicPartition("t" * 249, 12), UUID(int=1))
    assert len(name) == 255
    assert names.is_deleted_directory(name)
    assert not names.is_deleted_directory("t-0")
