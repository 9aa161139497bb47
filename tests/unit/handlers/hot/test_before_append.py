"""Steps between a produce request and its append: what they may do, and in which order."""

from types import SimpleNamespace

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.records.before_append import BeforeAppend
from odradek.model import TopicPartition

ORDERS = TopicPartition("orders", 0)


class Step(BeforeAppend):
    """Waits to be told, or answers at once; concerns the acknowledgements that it is made for."""

    def __init__(self, name, log, *, at_once=None, acks=(-1, 0, 1)):
        self.name = name
        self.log = log
        self.at_once = at_once
        self.acks = acks
        self.waiting = []

    def concerns(self, append):
        return append.required_acks in self.acks

    def start(self, append, on_done):
        self.log.append((self.name, append.transactional_id, [tp for tp, _ in append.entries]))
        if self.at_once is not None:
            on_done(self.at_once)
        else:
            self.waiting.append(on_done)


@pytest.fixture
def stepped(broker):
    """Puts steps before the appends of a broker with one topic of two partitions."""
    broker.create("orders", 2)

    def put(*steps):
        broker.cluster.replace(before_append=steps)
        broker.dispatcher = Dispatcher(broker.cluster.context)
        return broker

    return put


def test_a_step_that_is_done_at_once_is_appended_with_its_read(stepped, batch):
    """Every produce of an unverified client would be an append of its own."""
    log = []
    broker = stepped(Step("one", log, at_once={}), Step("two", log, at_once={}))
    exchange = broker.send_produce(batch(b"a"), txn="t")
    assert exchange.batched
    assert broker.log().log_end_offset == 0
    broker.dispatcher.end_of_read()
    assert broker.produced(exchange).base_offset == 0
    assert log == [("one", "t", [ORDERS]), ("two", "t", [ORDERS])]


def test_a_step_that_takes_time_holds_its_request_only(stepped, batch):
    """Order would be lost, or a connection answered before its records are in the log."""
    slow = Step("slow", [], acks=(-1,))
    broker = stepped(slow)
    before = broker.send_produce(batch(b"before"))
    waiting = broker.send_produce(batch(b"waits"), acks=-1)
    assert not waiting.batched, "the network handles nothing more of the connection"
    broker.dispatcher.end_of_read()
    assert broker.produced(before).base_offset == 0
    assert waiting.sent is None
    assert len(waiting.frame) > 0, "the batches are still its own"
    other = broker.send_produce(batch(b"of another connection"))
    broker.dispatcher.end_of_read()
    assert broker.produced(other).base_offset == 1
    slow.waiting[0]({})
    assert broker.produced(waiting).base_offset == 2


def test_what_a_step_refuses_is_answered_and_the_rest_appended(stepped, batch):
    """A partition would be appended without permission, or all be refused for one."""
    refused = {ORDERS: BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")}
    log = []
    for at_once in (refused, None):
        first = Step("first", log, at_once=at_once)
        broker = stepped(first, Step("second", log, at_once={}))
        log.clear()
        exchanges = [broker.send_produce(batch(b"a"), partition=n) for n in (0, 1)]
        for on_done in first.waiting:
            on_done(refused)
        broker.dispatcher.end_of_read()
        codes = [broker.produced(exchange).error_code for exchange in exchanges]
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
        assert broker.log().log_end_offset == 0
        second = [partitions for name, _, partitions in log if name == "second"]
        assert second == [[TopicPartition("orders", 1)]], "nothing left to ask for the refused"
    assert broker.log("orders", 1).log_end_offset == 2


def test_a_step_that_fails_is_answered(stepped, batch, caplog):
    """The producer would wait until its own time-out."""

    class Broken(Step):
        def start(self, append, on_done):
            raise RuntimeError("boom")

    broker = stepped(Broken("broken", []))
    exchange = broker.send_produce(batch(b"a"))
    assert broker.produced(exchange).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "boom" in caplog.text


def test_an_append_that_fails_after_a_step_is_answered(stepped, batch, caplog):
    """The frame is gone by then: the answer must not have to read it again."""

    def explode(requests):
        raise RuntimeError("boom")

    slow = Step("slow", [])
    broker = stepped(slow)
    broker.cluster.replace(replicas=SimpleNamespace(append_records=explode))
    broker.dispatcher = Dispatcher(broker.cluster.context)
    exchange = broker.send_produce(batch(b"a"))
    slow.waiting[0]({})
    assert broker.produced(exchange).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.log().log_end_offset == 0


def test_without_acknowledgement_a_refusal_closes_the_connection(stepped, batch):
    """The client has no other way to learn that its records were refused."""
    slow = Step("slow", [])
    broker = stepped(slow)
    exchange = broker.send_produce(batch(b"a"), acks=0)
    slow.waiting[0]({ORDERS: BrokerError(ErrorCode.INVALID_TXN_STATE)})
    assert exchange.closed
