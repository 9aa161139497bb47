"""A coordinator behind a dispatcher, and a client that speaks every version to it."""

from uuid import UUID

import pytest
from tests.unit.coordinator.consumer.test_consumer_migration import subscription

from odradek.coordinator.classic.group import ClassicGroup
from odradek.errors import ErrorCode
from odradek.protocol import messages

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = range(8, 17)
DELETE, OFFSET_DELETE, CONSUMER_HEARTBEAT = 42, 47, 68
METADATA = subscription(["t"], {})
RANGES = {
    COMMIT: (2, 10),
    FETCH: (1, 10),
    FIND: (0, 6),
    JOIN: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE: (0, 5),
    SYNC: (0, 5),
    DESCRIBE: (0, 6),
    LIST: (0, 5),
    DELETE: (0, 2),
    OFFSET_DELETE: (0, 0),
    CONSUMER_HEARTBEAT: (0, 1),
    69: (0, 1),
}


def every(api_key, since=0):
    """A test for each version of an API, from one on."""
    first, last = RANGES[api_key]
    return pytest.mark.parametrize("version", range(max(first, since), last + 1))


class Groups:
    """A coordinator behind the dispatcher, and a client."""

    def __init__(self, cluster, world):
        self.cluster = cluster
        self.world = world
        cluster.replace(groups=world.groups, metadata=world.metadata)

    def send(self, api_key, version, **fields):
        """Sends a request; the exchange, which may not be answered yet."""
        body = messages.encode_request(api_key, version, fields)
        exchange = self.cluster.exchange(api_key, version, body)
        self.cluster.dispatcher().handle_frame(exchange)
        self.world.groups.flush()
        return exchange

    def ask(self, api_key, version, **fields):
        """Sends a request; the answer, which comes once the clock has been looked at."""
        exchange = self.send(api_key, version, **fields)
        self.world.advance(0)
        return self.cluster.answer(exchange, api_key, version)

    def send_join(self, version, member_id="", **more):
        fields = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": ({"name": "range", "metadata": METADATA},),
        }
        return self.send(JOIN, version, **{**fields, **more})

    def join(self, version=9, member_id="", **more):
        """One JoinGroup."""
        exchange = self.send_join(version, member_id, **more)
        self.world.advance(0)
        return self.cluster.answer(exchange, JOIN, version)

    def member(self, version=9, **more):
        """Joins as a library does, and returns the answer that made it a member."""
        joined = self.join(version, **more)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(version, joined.member_id, **more)
        assert joined.error_code == 0
        return joined

    def sync(self, joined, version=5, assignment=b"share", **more):
        fields = {
            "group_id": "g",
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": ({"member_id": joined.member_id, "assignment": assignment},),
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        return self.ask(SYNC, version, **{**fields, **more})

    def stable(self, **more):
        """A stable group of one member; its JoinGroup's answer."""
        joined = self.member(**more)
        instance = {key: more[key] for key in more if key == "group_instance_id"}
        assert self.sync(joined, **instance).error_code == 0
        return joined

    def commit(self, version=9, partitions=None, topic="t", **more):
        topic_fields = {
            "name": topic,
            "topic_id": self.world.topic_id(topic) if topic in ("t", "u") else UUID(int=99),
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": "m"}
                for index, offset in (partitions or {0: 5}).items()
            ],
        }
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [topic_fields]}
        return self.ask(COMMIT, version, **{**fields, **more})

    def group(self) -> ClassicGroup:
        group = self.world.runtime.shard("g").registry.get("g")
        assert isinstance(group, ClassicGroup)
        return group
