"""If these fail, consumers of different clients do not understand one another, or a malformed
member breaks the coordinator.
"""

import pytest

from odradek.model import TopicPartition
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.protocol.primitives import ProtocolError

OWNED = (TopicPartition("a", 0), TopicPartition("a", 1))


def test_the_bytes_are_kafkas() -> None:
    """Taken from Kafka's definitions: topics and owned partitions sorted, then generation, rack."""
    subscription = Subscription(("b", "a"), (OWNED[1], OWNED[0]), None, 7, "r")
    assert encode_subscription(subscription) == bytes.fromhex(
        "000300000002000161000162ffffffff0000000100016100000002000000000000000100000007000172"
    )
    assert encode_assignment(Assignment((TopicPartition("a", 2),))) == bytes.fromhex(
        "0003000000010001610000000100000002ffffffff"
    )


@pytest.mark.parametrize("version", range(4))
def test_each_version_says_what_it_can(version: int) -> None:
    """A member's partitions would be taken from it, or what it never said be believed."""
    whole = Subscription(("a", "b"), OWNED, b"data", 7, "r", version=version)
    expected = Subscription(
        ("a", "b"),
        OWNED if version >= 1 else (),
        b"data",
        7 if version >= 2 else -1,
        "r" if version >= 3 else None,
        version=version,
    )
    assert decode_subscription(encode_subscription(whole)) == expected
    assignment = Assignment(OWNED, b"data", version)
    assert decode_assignment(encode_assignment(assignment)) == assignment


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    """Newer clients could not join a group that upgrades."""
    subscription = Subscription(("a",), OWNED, None, 7, "r", version=9)
    decoded = decode_subscription(encode_subscription(subscription) + b"more")
    assert decoded == subscription._replace(version=3)


def test_the_topics_are_read_whatever_follows() -> None:
    """The offsets of a group would expire under members of a version that we do not know."""
    prefix = encode_subscription(Subscription(("a", "b"), version=0))[2:]
    for version in (b"\0\0", b"\0\3", b"\0\x09", b"\xff\xff"):
        assert decode_subscribed_topics(version + prefix) == ("a", "b")
        with pytest.raises(ProtocolError):
            decode_subscribed_topics(version + prefix[:-1])


def test_no_bytes_are_an_assignment_of_nothing() -> None:
    """A member that its leader forgot could not go on."""
    assert decode_assignment(b"") == Assignment(())


@pytest.mark.parametrize(
    "data", [b"\0", b"\0\1\0\0\0\7", b"\0\0\0\0\0\1\0\1\xff", b"\xff\xff" + bytes(12)]
)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    """A member's bytes would be an error of ours, or be believed though they are not meant so."""
    with pytest.raises(ProtocolError):
        decode_subscription(data)
    with pytest.raises(ProtocolError):
        decode_assignment(data)
