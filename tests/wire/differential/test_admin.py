"""Topics, partitions, directories, features, quotas and the quorum, beside an Apache Kafka."""

import gzip
import time
from collections.abc import Callable
from uuid import UUID

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
TIMEOUT_MS = 9000
ODD_NAMES = ("", ".", "..", "a b", "x" * 250, "ä", "__cluster_metadata")


def create(peer: Peer, version: int = 7, **topic: object) -> None:
    wish = {"num_partitions": 1, "replication_factor": 1} | topic
    peer.ask("create_topics", version, topics=[wish], timeout_ms=TIMEOUT_MS)


def by_hand(*replicas: list[int]) -> dict[str, object]:
    assignments = [
        {"partition_index": index, "broker_ids": each} for index, each in enumerate(replicas)
    ]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": assignments}


def test_topics_are_made(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(2, 8):
            create(peer, version, name=f"made-{version}", num_partitions=2)
            create(peer, version, name=f"made-{version}")
        for name in ODD_NAMES:
            create(peer, name=name)
        for name in ("a.b", "a_b", "__consumer_offsets", "__transaction_state"):
            create(peer, name=f"made-{name}")
        for counts in ((0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, 2), (1, -2), (-1, -1)):
            name = f"made{counts[0]}and{counts[1]}"
            create(peer, name=name, num_partitions=counts[0], replication_factor=counts[1])
        for index, replicas in enumerate(([[1]], [[1], [1]], [[]], [[1, 1]], [[2]], [[1], []])):
            create(peer, name=f"made-by-hand-{index}", **by_hand(*replicas))
        twice = [{"partition_index": 0, "broker_ids": [1]}] * 2
        gap = [{"partition_index": index, "broker_ids": [1]} for index in (0, 2)]
        unset = {"num_partitions": -1, "replication_factor": -1}
        create(peer, name="made-twice", assignments=twice, **unset)
        create(peer, name="made-with-a-gap", assignments=gap, **unset)
        create(peer, name="made-both", assignments=twice[:1])
        for configs in TOPIC_CONFIGS:
            create(peer, name="made-of", configs=[{"name": n, "value": v} for n, v in configs])
        for index, configs in enumerate(ODDLY_WRITTEN):
            wanted = [{"name": n, "value": v} for n, v in configs]
            create(peer, name=f"made-oddly-{index}", configs=wanted)
        same = {"name": "made-two", "num_partitions": 1, "replication_factor": 1}
        peer.ask("create_topics", 7, topics=[same, same], timeout_ms=TIMEOUT_MS)
        other = same | {"name": "made-three"}
        peer.ask(
            "create_topics", 6, topics=[same, other], timeout_ms=TIMEOUT_MS, validate_only=True
        )
        peer.ask("create_topics", 7, topics=[], timeout_ms=TIMEOUT_MS)

    same_answers(scenario)


TOPIC_CONFIGS = (
    [("no.such", "1")],
    [("retention.ms", None)],
    [("retention.ms", "x")],
    [("retention.ms", "1"), ("retention.ms", "2")],
    [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "1")],
    [("cleanup.policy", "compact"), ("min.insync.replicas", "2")],
)
# Answered as they were written.
ODDLY_WRITTEN = (
    [("max.message.bytes", " 5000 "), ("preallocate", "TRUE"), ("retention.ms", "+007")],
    [("cleanup.policy", "delete,delete"), ("min.cleanable.dirty.ratio", " 0.50 ")],
    [("cleanup.policy", " compact , delete "), ("leader.replication.throttled.replicas", " *")],
    [("leader.replication.throttled.replicas", "0:1, *")],
    [("leader.replication.throttled.replicas", ",0:1")],
)


