"""Fixtures over the fakes of `fakes`: waiting alone, and a replica manager over real logs."""

from collections.abc import Callable, Iterator

import pytest
from tests.unit.replication.fakes import Cluster, FakeQuota, FakeReplicas, batch

from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer


@pytest.fixture
def replicas() -> FakeReplicas:
    return FakeReplicas()


@pytest.fixture
def timer() -> MockTimer:
    return MockTimer()


@pytest.fixture
def new_purgatory(timer: MockTimer) -> Callable[[str], DelayedOperationPurgatory]:
    return lambda name: DelayedOperationPurgatory(name, timer)


@pytest.fixture
def cluster(tmp_path) -> Iterator[Cluster]:
    made = Cluster(str(tmp_path))
    yield made
    made.close()


@pytest.fixture(name="batch")
def batch_fixture() -> Callable[..., memoryview]:
    return batch


@pytest.fixture
def cluster_with_quota(tmp_path) -> Iterator[tuple[Cluster, FakeQuota]]:
    quota = FakeQuota()
    made = Cluster(str(tmp_path), quota)
    yield made, quota
    made.close()
