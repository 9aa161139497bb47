"""A produce request walks through the floors in a straight line, and this is every module of it.

The request is a real one over a real socket. The broker runs uncompiled in a process of its
own, because only interpreted code can be watched entering its files, and on a clock that stands
still, so that nothing else happens meanwhile.
"""

import os
import subprocess
import sys

from tests.deadlines import deadline_s

STEPS = {
    "a frame is found in what the socket gave": [
        "network/socket_protocol.py",
        "network/connection.py",
        "network/memory/receive_buffers.py",
        "clock.py",
        "protocol/framing.py",
        "protocol/exchange.py",
    ],
    "its header is read, its API's row is found": [
        "handlers/dispatcher.py",
        "protocol/header.py",
        "protocol/primitives.py",
        "handlers/api.py",
        "handlers/request.py",
    ],
    "its body is decoded, what its version forbids is refused, the rest is gathered": [
        "handlers/records/produce.py",
        "protocol/direct/produce.py",
        "handlers/topic_names.py",
        "handlers/records/gathered_appends.py",
    ],
    "nothing has to come before the append: it is in no transaction, and not heavy": [
        "handlers/records/before_append.py",
        "handlers/transactions/transaction_verification.py",
        "handlers/records/unpacking.py",
        "handlers/records/scheduled_records.py",
    ],
    "the socket read has ended: all of it goes to its partitions": [
        "replication/replica_manager.py",
        "replication/append.py",
        "replication/partition_table.py",
    ],
    "leadership and in-sync replicas are checked": [
        "replication/partition.py",
        "replication/in_sync_replicas.py",
    ],
    "batches are validated, sequences checked, offsets stamped": [
        "storage/log/appender.py",
        "storage/log/staging.py",
        "records/validate.py",
        "records/batch.py",
        "records/walk.py",
        "storage/producers/producer_state.py",
    ],
    "they are written, the indexes kept": [
        "storage/log/local_log.py",
        "storage/log/segments.py",
        "storage/log/segment.py",
        "storage/index/index_file.py",
        "storage/index/time_index.py",
        "storage/log/offset_metadata.py",
        "storage/files.py",
        "storage/log/segment_reader.py",
        "storage/log/leader_epochs.py",
    ],
    "the high watermark follows": ["storage/log/log.py"],
    "waiting fetches are woken; with acks=all the replicas are waited for": [
        "replication/delayed/purgatories.py",
        "purgatory/purgatory.py",
        "replication/delayed/keys.py",
        "replication/delayed/produce.py",
        "purgatory/delayed_operation.py",
        "timer/timer_task.py",
    ],
    "a broker that has metrics counts it, by its topic and by its stages": [
        "replication/traffic.py",
        "handlers/request_metrics.py",
    ],
    "a broker inside a program remembers the answer, should a test fail": [
        "server/in_process/last_errors.py",
        "server/observers.py",
    ],
}

# One of each floor, in the order in which they are entered.
WALK = [
    "network/connection.py",
    "handlers/dispatcher.py",
    "handlers/records/produce.py",
    "replication/replica_manager.py",
    "replication/partition.py",
    "storage/log/appender.py",
    "storage/log/segment.py",
]

WATCHED_PRODUCE = """
import threading
from pathlib import Path
from confluent_kafka import Producer
import odradek
from odradek.clock import ManualClock

package = str(Path(odradek.__file__).parent) + "/"
entered = []

def watch(frame, event, argument):
    if event == "call":
        path = frame.f_code.co_filename
        if path.startswith(package) and path not in entered:
            entered.append(path)

def produce():
    told = []
    producer.produce(
        "walked", b"value", timestamp=clock.wall_ms(), on_delivery=lambda *one: told.append(one)
    )
    assert producer.flush(60) == 0
    assert told[0][0] is None, told[0][0]

class StandingClock(ManualClock):
    # No upkeep comes between; as on the machine's clock nobody asks who is there.
    keeps_pace = True

clock = StandingClock()
threading.setprofile(watch)
with odradek.Broker(clock=clock) as broker:
    broker.create_topic("walked")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    produce()  # connects, and makes the segment's files
    walked = []
    # The client drops the connection that it began with some time: that is no part of the way.
    while not walked or any("handlers/records/parked_fetches.py" in path for path in walked):
        entered.clear()
        produce()
        walked = list(entered)
threading.setprofile(None)
print("\\n".join(path.removeprefix(package) for path in walked))
"""


def test_a_produce_walks_through_these_modules_and_no_others():
    """A floor was skipped, the order changed, or something joined the way that nobody named.

    A module that has to join it is added to the step that it belongs to.
    """
    done = subprocess.run(
        [sys.executable, "-c", WATCHED_PRODUCE],
        env=os.environ | {"ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=deadline_s(120),
        check=True,
    )
    entered = done.stdout.splitlines()
    assert [path for path in entered if path in WALK] == WALK, entered
    assert sorted(entered) == sorted(module for step in STEPS.values() for module in step)
