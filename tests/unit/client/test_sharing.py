"""If these fail, a share consumer answers for records that it was not given, or loses some."""

from uuid import UUID

from odradek.client.core.consuming.deserializers import deserializing
from odradek.client.core.sharing.acknowledgements import (
    GAP,
    AcknowledgeType,
    SharePartition,
    acknowledgement_batches,
    by_topic_id,
)
from odradek.client.core.sharing.acquired import Acquired, AcquiredRange, read_acquired
from odradek.client.core.sharing.share_session import ShareSession
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder

WHERE = TopicPartition("t", 3)
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def batch(base_offset: int, *values: bytes) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset)
    for value in values:
        builder.append(1_700_000_000_000, None, value)
    return bytes(builder.build())


def read(data: bytes, *ranges: tuple[int, int, int], value: object = None) -> Acquired:
    acquired = [AcquiredRange(*each) for each in ranges]
    return read_acquired(
        WHERE,
        memoryview(data),
        acquired,
        None,
        value,  # type: ignore[arg-type]
        check_crcs=True,
    )


def test_offsets_that_follow_one_another_and_have_one_answer_are_told_together() -> None:
    assert acknowledgement_batches({}) == []
    said = {7: ACCEPT, 5: ACCEPT, 6: ACCEPT, 8: RELEASE, 10: RELEASE, 11: GAP}
    assert acknowledgement_batches(said) == [
        {"first_offset": 5, "last_offset": 7, "acknowledge_types": [ACCEPT]},
        {"first_offset": 8, "last_offset": 8, "acknowledge_types": [RELEASE]},
        {"first_offset": 10, "last_offset": 10, "acknowledge_types": [RELEASE]},
        {"first_offset": 11, "last_offset": 11, "acknowledge_types": [GAP]},
    ]


def test_a_request_names_each_partition_once() -> None:
    one = SharePartition(UUID(int=1), TopicPartition("a", 0))
    two = SharePartition(UUID(int=1), TopicPartition("a", 1))
    [topic] = by_topic_id([one, two], {two: {4: ACCEPT}})
    assert topic["topic_id"] == UUID(int=1)
    partitions: list[dict[str, object]] = topic["partitions"]  # type: ignore[assignment]
    assert [each["partition_index"] for each in partitions] == [0, 1]
    assert [len(each["acknowledgement_batches"]) for each in partitions] == [0, 1]  # type: ignore[arg-type]


def test_a_session_tells_only_what_has_changed() -> None:
    one = SharePartition(UUID(int=1), TopicPartition("a", 0))
    two = SharePartition(UUID(int=2), TopicPartition("b", 0))
    session = ShareSession()
    assert not session.is_open
    assert session.added({one}) == {one}
    session.fetched({one})
    assert (session.epoch, session.is_open) == (1, True)
    assert session.added({one, two}) == {two}
    assert session.forgotten({two}) == {one}
    session.epoch = 2**31 - 1
    session.fetched({one, two})
    assert session.epoch == 1, "0 would open another session"
    session.reset()
    assert session.added({one}) == {one}


def test_only_what_was_acquired_is_given_out() -> None:
    """The broker sends whole batches."""
    data = batch(10, b"a", b"b", b"c", b"d") + batch(14, b"e", b"f")
    found = read(data, (11, 12, 3), (15, 15, 1))
    assert [(each.offset, each.delivery_count) for each in found.records] == [
        (11, 3),
        (12, 3),
        (15, 1),
    ]
    assert (found.answers, found.error) == ({}, None)
    assert read(b"") == Acquired([], {})


def test_offsets_without_records_are_gaps() -> None:
    """If this fails, locks of what was compacted away end again and again."""
    found = read(batch(10, b"a") + batch(12, b"c"), (10, 14, 1))
    assert [each.offset for each in found.records] == [10, 12]
    assert found.answers == {11: GAP, 13: GAP, 14: GAP}


def test_records_of_a_damaged_batch_are_rejected_and_those_behind_it_released() -> None:
    damaged = bytearray(batch(12, b"c", b"d"))
    damaged[-1] ^= 1
    found = read(batch(10, b"a", b"b") + bytes(damaged) + batch(14, b"e"), (10, 14, 1))
    assert [each.offset for each in found.records] == [10, 11]
    assert found.answers == {12: REJECT, 13: REJECT, 14: RELEASE}
    assert found.error is not None
    assert found.error.offset == 12


def test_what_is_no_batch_at_all_is_answered() -> None:
    found = read(b"\0" * 80, (3, 4, 1))
    assert (found.records, found.answers) == ([], {3: REJECT, 4: RELEASE})


class Knowing:
    """A deserializer that says what it was given."""

    def deserialize(self, topic: str, headers: object, data: bytes, /) -> object:
        return topic, headers, data


def test_a_deserializer_may_know_the_topic() -> None:
    found = read(batch(0, b"a"), (0, 0, 1), value=deserializing(Knowing()))
    assert [each.value for each in found.records] == [("t", [], b"a")]


def test_a_record_that_cannot_be_deserialized_is_released() -> None:
    """If this fails, one bad record keeps all others from being read."""
    found = read(batch(0, b"1", b"x", b"3"), (0, 2, 2), value=int)
    assert [each.value for each in found.records] == [1, 3]
    assert found.answers == {1: RELEASE}
    assert found.error is not None
    assert found.error.offset == 1
