"""How long does a broker take to its first acknowledged record, and what does it hold then?

    python -m benchmarks.start [--rounds 7] [--partitions 10000] [--json]

Four figures, each the median over fresh processes. `process`: from starting `odradek start`
on an empty directory to the acknowledgement of a first record, which creates its topic; the
producer (librdkafka) is loaded before and told where the broker is as soon as that says so.
`in_process`: from `odradek.Broker()` to the same, in a process that has imported both.
`idle_mb`: what the broker's process keeps resident a second after that. `tool`: from starting
`odradek topics --list` to its first line.

With `--partitions` the start of a broker that has so many is measured instead, each with a
record, closed in order: seconds and CPU seconds until it is ready, what is resident then, and
how many descriptors it holds; and the same after a kill, when the logs are read again.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.figures import print_medians
from benchmarks.process_usage import cpu_seconds, resident_mb
from odradek.testing.processes import BrokerProcess

IDLE_SECONDS = 1.0

IN_PROCESS = """
import sys, time
start = time.perf_counter()
from odradek import Broker
imported = time.perf_counter()
from benchmarks.start import first_record
begin = time.perf_counter()
with Broker() as broker:
    ready = time.perf_counter()
    first_record(broker.bootstrap_servers)
    end = time.perf_counter()
    print(imported - start, ready - begin, end - begin)
"""


def first_record(bootstrap: str) -> None:
    """Sends one record to a topic that is not there yet and waits for its acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 3})
    errors: list[object] = []
    producer.produce("first", b"record", on_delivery=lambda error, _: errors.append(error))
    while not errors:
        producer.poll(0.1)
    assert errors == [None], f"the first record was refused: {errors}"


def process_round() -> dict[str, float]:
    """One broker process from its start to its first record, and its memory afterwards."""
    with tempfile.TemporaryDirectory(prefix="odradek-start-") as folder:
        begin = time.perf_counter()
        with BrokerProcess(folder) as broker:
            ready = time.perf_counter()
            first_record(broker.bootstrap_servers)
            end = time.perf_counter()
            time.sleep(IDLE_SECONDS)
            idle_mb = resident_mb(broker.pid)
            tool_ms = first_line_ms("topics", "--bootstrap-server", broker.bootstrap_servers)
    return {
        "process_ready_ms": (ready - begin) * 1000,
        "process_first_record_ms": (end - begin) * 1000,
        "idle_mb": idle_mb,
        "tool_first_line_ms": tool_ms,
    }


def first_line_ms(tool: str, *where: str) -> float:
    """From the start of `odradek TOOL --list` to its first line."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "odradek", tool, *where, "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listing:
        assert listing.stdout is not None, "it was opened with a pipe"
        line = listing.stdout.readline()
        end = time.perf_counter()
    assert line, "nothing was listed"
    return (end - begin) * 1000


def fill_partitions(address: str, count: int) -> None:
    """Makes topics of up to a thousand partitions, each by a request of its own, since a request
    is bounded, and puts a record into each partition."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    sizes = {f"many-{n}": min(1000, count - n) for n in range(0, count, 1000)}
    for name, size in sizes.items():
        admin.create_topics([NewTopic(name, size, 1)], request_timeout=300)[name].result()
    producer = Producer({"bootstrap.servers": address, "log_level": 3})
    errors: list[object] = []
    for name, size in sizes.items():
        for partition in range(size):
            producer.produce(
                name, b"x" * 100, partition=partition, on_delivery=lambda e, _: errors.append(e)
            )
    producer.flush(300)
    assert errors == [None] * count, f"{count} records, {len(errors)} answers: {set(errors)}"


def partitions_round(folder: str) -> dict[str, float]:
    """One start over the partitions that lie in `folder`."""
    begin = time.perf_counter()
    with BrokerProcess(folder) as broker:
        return {
            "ready_s": time.perf_counter() - begin,
            "ready_cpu_s": cpu_seconds(broker.pid),
            "resident_mb": resident_mb(broker.pid),
            "descriptors": len(list(Path(f"/proc/{broker.pid}/fd").iterdir())),
        }


def recovery_round(folder: str) -> dict[str, float]:
    """One start over the partitions after a kill."""
    with BrokerProcess(folder) as broker:
        broker.kill()
    measured = partitions_round(folder)
    return {f"after_kill_{name}": value for name, value in measured.items()}


def in_process_round() -> dict[str, float]:
    """One in-process broker, in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS], capture_output=True, text=True, check=True, timeout=60
    )
    imported, ready, end = (float(each) * 1000 for each in done.stdout.split())
    return {
        "import_ms": imported,
        "in_process_ready_ms": ready,
        "in_process_first_record_ms": end,
    }


def main(arguments: list[str]) -> int:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--partitions", type=int, help="measure a broker that has so many")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    if options.partitions is None:
        rounds = [process_round() | in_process_round() for _ in range(options.rounds)]
    else:
        with tempfile.TemporaryDirectory(prefix="odradek-start-") as folder:
            with BrokerProcess(folder) as broker:
                fill_partitions(broker.bootstrap_servers, options.partitions)
            rounds = [
                partitions_round(folder) | recovery_round(folder) for _ in range(options.rounds)
            ]
    print_medians(rounds, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
