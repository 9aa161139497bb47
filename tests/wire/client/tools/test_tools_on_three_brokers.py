"""Our command line beside Apache Kafka's, where a cluster shows more than one broker can: replicas
that are behind or away, and leaders that are not where they should be.

Both tools look at the same topics, and elect leaders in topics of their own that lie alike: on
brokers in this process, and on processes that meet in a ZooKeeper.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.deadlines import deadline_s
from tests.wire.client.tools.comparing.answers import difference, normal
from tests.wire.java_tools import Done, JavaTools
from tools import peers
from tools.zookeeper_node import zookeeper_ensemble

import odradek
from odradek.cli.main import main
from odradek.client import Admin
from odradek.client.core.admin_types import ConfigResource, NewTopic
from odradek.client.core.metadata import PartitionMetadata
from odradek.model import TopicPartition
from odradek.testing.processes import ClusterProcess

TIME_LIMIT_S = deadline_s(120)
# Replicas by partition: the first one should lead.
LAID = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
# The topics of Kafka's tool and of ours.
OWN = ("orders-a", "orders-b")
# Moves leaders of every topic, so that there is nothing left to do for whoever comes second.
EVERYWHERE = "leader-election --election-type preferred --all-topic-partitions"
FILTERS = (
    *("", "--under-replicated-partitions", "--unavailable-partitions"),
    *("--under-min-isr-partitions", "--at-min-isr-partitions", "--topics-with-overrides"),
    "--unavailable-partitions --at-min-isr-partitions",
)
LOOKING = [
    *(
        f"topics --describe --topic {topic} {flags}"
        for topic in ("{topic}", "lone")
        for flags in FILTERS
    ),
    *(f"topics --describe {flags}" for flags in FILTERS[1:5]),
    "cluster list-endpoints",
    "log-dirs --describe --topic-list {topic} --broker-list 2",
    "log-dirs --describe --broker-list 2,9",
    "configs --describe --broker 2",
    "configs --describe --entity-type brokers",
    "consumer-groups --describe --group readers",
    "consumer-groups --describe --group readers --state",
    "get-offsets --topic {topic} --partitions 0,1",
]
ELECTING = [
    "leader-election --election-type preferred --topic {topic} --partition 2",
    "leader-election --election-type preferred --topic {topic} --partition 0",
    "leader-election --election-type unclean --topic {topic} --partition 1",
    "leader-election --election-type preferred --path-to-json-file {folder}/{topic}",
    "topics --describe --topic {topic}",
]
CHANGING = [
    "reassign-partitions --execute --reassignment-json-file {folder}/{topic}-moves",
    "reassign-partitions --verify --reassignment-json-file {folder}/{topic}-moves",
    "reassign-partitions --cancel --reassignment-json-file {folder}/{topic}-moves",
    "reassign-partitions --list",
    "topics --describe --topic {topic}",
    "configs --alter --topic {topic} --add-config retention.ms=99999",
    "configs --describe --topic {topic}",
    "topics --create --topic {topic}-more --partitions 2 --replication-factor 3",
    "topics --create --topic {topic}-more",
    "topics --create --topic {topic}-most --replication-factor 4",
    "topics --alter --topic {topic}-more --partitions 3",
    "topics --list --topic {topic}.*",
    "log-dirs --describe --topic-list {topic} --broker-list 1",
    "topics --delete --topic {topic}-more",
]
MOVES = {0: [3, 2], 1: [2, 1]}
# Elections and moves are for the test to begin.
SETTINGS = {"auto.leader.rebalance.enable": "false"}


class Trio(NamedTuple):
    """Three brokers, of which the last may go and come."""

    addresses: list[str]
    stop_last: Callable[[], object]
    start_last: Callable[[], object]

    @property
    def servers(self) -> str:
        """The brokers that stay."""
        return ",".join(self.addresses[:2])


@pytest.fixture(params=["in this process", "on a ZooKeeper"])
def trio(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trio]:
    if request.param == "in this process":
        with odradek.Cluster(3, config=SETTINGS) as brokers:
            last = brokers.broker(3)
            addresses = [each.bootstrap_servers for each in brokers.brokers]
            yield Trio(addresses, last.stop, last.start)
        return
    pytest.importorskip("kazoo")
    arguments = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    try:
        with (
            zookeeper_ensemble() as ensemble,
            ClusterProcess(tmp_path, ensemble.connect, *arguments) as cluster,
        ):
            process = cluster.brokers[3]

            def stop() -> None:
                process.stop()
                process.kill()  # of what has ended: its files are closed

            yield Trio(cluster.bootstrap_servers.split(","), stop, process.start)
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")


async def prepare(servers: str) -> None:
    """Two topics for the two tools, one that a single broker has, and a group."""
    async with Admin(servers) as admin:
        settings = {"min.insync.replicas": "2"}
        topics = [NewTopic(name, config=settings, assignment=LAID) for name in OWN]
        made = await admin.create_topics([*topics, NewTopic("lone", assignment={0: [3], 1: [1]})])
        for each in made.values():
            assert not isinstance(each, Exception), each


async def settled(addresses: list[str], live: set[int]) -> None:
    """Waits until all these brokers say the same: who is there, leads and is in sync, and how
    topics are set; nothing moves any more."""
    async with asyncio.timeout(TIME_LIMIT_S):
        while True:
            views = [await view(address) for address in addresses]
            if all(each == views[0] for each in views) and is_settled(views[0], live):
                return
            await asyncio.sleep(0.05)


class View(NamedTuple):
    """The output of a broker."""

    brokers: set[int]
    partitions: dict[TopicPartition, PartitionMetadata]
    settings: dict[str, str | None]
    is_moving: bool


async def view(address: str) -> View:
    async with Admin(address) as admin:
        topics = await admin.list_topics()
        resources = [ConfigResource.topic(name) for name in OWN]
        found = await admin.describe_configs(resources)
        return View(
            {each.id for each in (await admin.describe_cluster()).nodes},
            {
                partition: topic.partition_metadata[partition.partition]
                for topic in topics.values()
                for partition in topic.partitions
            },
            {
                f"{resource.name} {name}": entry.value
                for resource, entries in found.items()
                if isinstance(entries, dict)
                for name, entry in entries.items()
            },
            bool(await admin.list_partition_reassignments()),
        )


def is_settled(said: View, live: set[int]) -> bool:
    """Whether the brokers that are there are in sync, and no others that could be spared."""
    return (
        said.brokers == live
        and not said.is_moving
        and all(
            set(each.in_sync_replicas) == set(each.replicas) & live
            for each in said.partitions.values()
            if set(each.replicas) & live
        )
    )


@pytest.mark.slow
def test_every_line_prints_what_kafkas_tool_prints(
    java_tools: JavaTools,
    trio: Trio,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An operator would be told otherwise when a broker is away."""
    servers = trio.servers
    asyncio.run(prepare(servers))
    live = {1, 2, 3}
    for topic in OWN:
        moves = [{"topic": topic, "partition": n, "replicas": to} for n, to in MOVES.items()]
        plan = json.dumps({"version": 1, "partitions": moves})
        (tmp_path / f"{topic}-moves").write_text(plan, encoding="utf-8")
        rows = [{"topic": topic, "partition": index} for index in (*LAID, 7)]
        (tmp_path / topic).write_text(json.dumps({"partitions": rows}), encoding="utf-8")
    failed: list[str] = []

    def ours(tool: str, words: list[str]) -> Done:
        capsys.readouterr()
        return Done(main([tool, *words]), *capsys.readouterr())

    def compare(line: str, *, both_on: str = "") -> None:
        answered = []
        tools: tuple[Callable[[str, list[str]], Done], ...] = (java_tools, ours)
        for run, own in zip(tools, OWN, strict=True):
            topic = both_on or own
            tool, *words = line.format(topic=topic, folder=tmp_path).split()
            place = 1 if tool == "cluster" else 0
            words[place:place] = ["--bootstrap-server", servers]
            asyncio.run(settled([trio.addresses[each - 1] for each in live], live))
            done = run(tool, words)
            answered.append((done, normal(done, f"{{{line}", topic, "no group")))
        failed.extend(difference(line, *answered))

    for line in LOOKING:
        compare(line, both_on=OWN[0])
    trio.stop_last()
    live.remove(3)
    for line in LOOKING:
        compare(line, both_on=OWN[0])
    for line in ELECTING:
        compare(line)
    trio.start_last()
    live.add(3)
    for line in (*ELECTING, *CHANGING):
        compare(line)
    for line in LOOKING:
        compare(line, both_on=OWN[0])
    assert main([*EVERYWHERE.split(), "--bootstrap-server", servers]) == 0
    compare(EVERYWHERE)
    assert not failed, "\n\n".join(failed)
