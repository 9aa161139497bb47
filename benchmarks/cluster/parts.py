"""The measurements of a cluster, a function each. They note figures, and leave the cluster whole.

Every one takes the cluster and the options of the command.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable

from benchmarks.broker import RECORD_BYTES, latencies_us, produce
from benchmarks.cluster.clusters import ClusterTarget, restart_all, wait_until
from benchmarks.cluster.loads import (
    LARGE_BATCH,
    SteadyWriter,
    acknowledged_again,
    high_watermark,
    pin,
    produce_on_cores,
)
from benchmarks.process_usage import cpu_seconds

MANY_PARTITIONS = 1_000
PARTITIONS_A_TOPIC = 1_000
ROLLED_PARTITIONS = 6
STEADY_RECORDS_PER_S = 600
SETTLING_S = 10
# By default librdkafka waits a minute for a broker that is silent, and asks nobody else meanwhile.
IMPATIENT = {
    "request.timeout.ms": 2_000,
    "socket.timeout.ms": 3_000,
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.max.ms": 200,
}


def _recycle_pages(target: ClusterTarget, options: argparse.Namespace) -> None:
    """Writes as much as will be measured, and deletes it, so that the page cache has pages for it.

    A virtual machine may have to get memory that was free for a while from its host again, at
    microseconds a page: twice what is measured here."""
    topic = target.create()
    produce(target.bootstrap, topic, options.records, LARGE_BATCH, "all")
    target.delete(topic)


def throughput(target: ClusterTarget, options: argparse.Namespace) -> None:
    """acks=all to three replicas, large batches: MB/s, CPU of all brokers a GB."""
    _recycle_pages(target, options)
    topic = target.create()
    cpu_s, began = target.cpu_s(), time.perf_counter()
    produce(target.bootstrap, topic, options.records, LARGE_BATCH, "all")
    elapsed = time.perf_counter() - began
    megabytes = options.records * RECORD_BYTES / 1e6
    target.note("produce_mb_per_s", megabytes / elapsed)
    target.note("produce_cpu_s_per_gb", (target.cpu_s() - cpu_s) / megabytes * 1000)
    target.delete(topic)


def latency(target: ClusterTarget, options: argparse.Namespace) -> None:
    """One record at a time with acks=all, to one replica and to three: what followers add."""
    medians = []
    for replicas in (1, 3):
        topic = target.create(replicas=replicas)
        times = sorted(latencies_us(target.bootstrap, topic, options.requests, "all"))
        medians.append(statistics.median(times))
        target.note(f"latency_{replicas}_replicas_p50_us", medians[-1])
        target.note(f"latency_{replicas}_replicas_p99_us", times[len(times) * 99 // 100])
        target.delete(topic)
    target.note("latency_added_by_followers_p50_us", medians[1] - medians[0])


def following(target: ClusterTarget, options: argparse.Namespace) -> None:
    """acks=1 as fast as the leader takes it: how far behind are the followers in the end?"""
    _recycle_pages(target, options)
    topic = target.create()
    began = time.monotonic()
    produce(target.bootstrap, topic, options.records, LARGE_BATCH, 1)
    written = time.monotonic()
    caught_up = wait_until(
        lambda: high_watermark(target.bootstrap, topic) == options.records,
        "the followers have everything",
    )
    target.note("acks_1_mb_per_s", options.records * RECORD_BYTES / 1e6 / (written - began))
    target.note("followers_behind_s", caught_up - written)
    target.note("followers_rate_of_leaders", (written - began) / (caught_up - began))
    target.note("followers_in_sync", len(target.partitions(topic)[0].isrs))
    target.delete(topic)


def failover(target: ClusterTarget, _: argparse.Namespace) -> None:
    """`kill -9` of a leader that is not the controller, and of one that is."""
    _failover(target, len(target.nodes), "")


def failover_1000(target: ClusterTarget, options: argparse.Namespace) -> None:
    """The same with a thousand partitions, and a record for each that has lost its leader."""
    _failover(target, options.many_partitions, f"{options.many_partitions}_")


def _failover(target: ClusterTarget, partitions: int, label: str) -> None:
    for role in ("leader", "controller"):
        topic = target.create(partitions)
        controller = target.controller()
        node = target.node(controller) if role == "controller" else target.other_than(controller)
        led = target.led_by(topic, node.id)
        # A session or a heartbeat is renewed now and then: any moment between has its turn.
        time.sleep(random.uniform(1, 4))
        first_s, last_s = acknowledged_again(target.bootstrap, led, node.process.kill)
        target.note(f"killed_{role}_{label}first_s", first_s)
        target.note(f"killed_{role}_{label}all_s", last_s)
        restart_all([node])
        target.await_in_sync(topic)
        target.delete(topic)


def pause(target: ClusterTarget, options: argparse.Namespace) -> None:
    """SIGSTOP of a leader that is not the controller, for three sessions, under a steady load."""
    topic = target.create(ROLLED_PARTITIONS)
    node = target.other_than(target.controller())
    led = {each.partition for each in target.led_by(topic, node.id)}
    writer = SteadyWriter(
        target.bootstrap, topic, ROLLED_PARTITIONS, STEADY_RECORDS_PER_S, **IMPATIENT
    )
    with writer:
        time.sleep(random.uniform(2, 4))
        began = time.monotonic()
        node.process.pause()
        time.sleep(3 * options.session_ms / 1000)
        node.process.resume()
        time.sleep(2)
    for name, partitions in (("of_it", led), ("of_others", writer.acknowledged.keys() - led)):
        target.note(f"paused_leader_{name}_s", writer.longest_pause_s(partitions, since=began))
    target.note("paused_leader_errors", len(writer.errors))
    target.await_in_sync(topic)
    target.delete(topic)


def rolling(target: ClusterTarget, _: argparse.Namespace) -> None:
    """Every broker stopped in order and started again while a producer writes."""
    topic = target.create(ROLLED_PARTITIONS)
    writer = SteadyWriter(target.bootstrap, topic, ROLLED_PARTITIONS, STEADY_RECORDS_PER_S)
    with writer:
        time.sleep(2)
        for node in target.nodes:
            began = time.monotonic()
            node.process.stop()
            target.note("rolling_stop_s", time.monotonic() - began)
            node.process.kill()  # closes the log of the ended process
            restart_all([node])
            target.await_in_sync(topic)
        time.sleep(2)
    target.note("rolling_longest_pause_s", writer.longest_pause_s(writer.acknowledged))
    target.note("rolling_slowest_record_s", writer.slowest_s)
    target.note("rolling_errors", len(writer.errors))
    target.delete(topic)


def partitions_10000(target: ClusterTarget, options: argparse.Namespace) -> None:
    """Many partitions: what brokers take when nothing happens, and a controller that dies."""
    began = time.monotonic()
    sizes = [
        min(PARTITIONS_A_TOPIC, options.partitions - first)
        for first in range(0, options.partitions, PARTITIONS_A_TOPIC)
    ]
    topics = [target.create(size) for size in sizes]
    target.note("many_created_s", time.monotonic() - began)
    time.sleep(SETTLING_S)
    pids = [each.process.pid for each in target.nodes]
    before = [cpu_seconds(pid) for pid in pids]
    time.sleep(options.idle)
    for pid, used in zip(pids, before, strict=True):
        percent = (cpu_seconds(pid) - used) / options.idle * 100
        target.note("many_idle_core_percent", percent)
    dead = target.node(target.controller())
    elected_at = _watch_controller(target)
    began = time.monotonic()
    dead.process.kill()
    pending = list(topics)

    def has_moved() -> bool:
        while pending and _has_moved(target, pending[-1], dead.id):
            pending.pop()
        return not pending

    done = wait_until(has_moved, "no partition is led by the dead broker")
    target.note("many_failover_since_kill_s", done - began)
    target.note("many_failover_since_expiry_s", done - elected_at())
    restart_all([dead])
    for topic in topics:
        target.await_in_sync(topic)
    target.note("many_whole_again_s", time.monotonic() - done)
    for topic in topics:
        target.delete(topic)


def _has_moved(target: ClusterTarget, topic: str, dead: int) -> bool:
    found = target.partitions(topic)
    return bool(found) and all(each.leader not in (-1, dead) for each in found)


def _watch_controller(target: ClusterTarget) -> Callable[[], float]:
    """Gives the moment at which ZooKeeper has let go of the controller that is there now."""
    from kazoo.client import KazooClient

    client = KazooClient(target.zookeeper)
    client.start()
    gone: list[float] = []
    assert client.exists("/controller", watch=lambda _event: gone.append(time.monotonic()))

    def moment() -> float:
        client.stop()
        client.close()
        assert gone, "ZooKeeper let go of the old controller"
        return gone[0]

    return moment


def cores(target: ClusterTarget, options: argparse.Namespace) -> None:
    """A broker and its producer on one core, and as many such pairs as there are cores."""
    available = sorted(os.sched_getaffinity(0))
    pairs = list(zip(available, target.nodes, strict=False))
    jobs = []
    for core, node in pairs:
        pin(node.process.pid, {core})
        jobs.append((core, f"127.0.0.1:{node.port}", target.create_on(node)))
    alone = produce_on_cores(jobs[:1], options.records)
    together = produce_on_cores(jobs, options.records)
    for _, node in pairs:
        pin(node.process.pid, set(available))
    for _, _, topic in jobs:
        target.delete(topic)
    target.note("cores", len(pairs))
    target.note("cores_one_pair_mb_per_s", alone)
    target.note("cores_all_pairs_mb_per_s", together)
    target.note("cores_share_of_linear", together / alone / len(pairs))


Part = Callable[[ClusterTarget, argparse.Namespace], None]
PARTS: dict[str, Part] = {
    "throughput": throughput,
    "latency": latency,
    "following": following,
    "failover": failover,
    "failover-1000": failover_1000,
    "pause": pause,
    "rolling": rolling,
    "cores": cores,
    "partitions": partitions_10000,
}
"""By the names of the flag, in the order in which they are measured."""
REPEATED = ("throughput", "latency", "following", "failover", "pause", "rolling", "cores")
"""Those of which every round is one; the others take long and are measured once."""
OURS_ALONE = ("cores", "partitions")
"""Those whose goals are not relative to Kafka."""
