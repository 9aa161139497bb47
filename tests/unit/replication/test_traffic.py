"""Of refused produces and fetches only those that nobody expects count as failures."""

import pytest

from odradek.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.replication.traffic import Traffic


@pytest.fixture
def traffic():
    counted = Traffic(ManualClock())
    counted.begin()
    counted.appended("orders", 100, 1)
    counted.fetched("orders", 100)
    return counted


def counts(traffic, topic="orders"):
    """Of a topic, and of all together: total and failed produces, total and failed fetches."""
    names = ("TotalProduce", "FailedProduce", "TotalFetch", "FailedFetch")
    found = {(each.name, each.tags): each.value.count for each in traffic.samples()}
    return [
        [found[f"{name}RequestsPerSec", tags] for name in names]
        for tags in ((("topic", topic),), ())
    ]


@pytest.mark.parametrize(
    ("error", "of_produce", "of_fetch"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0),
        (ErrorCode.KAFKA_STORAGE_ERROR, 0, 0),
        (ErrorCode.MESSAGE_TOO_LARGE, 0, 1),
        (ErrorCode.CORRUPT_MESSAGE, 0, 1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 1, 0),
        (ErrorCode.FENCED_LEADER_EPOCH, 1, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, 1, 1),
        (ErrorCode.INVALID_RECORD, 1, 1),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 1, 1),
    ],
)
def test_what_a_client_has_to_expect_is_no_failure(traffic, error, of_produce, of_fetch):
    """An alarm on failures would ring for each client that is late to hear of a new leader."""
    traffic.refused("orders", error)
    traffic.not_fetched("orders", error)
    assert counts(traffic) == [[2, of_produce, 2, of_fetch]] * 2


def test_a_topic_that_nobody_has_written_is_counted_in_the_whole_only(traffic):
    """Names that clients make up would fill the memory."""
    traffic.refused("made up", ErrorCode.INVALID_RECORD)
    assert counts(traffic) == [[1, 0, 1, 0], [2, 1, 1, 0]]
    assert {tags for each in traffic.samples() for tags in each.tags} == {("topic", "orders")}
