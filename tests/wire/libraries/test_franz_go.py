"""franz-go's group sessions, which consume, transform and produce in transactions."""

import subprocess
import time
from collections.abc import Callable

import pytest
from tests.wire.libraries.test_transactions import (
    INPUTS,
    TIMEOUT_S,
    assert_carried,
    fill_source,
    read_all,
)
from tools import peers

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def program() -> str:
    try:
        return peers.franz_go()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("balancer", ["range", "sticky", "cooperative-sticky"])
def test_franz_go_carries_each_record_once(
    program: str, bootstrap: str, names: Callable[[str], str], balancer: str, version: str
) -> None:
    """Fails when franz-go's chain loses an input or has one twice, or a member of its group is told
    what it cannot go on after. `tests/wire/go` is the program."""
    source, target = names("source"), names("target")
    fill_source(bootstrap, source, target)
    command = [program, bootstrap, source, target, target, balancer, version, "once"]
    chain = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        await_carried(chain, bootstrap, target)
        printed, _ = chain.communicate(timeout=TIMEOUT_S)
    finally:
        chain.kill()
        chain.wait()
    assert printed.splitlines()[-1].startswith("ended "), printed
    assert_carried(bootstrap, target)


def await_carried(chain: subprocess.Popen[str], bootstrap: str, target: str) -> None:
    """Returns when everything is there, or the chain has ended."""
    deadline = time.monotonic() + TIMEOUT_S
    while chain.poll() is None and len(read_all(bootstrap, target, "read_committed")) < INPUTS:
        assert time.monotonic() < deadline, "the chain stands still"
