"""A broker among libraries that freeze time starts, and its time-outs go by the machine's clock.

What such libraries do is done here by hand. freezegun replaces `datetime` by a class with a
metaclass of its own, and functions of `time` in whichever module has them; time-machine 2.13 to
2.19 changes what these functions do, the monotonic ones too. Both are left to stand for good.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

TIME_LIMIT_S = deadline_s(60)
ROOT = Path(__file__).parents[5]

BEFORE = """
import datetime
import logging
import os
import sys
import time

true = datetime.datetime

class Ending(logging.Handler):
    def emit(self, record):
        print(self.format(record), file=sys.stderr, flush=True)
        os._exit(1)

# A request that fails within the broker is answered, and its client asks again for long.
logging.getLogger("odradek").addHandler(Ending(logging.ERROR))
"""

FREEZEGUN = """
class Meta(type):
    def __instancecheck__(cls, one):
        return isinstance(one, true)

class Frozen(true, metaclass=Meta):
    pass

def freeze():
    datetime.datetime = Frozen
    readings = {"time_ns": 10**6, "monotonic": 2.0, "monotonic_ns": 2 * 10**9}
    readings |= {"perf_counter": 3.0, "perf_counter_ns": 3 * 10**9}
    fakes = {id(getattr(time, name)): lambda reading=one: reading for name, one in readings.items()}
    for module in filter(None, list(sys.modules.values())):
        for name, value in list(vars(module).items()):
            if id(value) in fakes:
                setattr(module, name, fakes[id(value)])
"""

TIME_MACHINE = """
import ctypes

Frozen = true
KEPT = []

def change(function, reading):
    definition = ctypes.c_void_p.from_address(id(function) + object.__basicsize__).value
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
    KEPT.append(kind(lambda *_: reading))
    code = ctypes.c_void_p.from_address(definition + ctypes.sizeof(ctypes.c_void_p))
    code.value = ctypes.cast(KEPT[-1], ctypes.c_void_p).value

def freeze():
    for name in ("time", "monotonic"):
        change(getattr(time, name), 9.0)
        change(getattr(time, f"{name}_ns"), 9 * 10**9)
"""

USE = """
import asyncio
import contextlib
import odradek
from odradek.client import Admin
from odradek.client.sync import Consumer

async def ask(servers):
    async with Admin(servers) as admin:
        return await admin.describe_cluster()

began = time.time()
with odradek.Broker(config={"group.initial.rebalance.delay.ms": 50}) as broker:
    assert len(asyncio.run(ask(broker.bootstrap_servers)).nodes) == 1
    broker.produce("orders", b"one")
    [record] = broker.records("orders")
    assert began - 1 <= record.timestamp / 1000 <= time.time() + 1, record.timestamp
    clock = broker._clock
    before = clock.monotonic_ms()
    while clock.monotonic_ms() == before:
        pass
    # Time-outs of the broker, and of the event loops of both.
    with Consumer(broker.bootstrap_servers, group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        while not consumer.assignment():
            consumer.getmany(timeout_ms=10)
    with contextlib.suppress(TimeoutError):
        broker.wait_for("orders", 2, timeout=0.05)
assert datetime.datetime is Frozen
"""

WITH_LOOPS_OF_ASYNCIO = 'sys.modules["uvloop"] = None\n'
AT_ONCE = "freeze()\n" + USE
BEHIND_THE_PACKAGE = "import odradek\n" + AT_ONCE
FIRST_USES = {
    "everything is imported while time is frozen": FREEZEGUN + AT_ONCE,
    "the package is imported before": FREEZEGUN + BEHIND_THE_PACKAGE,
    "its clock is imported before": FREEZEGUN + "from odradek.clock import SystemClock\n" + AT_ONCE,
    "without uvloop": FREEZEGUN + WITH_LOOPS_OF_ASYNCIO + BEHIND_THE_PACKAGE,
    "monotonic time stands for all": TIME_MACHINE + BEHIND_THE_PACKAGE,
    "it does, without uvloop": TIME_MACHINE + WITH_LOOPS_OF_ASYNCIO + BEHIND_THE_PACKAGE,
}


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_a_broker_is_used_while_time_is_frozen(first_use: str) -> None:
    """It ended in a metaclass conflict, or waited for time-outs on a clock that stood; compiled
    another clock stood than from the sources."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + FIRST_USES[first_use]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
