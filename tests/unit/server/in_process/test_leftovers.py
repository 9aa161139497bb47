"""Brokers leave nothing behind in a process that starts and stops very many."""

import gc
from collections import Counter

import pytest

import odradek


def use_and_stop(count: int) -> None:
    """So many brokers, each with a topic, a record, and everything that waits for its clock."""
    for _ in range(count):
        with odradek.Broker(clock=odradek.ManualClock()) as broker:
            broker.create_topic("orders")
            broker.produce("orders", b"one")
            assert len(broker.records("orders")) == 1


def ours() -> Counter[str]:
    """The objects of our classes that there are, by class."""
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith("odradek.")
    )


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_brokers_that_were_stopped_are_gone(count: int) -> None:
    """A suite with a broker for each of its thousand tests would need gigabytes. Only compiled
    classes can be kept from the collector, so it is those that this is for."""
    use_and_stop(2)
    before = ours()
    use_and_stop(count)
    # Caches fill up, one by one; whatever is left of each broker is there `count` times.
    left = {kind: more for kind, more in (ours() - before).items() if more >= count}
    assert left == {}


def test_clusters_that_were_stopped_are_gone() -> None:
    """Its brokers have channels to each other, fetchers, and a controller, all with retries."""

    def use(count: int) -> None:
        for _ in range(count):
            with odradek.Cluster(brokers=2, clock=odradek.ManualClock()) as cluster:
                cluster.create_topic("orders", replication_factor=2)

    use(1)
    before = ours()
    use(4)
    assert {kind: more for kind, more in (ours() - before).items() if more >= 4} == {}