def test_topics_are_deleted(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(1, 6):
            create(peer, name=f"deleted-{version}")
            names = [f"deleted-{version}", "deleted-none", "", "a b"]
            peer.ask("delete_topics", version, topic_names=names, timeout_ms=TIMEOUT_MS)
            twice = ["deleted-none"] * 2
            peer.ask("delete_topics", version, topic_names=twice, timeout_ms=TIMEOUT_MS)
        create(peer, name="deleted-6")
        for topics in (
            [{"name": "deleted-6"}, {"name": "deleted-none"}],
            [{"name": "deleted-none"}] * 2,
            [{"name": None, "topic_id": None}],
            [],
        ):
            peer.ask("delete_topics", 6, topics=topics, timeout_ms=TIMEOUT_MS)

    same_answers(scenario)


def test_topics_grow(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, name="grown")
        peer.ask_until(_has_leaders, "metadata", 12, topics=[{"name": "grown"}])
        for version in range(4):
            grow = {"timeout_ms": TIMEOUT_MS, "validate_only": False}
            for count, assignments in (
                (version + 2, None),
                (version + 2, None),
                (1, None),
                (0, None),
                (-1, None),
                (20, [[1]]),
                (version + 3, [[1, 1]]),
                (version + 3, [[2]]),
                (version + 3, [[]]),
                (version + 3, []),
            ):
                hand = None if assignments is None else [{"broker_ids": a} for a in assignments]
                topic = {"name": "grown", "count": count, "assignments": hand}
                peer.ask("create_partitions", version, topics=[topic], **grow)
            for name in ("grown-none", "", "a b"):
                topic = {"name": name, "count": 3, "assignments": None}
                peer.ask("create_partitions", version, topics=[topic], **grow)
            topic = {"name": "grown", "count": 30, "assignments": None}
            peer.ask("create_partitions", version, topics=[topic, topic], **grow)
            grow["validate_only"] = True
            peer.ask("create_partitions", version, topics=[topic], **grow)

    same_answers(scenario)


@pytest.mark.of_three_too(False)  # of a cluster each has one directory
def test_log_directories(same_answers: Check) -> None:
    def describe(peer: Peer, version: int, settled: Callable[[object], bool], **wanted: object):
        answer = peer.ask_until(settled, "describe_log_dirs", version, **wanted)
        # Which directory comes first, and which a new replica lies in, is chance.
        peer.answers[-1].values["results"].sort(key=lambda each: not each["topics"])
        return answer

    def home_of(answer: object, *, is_future: bool = False) -> list[str]:
        return [
            each.log_dir
            for each in answer.results
            for topic in each.topics
            for partition in topic.partitions
            if partition.is_future_key == is_future
        ]

    def scenario(peer: Peer) -> None:
        name = "in-a-directory"
        create(peer, name=name)
        peer.ask_until(_has_leaders, "metadata", 12, topics=[{"name": name}])
        wanted = {"topics": [{"topic": name, "partitions": [0, 7]}]}
        for version in range(1, 6):
            home = describe(peer, version, home_of, **wanted)
            for topics in ([{"topic": "none", "partitions": [0]}], []):
                describe(peer, version, lambda _: True, topics=topics)
        (own,) = home_of(home)
        (other,) = {each.log_dir for each in home.results} - {own}
        for version in (1, 2):
            for path in (own, "/no/such/directory", "relative", ""):
                for topic in (name, "none", "a b", "x" * 220):
                    moved = {"path": path, "topics": [{"name": topic, "partitions": [0, 9]}]}
                    peer.ask("alter_replica_log_dirs", version, dirs=[moved])
            peer.ask("alter_replica_log_dirs", version, dirs=[])
            for path in (other, own):
                moved = {"path": path, "topics": [{"name": name, "partitions": [0]}]}
                peer.ask("alter_replica_log_dirs", version, dirs=[moved, moved])
                describe(peer, 5, lambda answer, path=path: home_of(answer) == [path], **wanted)

    same_answers(scenario)


@pytest.mark.of_three_too(False)  # how far one has come is chance
def test_reassignments(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, name="reassigned", num_partitions=2)
        peer.ask_until(_has_leaders, "metadata", 12, topics=[{"name": "reassigned"}])
        for version in (0, 1):
            for topic in ("reassigned", "none", "", "a b"):
                for index in (0, 9, -1):
                    for replicas in ([1], [], [2], [1, 1], [1, 2], [-1], None):
                        part = {"partition_index": index, "replicas": replicas}
                        topics = [{"name": topic, "partitions": [part]}]
                        peer.ask(
                            "alter_partition_reassignments",
                            version,
                            topics=topics,
                            timeout_ms=TIMEOUT_MS,
                        )
            peer.ask("alter_partition_reassignments", version, topics=[], timeout_ms=TIMEOUT_MS)
        for topics in (
            None,
            [],
            [{"name": "reassigned", "partition_indexes": [0, 9]}],
            [{"name": "none", "partition_indexes": [0]}],
        ):
            peer.ask_eventually(
                "list_partition_reassignments", 0, topics=topics, timeout_ms=TIMEOUT_MS
            )

    same_answers(scenario)


@pytest.mark.of_three_too(False)  # ours tell of theirs where they are alone
def test_the_quorum(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(3):
            for topic, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("x", 0)):
                part = {"topic_name": topic, "partitions": [{"partition_index": index}]}
                peer.ask("describe_quorum", version, topics=[part])
            peer.ask("describe_quorum", version, topics=[])

    same_answers(scenario)


def test_features(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(3):
            for name, level, kind in FEATURE_UPDATES:
                update = {"feature": name, "max_version_level": level}
                update |= {"allow_downgrade": kind != 1} if version == 0 else {"upgrade_type": kind}
                dry = {} if version == 0 else {"validate_only": True}
                wish = {"feature_updates": [update], "timeout_ms": TIMEOUT_MS}
                peer.ask("update_features", version, **wish, **dry)
            peer.ask("update_features", version, feature_updates=[], timeout_ms=TIMEOUT_MS)

    same_answers(scenario)


UPGRADE, SAFE, UNSAFE = 1, 2, 3


def test_features_are_lowered_and_raised(same_answers: Check) -> None:
    def update(peer: Peer, version: int, *updates: tuple[str, int, int]) -> None:
        asked = [
            {"feature": name, "max_version_level": level, "upgrade_type": kind}
            for name, level, kind in updates
        ]
        wish = {"feature_updates": asked, "timeout_ms": TIMEOUT_MS}
        peer.ask("update_features", version, **wish, validate_only=False)
        software = {"client_software_name": "a", "client_software_version": "1"}
        for version in (0, 3, 4):
            peer.ask_eventually("api_versions", version, **(software if version else {}))

    def scenario(peer: Peer) -> None:
        member = {"group_id": "of-a-feature", "member_id": "m", "member_epoch": 0}
        joining = {"rebalance_timeout_ms": 9000, "subscribed_topic_names": ["none"]}
        for version in (1, 2):
            update(peer, version, ("group.version", 0, SAFE))
            for beat in (0, 1):
                peer.ask_eventually("consumer_group_heartbeat", beat, **member, **joining)
                peer.ask_eventually("consumer_group_describe", beat, group_ids=["of-a-feature"])
            update(peer, version, ("group.version", 1, SAFE))
            update(peer, version, ("group.version", 1, UNSAFE))
            update(peer, version, ("group.version", 1, UPGRADE), ("no.such.feature", 1, UPGRADE))
            update(peer, version, ("group.version", 1, UPGRADE), ("group.version", 0, SAFE))
            update(peer, version, ("group.version", 1, UPGRADE))
            for level, kind in ((1, SAFE), (0, UNSAFE), (0, SAFE), (2, SAFE), (2, UPGRADE)):
                update(peer, version, ("transaction.version", level, kind))
            update(peer, version, ("metadata.version", 29, SAFE), ("group.version", 0, SAFE))
            update(peer, version, ("metadata.version", 29, UNSAFE))
            update(peer, version, ("kraft.version", 0, SAFE))

    same_answers(scenario)


FEATURE_UPDATES = (
    ("metadata.version", 30, 1),
    ("metadata.version", 31, 1),
    ("metadata.version", 6, 2),
    ("metadata.version", 29, 1),
    ("group.version", 1, 1),
    ("group.version", 2, 1),
    ("group.version", 0, 1),
    ("transaction.version", 2, 1),
    ("transaction.version", 3, 1),
    ("no.such.feature", 1, 1),
    ("no.such.feature", 0, 2),
    ("", 1, 1),
    ("group.version", 1, 0),
    ("group.version", 1, 9),
)


def test_quotas_that_nobody_set(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in (0, 1):
            for filters in QUOTA_FILTERS:
                for strict in (False, True):
                    components = [
                        {"entity_type": kind, "match_type": match, "match": name}
                        for kind, match, name in filters
                    ]
                    peer.ask(
                        "describe_client_quotas", version, components=components, strict=strict
                    )

    same_answers(scenario)


EXACT, DEFAULT, ANY = range(3)
QUOTA_FILTERS = (
    [],
    [("user", EXACT, "alice")],
    [("user", DEFAULT, None)],
    [("user", ANY, None)],
    [("client-id", EXACT, "app")],
    [("client-id", ANY, None)],
    [("client-id", DEFAULT, None)],
    [("user", EXACT, "alice"), ("client-id", EXACT, "app")],
    [("user", ANY, None), ("client-id", ANY, None)],
    [("ip", ANY, None)],
    [("ip", EXACT, "127.0.0.9")],
    [("ip", ANY, None), ("user", ANY, None)],
    [("no-such", ANY, None)],
    [("", ANY, None)],
    [("user", ANY, None), ("user", ANY, None)],
    [("user", 3, None)],
    [("user", EXACT, None)],
    [("user", ANY, "alice")],
)


def test_resources_with_settings_are_listed(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        step = {"name": "metrics", "config_operation": 0, "value": "*"}
        subscription = {"resource_type": 16, "resource_name": "listed", "configs": [step]}
        peer.ask("incremental_alter_configs", 1, resources=[subscription], validate_only=False)
        step = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
        group = {"resource_type": 32, "resource_name": "listed", "configs": [step]}
        peer.ask("incremental_alter_configs", 1, resources=[group], validate_only=False)
        peer.ask_eventually("list_config_resources", 0)
        for kinds in ([16], [32], [4], [8], [1], [3], [99], [16, 32], [16, 16]):
            peer.ask_eventually("list_config_resources", 1, resource_types=kinds)

    same_answers(scenario)


@pytest.mark.of_three_too(False)  # about one broker, and about time
def test_telemetry_that_nothing_receives(same_answers: Check) -> None:
    """Both hide the two APIs, and answer who asks all the same."""

    def get(peer: Peer, who: UUID | None) -> object:
        answer = peer.ask("get_telemetry_subscriptions", 0, client_instance_id=who)
        if peer.answers[-1].values["requested_metrics"]:
            peer.answers[-1].values["requested_metrics"].sort()
        return answer

    def push(peer: Peer, who: UUID | None, number: int, **fields: object) -> None:
        metrics = {"terminating": False, "compression_type": 0, "metrics": b"m"} | fields
        wish = {"client_instance_id": who, "subscription_id": number} | metrics
        peer.ask("push_telemetry", 0, **wish)

    def subscribe(peer: Peer, name: str, metrics: str, match: str) -> None:
        steps = [
            {"name": key, "config_operation": 0, "value": value}
            for key, value in (("metrics", metrics), ("match", match), ("interval.ms", "3600000"))
        ]
        resource = {"resource_type": 16, "resource_name": name, "configs": steps}
        peer.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)

    def until_told(peer: Peer, metric: str) -> None:
        deadline = time.monotonic() + deadline_s(60)
        told: tuple[str, ...] = ()
        while metric not in told and "*" not in told:
            assert time.monotonic() < deadline, f"{metric} is not told"
            # Each question is a client of its own.
            told = peer.quietly("get_telemetry_subscriptions", 0).requested_metrics

    def scenario(peer: Peer) -> None:
        software = {"client_software_name": "soft", "client_software_version": "1.2"}
        peer.ask("api_versions", 4, **software)
        for index, fields in enumerate(PUSHES):
            who = UUID(int=1000 + index)
            number = get(peer, who).subscription_id
            push(peer, who, number, **fields)
            push(peer, who, number)
            push(peer, who, number, terminating=True)
            push(peer, who, number)
            get(peer, who)
        # No further: Kafka lets a client in again that has ended, and keeps out whom it has refused
        # a last push (KAFKA-20898).
        ended = UUID(int=1900)
        push(peer, ended, get(peer, ended).subscription_id, terminating=True)
        push(peer, ended, 1)
        for who in (None, UUID(int=0), UUID(int=1)):
            get(peer, who)
            push(peer, who, 1)
        who = UUID(int=2000)
        push(peer, who, 1)
        number = get(peer, who).subscription_id
        push(peer, who, number)
        subscribe(peer, "by-client", "a.b,c", "client_id=differ.*,client_source_address=127.*")
        until_told(peer, "c")
        get(peer, UUID(int=2001))
        subscribe(peer, "by-software", "d", "client_software_name=so.t")
        until_told(peer, "d")
        get(peer, UUID(int=2002))
        subscribe(peer, "by-other", "e", "client_software_version=1")
        subscribe(peer, "by-id", "f", "client_instance_id=A*[A-Za-z0-9_-]*")
        until_told(peer, "f")
        get(peer, UUID(int=2003))
        push(peer, who, number)

    same_answers(scenario)


PUSHES = (
    {},
    {"compression_type": 9},
    {"compression_type": -1},
    {"subscription_id": 5},
    {"subscription_id": 5, "compression_type": 9},
    {"metrics": b"x" * 1_048_577},
    {"metrics": b"x" * 1_048_576},
    {"metrics": b""},
    *({"compression_type": codec, "metrics": b"garbage"} for codec in (1, 2, 3, 4)),
    {"compression_type": 1, "metrics": gzip.compress(b"metrics")},
    {"compression_type": 1, "metrics": gzip.compress(b"metrics")[:-9]},
)


def test_names_of_topics_that_are_none(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, name="described-producers")
        peer.ask_until(_has_leaders, "metadata", 12, topics=[{"name": "described-producers"}])
        for name in ("described-producers", "none", *ODD_NAMES):
            topic = {"name": name, "partition_indexes": [0, 3, -1]}
            peer.ask_eventually("describe_producers", 0, topics=[topic])
            for version in range(3):
                parts = [{"partition_index": index, "offset": 0} for index in (0, 3, -1)]
                deleted = {"name": name, "partitions": parts}
                peer.ask_eventually(
                    "delete_records", version, topics=[deleted], timeout_ms=TIMEOUT_MS
                )
                elected = {"topic": name, "partitions": [0, 3, -1]}
                kind = {"election_type": 0} if version else {}
                peer.ask_eventually(
                    "elect_leaders",
                    version,
                    topic_partitions=[elected],
                    timeout_ms=TIMEOUT_MS,
                    **kind,
                )
            if not name:
                continue  # Kafka's own exception
            peer.ask_eventually(
                "describe_topic_partitions",
                0,
                topics=[{"name": name}],
                response_partition_limit=10,
                cursor=None,
            )

    same_answers(scenario)


def _has_leaders(answer: object) -> bool:
    return all(not topic.error_code and topic.partitions for topic in answer.topics)
