"""Test suites that were written for a container run on the fixture, only their conftest changed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

SUITES = Path(__file__).resolve().parents[2] / "examples" / "suites"
NEEDS = {"fastapi_orders": "fastapi", "stock_worker": "confluent_kafka", "faust_counts": "faust"}
TIMEOUT_S = deadline_s(300)


@pytest.mark.slow
@pytest.mark.parametrize("suite", sorted(NEEDS))
def test_a_suite_runs_on_the_fixture(suite: str) -> None:
    """A team that switches from a container would have to change its tests."""
    if find_spec(NEEDS[suite]) is None:
        pytest.skip(f"PEER MISSING, NOT TESTED: {NEEDS[suite]}")
    environment = {key: text for key, text in os.environ.items() if not key.startswith("KAFKA_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(SUITES / suite)],
        cwd=SUITES / suite,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if find_spec("httpx2") is not None:  # the older one is deprecated
        assert "StarletteDeprecationWarning" not in done.stdout


def test_every_suite_is_run() -> None:
    """A suite would lie there and rot."""
    assert {path.parent.name for path in SUITES.glob("*/conftest.py")} == set(NEEDS)
