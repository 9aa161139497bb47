"""A broker among libraries that freeze time: it starts, and goes by the machine's clock.

What such a library does (freezegun, above all) is done here by hand: `datetime` is replaced by a
class with a metaclass of its own, and functions of `time` in whichever module has them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

FREEZE = """
import datetime
import sys
import time

class Meta(type):
    def __instancecheck__(cls, one):
        return isinstance(one, true)

true = datetime.datetime
class Frozen(true, metaclass=Meta):
    pass

def freeze():
    datetime.datetime = Frozen
    # Not those that asyncio goes by: it is left alone.
    fakes = {id(time.time_ns): lambda: 1_000_000, id(time.monotonic_ns): lambda: 2_000_000}
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if id(value) in fakes:
                setattr(module, name, fakes[id(value)])
"""

USE = """
import asyncio
import odradek
from odradek.client import Admin

async def ask(servers):
    async with Admin(servers) as admin:
        return await admin.describe_cluster()

began = time.time()
with odradek.Broker() as broker:
    assert len(asyncio.run(ask(broker.bootstrap_servers)).nodes) == 1
    broker.produce("orders", b"one")
    [record] = broker.records("orders")
    assert began - 1 <= record.timestamp / 1000 <= time.time() + 1, record.timestamp
    clock = broker._clock
    before = clock.monotonic_ms()
    while clock.monotonic_ms() == before:
        pass
assert datetime.datetime is Frozen
"""

FIRST_USES = {
    "everything is imported while time is frozen": FREEZE + "freeze()\n" + USE,
    "the package is imported before": FREEZE + "import odradek\nfreeze()\n" + USE,
    "its clock is imported before": FREEZE
    + "from odradek.clock import SystemClock\nfreeze()\n"
    + USE,
}


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_a_broker_is_first_used_while_time_is_frozen(first_use: str) -> None:
    """It ended in a metaclass conflict, or waited for time-outs on a clock that stood; compiled
    another clock stood than from the sources."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USES[first_use]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
