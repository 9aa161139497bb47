"""`odradek reassign-partitions` beside Kafka's own tool, on a cluster of ours.

Both do the same, line by line, to topics of their own that lie alike; what they print must be the
same. Between brokers 1 and 2 the network is cut for a while, so that reassignments stay under way.
"""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.wire.java_tools import JavaTools

import odradek
from odradek.cli.main import main
from odradek.client import Admin
from odradek.client.core.admin_types import ConfigResource, NewTopic

TIME_LIMIT_S = deadline_s(120)
TOPIC_ID = re.compile(r"TopicId: \S{22}")
DIRECTORY = re.compile(r'"/[^"]*/broker-')

# The replicas of both partitions at first, and what the plans make of them.
FIRST = {0: [1], 1: [2]}
PLANS: dict[str, object] = {
    "swap": {0: [2], 1: [2]},
    "back": {0: [1]},
    "grow": {0: [1, 2]},
    "done": {0: [1, 3], 1: [2]},
    "alien": {0: [1, 9]},
    "empty": {},
    "twice": {0: [1, 1]},
    "none": {0: []},
    "unknown": {7: [1]},
    "version": {"version": 2, "partitions": []},
}

LINES = [
    "--list",
    "--execute --plan swap --throttle 5000",
    "--verify --plan swap",
    "topics --describe --topic {topic}",
    "topics --describe --topic {topic} --under-replicated-partitions",
    "--verify --plan back",
    "--list",
    "--execute --plan swap",
    "--execute --plan swap --additional --throttle 7000",
    "--cancel --plan swap --preserve-throttles",
    "--cancel --plan swap --preserve-throttles",
    "--verify --plan swap",
    "--execute --plan done",
    "--verify --plan done --preserve-throttles",
    "--cancel --plan done",
    "--execute --plan alien",
    "--execute --plan empty",
    "--execute --plan twice",
    "--execute --plan none",
    "--execute --plan unknown",
    "--execute --plan version",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[odradek.Cluster]:
    with odradek.Cluster(3) as started:
        yield started


@pytest.fixture
def ours(
    cluster: odradek.Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], tuple[int, str]]:
    """Runs our tool: its status and what it printed."""

    def call(words: list[str]) -> tuple[int, str]:
        capsys.readouterr()
        tool, *rest = words
        status = main([tool, "--bootstrap-server", cluster.bootstrap_servers, *rest])
        return status, capsys.readouterr().out

    return call


def untraced(text: str) -> str:
    """Without the stack trace that Kafka's tool prints behind an error."""
    if "\n\tat " not in text:
        return text
    return text[: text.index("\n", text.index("Error: ")) + 1]


@pytest.fixture
def theirs(
    cluster: odradek.Cluster, java_tools: JavaTools
) -> Callable[[list[str]], tuple[int, str]]:
    """Runs Kafka's tool: its status and what it printed, without stack traces."""

    def call(words: list[str]) -> tuple[int, str]:
        tool, *rest = words
        status, text, _ = java_tools(tool, ["--bootstrap-server", cluster.bootstrap_servers, *rest])
        return status, untraced(text)

    return call


async def create(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        made = await admin.create_topics([NewTopic(topic, assignment=FIRST)])
        assert made[topic].partitions == 2  # type: ignore[union-attr]


def words_of(line: str, topic: str, directory: Path) -> list[str]:
    """The tool and its words, with its plan for `topic` in a file."""
    words = line.format(topic=topic, directory=directory).split()
    if words[0] not in ("reassign-partitions", "topics"):
        words.insert(0, "reassign-partitions")
    if "--plan" not in words:
        return words
    place = words.index("--plan")
    plan = PLANS[words[place + 1]]
    assert isinstance(plan, dict)
    if "version" not in plan:
        rows = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for partition, replicas in plan.items()
        ]
        plan = {"version": 1, "partitions": rows}
    path = directory / f"{topic}-{words[place + 1]}.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return [*words[:place], "--reassignment-json-file", str(path), *words[place + 2 :]]


