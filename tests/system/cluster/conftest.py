"""One cluster of processes for the faults of a module, and which of them run everywhere.

The rarer ones take as long again and run only where they are asked for: `ODRADEK_ROUNDS=2`.
"""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("kazoo")

from tests.system.cluster.running_cluster import RunningCluster
from tools import peers

collect_ignore = [] if "ODRADEK_ROUNDS" in os.environ else ["test_rarer_faults.py"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """The cluster, as the test before has left it. It ends with the module: its six processes would
    run beside all later tests, and its ZooKeeper client draws random numbers, which Hypothesis
    watches."""
    try:
        with RunningCluster(tmp_path_factory.mktemp("cluster")) as made:
            yield made
            made.stop_soundly()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.fixture
def cluster(whole: RunningCluster) -> RunningCluster:
    """All of it there, whatever the test before has left."""
    whole.restore()
    return whole
