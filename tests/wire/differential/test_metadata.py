"""Versions, cluster and topics: Apache Kafka and ours answer the same, field by field."""

from collections.abc import Callable

import pytest
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]


def test_api_versions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(5):
            peer.ask("api_versions", version, client_software_name="x", client_software_version="1")
        for name in ("", "-", "a b", "a.b-c", "ü"):
            peer.ask("api_versions", 4, client_software_name=name, client_software_version="1")

    same_answers(scenario)


def test_describe_cluster(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        for version in range(3):
            for wanted in (False, True):
                peer.ask("describe_cluster", version, include_cluster_authorized_operations=wanted)
        for kind in (0, 2, 3, -1):
            peer.ask("describe_cluster", 2, endpoint_type=kind)
        peer.ask("describe_cluster", 2, endpoint_type=1, include_fenced_brokers=True)

    same_answers(scenario)


def test_metadata(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        topic = {"name": "metadata", "num_partitions": 2, "replication_factor": 1}
        peer.ask("create_topics", 7, topics=[topic], timeout_ms=9000)
        peer.ask_until(_has_leaders, "metadata", 12, topics=[{"name": "metadata"}])
        for version in range(14):
            asked = {"allow_auto_topic_creation": False} if version >= 4 else {}
            for names in (["metadata"], ["metadata", "metadata"]):
                peer.ask("metadata", version, topics=[{"name": name} for name in names], **asked)
            if version >= 4:
                for name in ("none", "", ".", "a/b", "a" * 250, "__cluster_metadata"):
                    peer.ask("metadata", version, topics=[{"name": name}], **asked)
            if version >= 8:
                told = {"include_topic_authorized_operations": True}
                peer.ask("metadata", version, topics=[{"name": "metadata"}], **asked, **told)
            if 8 <= version <= 10:
                told = {"include_cluster_authorized_operations": True}
                peer.ask("metadata", version, topics=[], **asked, **told)

    same_answers(scenario)


def test_text_that_is_not_utf_8(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        peer.ask_raw("metadata", 1, b"\0\0\0\1\0\2\xff\xfe")
        peer.ask_raw("delete_topics", 1, b"\0\0\0\1\0\2\xc3\x28\0\0\0\x64")

    same_answers(scenario)


def _has_leaders(answer: object) -> bool:
    return all(not topic.error_code and topic.partitions for topic in answer.topics)