def take_turns(
    call: Callable[[list[str]], tuple[int, str]],
    cluster: odradek.Cluster,
    topic: str,
    directory: Path,
) -> list[tuple[int, str]]:
    """All lines by one of the tools, on a topic of its own."""
    cluster.partition(1, 2)
    asyncio.run(create(cluster.bootstrap_servers, topic))
    found = []
    for line in LINES:
        if "done" in line and "--execute" in line:
            cluster.heal()
        status, text = call(words_of(line, topic, directory))
        text = TOPIC_ID.sub("TopicId: ?", DIRECTORY.sub('"broker-', text).replace(topic, "T"))
        found.append((status, text))
        if "done" in line and "--execute" in line:
            asyncio.run(settled(cluster.bootstrap_servers))
    return found


async def settled(servers: str) -> None:
    async with Admin(servers) as admin, asyncio.timeout(TIME_LIMIT_S):
        while await admin.list_partition_reassignments():
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_every_line_prints_what_kafkas_tool_prints(
    cluster: odradek.Cluster,
    ours: Callable[[list[str]], tuple[int, str]],
    theirs: Callable[[list[str]], tuple[int, str]],
    tmp_path: Path,
) -> None:
    expected = take_turns(theirs, cluster, "moved-a", tmp_path)
    found = take_turns(ours, cluster, "moved-b", tmp_path)
    differing = [
        (line, theirs_said, ours_said)
        for line, theirs_said, ours_said in zip(LINES, expected, found, strict=True)
        if theirs_said != ours_said
    ]
    assert not differing, "\n".join(map(str, differing))


DIRECTORY_LINES = [
    "--verify {new}",
    "--execute {uneven}",
    "--execute {nowhere} --timeout 300",
    "--execute {new} --replica-alter-log-dirs-throttle 1024",
    "--verify {new}",
    "--verify {old}",
    "--execute {both} --additional --replica-alter-log-dirs-throttle 2048",
    "--cancel {both} --preserve-throttles",
    "--cancel {both}",
    "--execute {new} --throttle 5000 --replica-alter-log-dirs-throttle 1024",
    "--verify {unknown}",
    "--cancel {new}",
    "--list --timeout 5",
]


