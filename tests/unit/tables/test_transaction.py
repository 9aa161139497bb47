"""A batch is written once under a writer's name, whoever repeats it and whenever it died."""

from collections.abc import Iterator

import pytest

from odradek import Broker
from odradek.client.errors import KafkaError
from odradek.model import TopicPartition
from odradek.tables.transaction import BatchTransaction, WriterName

MARKER = TopicPartition("out", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("out")
        yield running


def attempt(broker: Broker, task: int = 0) -> BatchTransaction:
    name = WriterName("q", task)
    return BatchTransaction(broker.bootstrap_servers, name, MARKER, timeout_ms=60_000)


def test_a_batch_is_begun_until_it_is_written(broker: Broker) -> None:
    """A repeated batch would be written twice, or one that was not never be."""
    with attempt(broker) as died:
        assert died.begin(0)
    with attempt(broker) as first:
        assert first.begin(0), "nothing was committed"
        first.commit(0)
    with attempt(broker) as again:
        assert not again.begin(0)
    with attempt(broker) as following:
        assert following.begin(1)
        following.commit(1)
    for batch_id, is_new in ((0, False), (1, False), (2, True)):
        with attempt(broker) as later:
            assert later.begin(batch_id) is is_new
    with attempt(broker, task=1) as other:
        assert other.begin(0), "another task has a name of its own"


def test_an_older_attempt_cannot_commit(broker: Broker) -> None:
    """Two attempts at one batch would both be visible."""
    with attempt(broker) as older, attempt(broker) as newer:
        assert older.begin(0)
        assert newer.begin(0)
        with pytest.raises(KafkaError):
            older.commit(0)
        newer.commit(0)
    with attempt(broker) as again:
        assert not again.begin(0)
