"""ARCHITECTURE.md draws how a produce, a fetch, a join and an EndTxn walk through the
floors that decide; these are traces of real requests, with modules in the order of their entry.

The broker runs uncompiled in a process of its own, as in `test_straight_line`, on a clock that
stands still. Each request is sent twice, and the second one traced: the first opens files.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

ROOT = Path(__file__).parents[2]
# The rest has values and codecs, or is on every walk.
FLOORS = ("handlers", "coordinator", "replication", "storage", "purgatory")

TRACED = """
import json, sys, threading
from pathlib import Path
from tests.wire.differential.harness import Peer, Target
from tests.wire.differential.groups.test_transactions import add, batch, owner
import odradek
from odradek.clock import ManualClock

package = str(Path(odradek.__file__).parent) + "/"
entered = {}
serving = []

def watch(frame, event, argument):
    path = frame.f_code.co_filename
    if event == "call" and path.startswith(package + "network/"):
        serving[:] = [threading.get_ident()]
    if event == "call" and path.startswith(package) and serving == [threading.get_ident()]:
        entered[path.removeprefix(package)] = None

class StandingClock(ManualClock):
    # As on the machine's clock nobody asks who is there.
    keeps_pace = True

async def nothing():
    pass

def traced(send, before=lambda number: None):
    for number in range(2):
        before(number)
        broker._wait(nothing())
        entered.clear()
        send(number)
        broker._wait(nothing())
    return list(entered)

def produce(data):
    partition = {"index": 0, "records": data}
    topics = [{"name": "walked", "partition_data": [partition]}]
    peer.quietly("produce", 9, acks=-1, timeout_ms=9000, topic_data=topics, **ids)

def fetch(number):
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic": "walked", "partitions": [partition]}]
    peer.quietly("fetch", 11, max_wait_ms=0, min_bytes=1, topics=topics, session_epoch=-1)

def find_coordinator(number):
    name = f"joined-{number}"
    code = None
    while code is None or code.value:
        peer.quietly("find_coordinator", 4, coordinator_keys=[name], key_type=0)
        (group,) = peer.quietly("describe_groups", 5, groups=[name]).groups
        code = group.error_code

def join(number):
    wanted = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
    protocols = [{"name": "range", "metadata": b""}]
    peer.quietly("join_group", 3, group_id=f"joined-{number}", protocol_type="consumer",
                 protocols=protocols, **wanted)

def begin(number):
    add(peer, who, 3, ("walked", [0]))
    ids.update(transactional_id="walks")
    produce(batch(who, number))

def end(number):
    peer.quietly("end_txn", 3, committed=True, **who.fields)

threading.setprofile(watch)
clock = StandingClock()
with odradek.Broker(clock=clock) as broker:
    broker.create_topic("walked")
    peer = Peer(Target(broker.bootstrap_servers))
    ids = {}
    plain = batch(owner(peer, "unused")._replace(producer_id=-1, epoch=-1), -1, False)
    who = owner(peer, "walks")
    walks = {
        "produce": traced(lambda number: produce(plain)),
        "fetch": traced(fetch),
        "join": traced(join, find_coordinator),
        "EndTxn": traced(end, begin),
    }
    peer.close()
threading.setprofile(None)
print(json.dumps(walks))
"""


@pytest.fixture(scope="module")
def walks() -> dict[str, list[str]]:
    """The modules that each request enters, in their order."""
    done = subprocess.run(
        [sys.executable, "-c", TRACED],
        cwd=ROOT,
        env=os.environ | {"ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=deadline_s(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {
        name: [module for module in modules if module.startswith(FLOORS)]
        for name, modules in found.items()
    }


def drawn(name: str) -> list[str]:
    """The modules that the page names, in the code block behind the walk's name: a floor in each
    line, or none where the line goes on with that of the line before."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^{name}:\n\n((?:    .*\n)+)", page, re.MULTILINE)
    found, floor = [], ""
    for line in block.splitlines():
        floor = line[4:].partition(" ")[0] or floor
        found += [f"{floor}/{module}" for module in re.findall(r"\S+\.py", line)]
    return found


@pytest.mark.parametrize("name", ["produce", "fetch", "join", "EndTxn"])
def test_a_walk_is_drawn_as_it_is(walks: dict[str, list[str]], name: str) -> None:
    """Somebody who reads the page would look for a decision in the wrong room."""
    assert walks[name] == drawn(name)
