"""The transactions of the cluster's tests, beside faults of their own library."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("kazoo")

from tests.system.cluster.polling import PATIENCE_S
from tests.system.cluster.transactions import ABORTED_EVERY, TransactionalLoad

from odradek import Broker

TOPIC = "numbers"


def test_a_record_that_was_given_up_costs_no_later_one() -> None:
    """The record of an aborted transaction is in the log, its producer has not heard so and gives
    its sequence number to the next one: that was lost, and its transaction committed."""
    with Broker() as broker, ThreadPoolExecutor(1) as thread:
        broker.create_topic(TOPIC)
        load = TransactionalLoad(broker.bootstrap_servers, TOPIC, 1)
        for _ in range(ABORTED_EVERY - 1):
            load.go_on()
        with (
            broker.drop("Produce", times=1, after=True) as lost,
            broker.drop("Produce") as unheard,
            broker.fail("TxnOffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS") as waits,
        ):
            aborted = thread.submit(load.go_on)
            broker.wait_for_fault(lost, timeout=PATIENCE_S)
            broker.wait_for_fault(unheard, timeout=PATIENCE_S)
            waits.end()
            aborted.result(PATIENCE_S)
        load.go_on()
        assert load.history.aborted == [ABORTED_EVERY - 1]
        assert load.history.committed == [*range(ABORTED_EVERY - 1), ABORTED_EVERY]
        assert load.findings() == []
