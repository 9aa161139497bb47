"""A produce request walks through seven files in a straight line; nothing else in the core.

The request is a real one over a real socket. The broker runs uncompiled in a process of its
own, because only interpreted code can be watched entering its files.
"""

import os
import subprocess
import sys

WALK = [
    "network/connection.py",
    "handlers/dispatcher.py",
    "handlers/produce.py",
    "replication/replica_manager.py",
    "replication/partition.py",
    "storage/log/log.py",
    "storage/log/segment.py",
]

WATCHED_PRODUCE = """
import sys, threading
from confluent_kafka import Producer
import odradek

entered = []

def watch(frame, event, argument):
    if event == "call":
        path = frame.f_code.co_filename
        if path not in entered:
            entered.append(path)

threading.setprofile(watch)
with odradek.Broker() as broker:
    broker.create_topic("walked")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.list_topics("walked", 60)
    entered.clear()
    producer.produce("walked", b"value")
    assert producer.flush(60) == 0
    walked = list(entered)
threading.setprofile(None)
print("\\n".join(path.partition("odradek/")[2] for path in walked if "/src/odradek/" in path))
"""


def test_a_produce_walks_through_seven_files():
    """A floor was skipped, or the order in which a request goes through them changed."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED_PRODUCE],
        env=os.environ | {"ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    entered = done.stdout.split()
    assert [path for path in entered if path in WALK] == WALK, entered
