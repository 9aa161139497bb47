"""What do three brokers cost, and how do they stand the loss of one, beside Apache Kafka's three?

    python -m benchmarks.cluster                         # all parts, some twenty minutes
    python -m benchmarks.cluster --part throughput --part latency --rounds 5
    python -m benchmarks.cluster --without-kafka --part partitions --partitions 1000

Three brokers of ours on a ZooKeeper and three nodes of Apache Kafka 4.3 run side by side, with the
same session time-out and otherwise default settings; rounds alternate between them, and what is
not measured at the moment idles. The client is librdkafka, with default settings where nothing else
is said. Medians are printed, and kept in `benchmarks/results/cluster.json` part by part: a run of
some parts leaves the figures of the others there.

`--part` may be given several times:

throughput     acks=all, three replicas, min.insync.replicas=2, 1 KiB, large batches
latency        one acknowledged record at a time, with one replica and with three
following      acks=1 at full rate: whether followers keep up
failover       kill -9 of a leader, and of the controller, until a producer is acknowledged again
failover-1000  the same with a thousand partitions
pause          a leader that stands still for three sessions, under load: the longest silence
rolling        every broker stopped and started again under load
cores          a broker a core beside one broker (ours alone)
partitions     ten thousand partitions: idle CPU, and a controller that dies (ours alone)
"""

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

from benchmarks.broker import in_turn, produce, ratios, table
from benchmarks.cluster.clusters import ClusterTarget, our_cluster, peer_cluster
from benchmarks.cluster.loads import LARGE_BATCH
from benchmarks.cluster.parts import MANY_PARTITIONS, OURS_ALONE, PARTS, REPEATED, latency
from benchmarks.purgatory.sweep import RESULTS as PURGATORY_RESULTS
from benchmarks.purgatory.sweep import machine

RESULTS = PURGATORY_RESULTS.with_name("cluster.json")
WARM_UP_RECORDS = 10_000


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--part", action="append", choices=PARTS, help="all when left out")
    add("--rounds", type=int, default=3, help="of the parts that are repeated")
    add("--records", type=int, default=300_000, help="of 1 KiB, a workload")
    add("--requests", type=int, default=3_000, help="for latency")
    add("--session-ms", type=int, default=4_000, help="of a broker, in both clusters")
    add("--many-partitions", type=int, default=MANY_PARTITIONS, help="of failover-1000")
    add("--partitions", type=int, default=10_000, help="of the last part, three replicas each")
    add("--idle", type=float, default=15, help="seconds of looking at idle brokers")
    add("--warm-up-mb", type=int, default=1_500, help="for Kafka, before anything is measured")
    add("--without-kafka", action="store_true", help="ours alone")
    add("--no-save", action="store_true", help="leave the results file as it is")
    return parser.parse_args(arguments)


def warm_up(target: ClusterTarget, megabytes: int) -> None:
    """Brings a JVM up to its speed."""
    topic = target.create()
    for _ in range(max(1, megabytes * 1_000_000 // 1024 // WARM_UP_RECORDS)):
        produce(target.bootstrap, topic, WARM_UP_RECORDS, LARGE_BATCH, "all")
    target.delete(topic)
    latency(target, argparse.Namespace(requests=2_000))
    target.figures.clear()


def measure(name: str, targets: list[ClusterTarget], options: argparse.Namespace) -> dict[str, Any]:
    """One part: its rounds, in turns. Prints the medians, and gives them."""
    chosen = targets[:1] if name in OURS_ALONE else targets
    began = time.monotonic()
    for number in range(options.rounds if name in REPEATED else 1):
        for target in in_turn(chosen, number):
            print(f"{name}: {target.name}, round {number + 1}", file=sys.stderr, flush=True)
            os.sync()  # else a round pays for what the one before has written
            PARTS[name](target, options)
    over = ratios(chosen[0], chosen[1]) if len(chosen) == 2 else {}
    print(table(list(chosen), over), flush=True)
    print(f"{name} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    found = {each.name: each.medians() for each in chosen} | {"ratios": over}
    for each in chosen:
        each.figures.clear()
    return found


def save(parts: dict[str, Any]) -> None:
    """Puts the parts into the results beside what is there of others."""
    kept: dict[str, Any] = {}
    if RESULTS.exists():
        kept = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"]
    results = {"machine": machine(), "parts": kept | parts}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Starts the clusters, and measures part after part."""
    options = parse(arguments)
    names = [name for name in PARTS if name in (options.part or PARTS)]
    settings = {
        "rounds": options.rounds,
        "records": options.records,
        "session_ms": options.session_ms,
    }
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(our_cluster(options.session_ms))]
        warm_up(targets[0], min(200, options.warm_up_mb))
        if not options.without_kafka and set(names) - set(OURS_ALONE):
            targets.append(stack.enter_context(peer_cluster(options.session_ms)))
            warm_up(targets[1], options.warm_up_mb)
        for name in names:
            found = measure(name, targets, options)
            if not options.no_save:
                save({name: settings | found})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
