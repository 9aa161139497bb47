"""Our command line beside Apache Kafka's, where a cluster shows more than one broker can: replicas
that are behind or away, and leaders that are not where they should be.

Both tools look at the same topics, and elect leaders in topics of their own that lie alike.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.wire.client.tools.answers import normal
from tests.wire.java_tools import Done, JavaTools

import odradek
from odradek.cli.main import main
from odradek.client import Admin
from odradek.client.core.admin_types import NewTopic

TIME_LIMIT_S = 120
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


@pytest.fixture
def cluster() -> Iterator[odradek.Cluster]:
    with odradek.Cluster(3, config={"auto.leader.rebalance.enable": "false"}) as started:
        yield started


async def prepare(servers: str) -> None:
    """Two topics for the two tools, one that a single broker has, and a group."""
    async with Admin(servers) as admin:
        settings = {"min.insync.replicas": "2"}
        topics = [NewTopic(name, config=settings, assignment=LAID) for name in OWN]
        made = await admin.create_topics([*topics, NewTopic("lone", assignment={0: [3], 1: [1]})])
        for each in made.values():
            assert not isinstance(each, Exception), each


async def in_sync(servers: str) -> None:
    """Waits until every replica is."""
    async with Admin(servers) as admin, asyncio.timeout(TIME_LIMIT_S):
        while any(
            len(each.in_sync_replicas) < len(each.replicas)
            for topic in (await admin.list_topics()).values()
            for each in topic.partition_metadata.values()
        ):
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_every_line_prints_what_kafkas_tool_prints(
    java: str,
    kafka_class_path: str,
    cluster: odradek.Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What an operator looks for when a broker is away would be told otherwise."""
    servers = ",".join(each.bootstrap_servers for each in cluster.brokers[:2])
    asyncio.run(prepare(servers))
    for topic in OWN:
        rows = [{"topic": topic, "partition": index} for index in (*LAID, 7)]
        (tmp_path / topic).write_text(json.dumps({"partitions": rows}), encoding="utf-8")
    failed: list[str] = []

    def ours(tool: str, words: list[str]) -> Done:
        capsys.readouterr()
        return Done(main([tool, *words]), *capsys.readouterr())

    def compare(line: str, *, both_on: str = "") -> None:
        answers, said = [], []
        tools: tuple[Callable[[str, list[str]], Done], ...] = (theirs, ours)
        for run, own in zip(tools, OWN, strict=True):
            topic = both_on or own
            tool, *words = line.format(topic=topic, folder=tmp_path).split()
            place = 1 if tool == "cluster" else 0
            words[place:place] = ["--bootstrap-server", servers]
            said.append(run(tool, words))
            answers.append(normal(said[-1], f"{{{line}", topic, "no group"))
        expected, found = answers
        if not expected.agrees(found):
            failed.append(f"{line}\n--- theirs {said[0]}\n--- ours {said[1]}")

    with JavaTools(java, kafka_class_path, tmp_path) as theirs:
        for line in LOOKING:
            compare(line, both_on=OWN[0])
        cluster.broker(3).stop()
        for line in LOOKING:
            compare(line, both_on=OWN[0])
        for line in ELECTING:
            compare(line)
        cluster.broker(3).start()
        asyncio.run(in_sync(servers))
        for line in ELECTING:
            compare(line)
        for line in LOOKING:
            compare(line, both_on=OWN[0])
        assert main([*EVERYWHERE.split(), "--bootstrap-server", servers]) == 0
        compare(EVERYWHERE)
    assert not failed, "\n\n".join(failed)