@pytest.mark.slow
def test_moves_between_log_directories_are_told_as_kafkas_tool_tells_them(
    java_tools: JavaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The moves are slowed down so much that they stay under way while they are looked at."""
    places = [str(tmp_path / name) for name in ("a", "b")]
    found = []
    with odradek.Broker(data_dir=",".join(places)) as broker:
        servers = broker.bootstrap_servers
        for topic, is_ours in (("dirs-a", False), ("dirs-b", True)):
            broker.create_topic(topic)
            for _ in range(100):
                broker.produce(topic, b"x" * 10_000)
            (old,) = [each for each in places if f"{topic}-0" in os.listdir(each)]
            (new,) = {*places} - {old}
            plans = {
                "new": (0, [new]),
                "old": (0, [old]),
                "both": (0, [new]),
                "uneven": (0, [new, "any"]),
                "nowhere": (0, ["/nowhere"]),
                "unknown": (7, [new]),
            }
            files = {}
            for name, (partition, log_dirs) in plans.items():
                row = {"topic": topic, "partition": partition, "replicas": [1]}
                plan = {"version": 1, "partitions": [row | {"log_dirs": log_dirs}]}
                path = tmp_path / f"{topic}-{name}.json"
                path.write_text(json.dumps(plan), encoding="utf-8")
                files[name] = f"--reassignment-json-file {path}"
            said = []
            for line in DIRECTORY_LINES:
                words = ["--bootstrap-server", servers, *line.format(**files).split()]
                if is_ours:
                    capsys.readouterr()
                    try:
                        status = main(["reassign-partitions", *words])
                    except SystemExit:
                        status = 1
                    text = capsys.readouterr().out
                else:
                    status, text, _ = java_tools("reassign-partitions", words)
                text = text.replace(old, "OLD").replace(new, "NEW").replace(topic, "T")
                said.append((line, status, untraced(text)))
            found.append(said)
    differing = [pair for pair in zip(*found, strict=True) if pair[0] != pair[1]]
    assert not differing, "\n".join(map(str, differing))


def test_a_throttle_is_set_and_cleared_with_the_last_look(
    cluster: odradek.Cluster, ours: Callable[[list[str]], tuple[int, str]], tmp_path: Path
) -> None:
    """A throttle that stays behind slows the cluster down for ever."""

    async def settings(topic: str) -> list[str | None]:
        names = [
            (ConfigResource.topic(topic), "leader.replication.throttled.replicas"),
            (ConfigResource.topic(topic), "follower.replication.throttled.replicas"),
            (ConfigResource.broker(1), "leader.replication.throttled.rate"),
        ]
        async with Admin(cluster.bootstrap_servers) as admin:
            described = await admin.describe_configs([resource for resource, _ in names])
            return [
                row.value if (row := described[resource].get(name)) else None  # type: ignore[union-attr]
                for resource, name in names
            ]

    topic = "throttled"
    asyncio.run(create(cluster.bootstrap_servers, topic))
    plan = words_of("--execute --plan grow --throttle 5000", topic, tmp_path)
    cluster.partition(1, 2)
    status, text = ours(plan)
    assert (status, "limit was set to 5000 B/s" in text) == (0, True), text
    assert asyncio.run(settings(topic)) == ["0:1", "0:2", "5000"]
    cluster.heal()
    asyncio.run(settled(cluster.bootstrap_servers))
    status, text = ours(words_of("--verify --plan grow", topic, tmp_path))
    assert (status, "Reassignment of partition throttled-0 is completed." in text) == (0, True)
    assert asyncio.run(settings(topic))[:2] == ["", ""]


def test_a_proposal_can_be_executed(
    cluster: odradek.Cluster, ours: Callable[[list[str]], tuple[int, str]], tmp_path: Path
) -> None:
    """`--generate` prints last a plan, on the brokers that were named."""
    topic = "proposed"
    asyncio.run(create(cluster.bootstrap_servers, topic))
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}), encoding="utf-8")
    line = "--generate --topics-to-move-json-file {directory}/topics.json --broker-list 3"
    status, text = ours(words_of(line, topic, tmp_path))
    assert status == 0, text
    plan = tmp_path / "plan.json"
    plan.write_text(text.splitlines()[-1], encoding="utf-8")
    assert [row["replicas"] for row in json.loads(plan.read_text())["partitions"]] == [[3], [3]]
    line = "--execute --reassignment-json-file {directory}/plan.json"
    assert ours(words_of(line, topic, tmp_path))[0] == 0
    asyncio.run(settled(cluster.bootstrap_servers))
    assert cluster.partition_state(topic, 1).replicas == (3,)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "--generate --topics-to-move-json-file {directory}/file.json --broker-list 1,1",
            "duplicate entries: [1]",
        ),
        (
            "--generate --topics-to-move-json-file {directory}/file.json --broker-list x",
            'For input string: "x"',
        ),
        ("--execute --reassignment-json-file {directory}/file.json", "list cannot be empty"),
        ("--verify --reassignment-json-file {directory}/not.json", "Unable to read file"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    ours: Callable[[list[str]], tuple[int, str]], tmp_path: Path, line: str, sentence: str
) -> None:
    file = tmp_path / "file.json"
    file.write_text('{"version": 1, "topics": [{"topic": "none"}]}', encoding="utf-8")
    status, text = ours(words_of(line, "none", tmp_path))
    assert status == 1
    assert text.startswith("Error: ")
    assert sentence in text


def test_wrong_usage_ends_with_2(ours: Callable[[list[str]], tuple[int, str]]) -> None:
    for words in (["--execute"], ["--list", "--verify"], []):
        with pytest.raises(SystemExit) as ended:
            ours(["reassign-partitions", *words])
        assert ended.value.code == 2
