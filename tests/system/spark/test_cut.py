"""Queries that write exactly once behind a shuffle, started again with other cores.

If this fails, a batch of which a task was committed is written twice in part when Spark cuts it
otherwise: adaptive execution makes as many tasks as there are cores, or is turned off or on. It
is refused, and written as it was cut before. Three Sparks, of 2, 4 and 1 cores, with the same two
queries, which those before have left in the middle of a commit.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

from odradek import Broker

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

TIMEOUT_S = deadline_s(400)
FOLDER = Path(__file__).parent / "kills"
# By the cores of each session.
SESSIONS = {
    2: ("adaptive:on:2:dies", "plain:off:2:dies"),
    4: ("adaptive:on:4:refused", "adaptive:on:2:done", "plain:off:4:done", "plain:off:4:dies"),
    1: ("plain:on:1:refused", "plain:off:1:done", "adaptive:on:1:done"),
}


def test_no_row_is_there_twice_whatever_cores_come(tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    path = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "ODRADEK_SPARK_KILLS": str(plans),
    }
    with Broker() as broker:
        for topic in ("in", "adaptive", "plain"):
            broker.create_topic(topic, partitions=2)
        for cores, steps in SESSIONS.items():
            program = [str(FOLDER / "cut.py"), broker.bootstrap_servers, str(tmp_path)]
            done = subprocess.run(
                [sys.executable, *program, str(cores), *steps],
                env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            everything = places(broker, "in")
            for topic in ("adaptive", "plain"):
                there = places(broker, topic)
                assert there <= everything
                # In the middle of a commit some are there, and not all.
                assert (there == everything) == (cores == 1)
                assert there.total() > 0


def places(broker: Broker, topic: str) -> Counter[bytes | None]:
    """How often every value is there, of what is committed."""
    return Counter(record.value for record in broker.records(topic, read_committed=True))
