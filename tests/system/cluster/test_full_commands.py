"""The test is the controller of three processes, and has read a part of what they have: its full
commands name some partitions only, in an order of their own, with more commands right behind them.
Nothing that is not named may go, and who is named leads.
"""

import base64
import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

pytest.importorskip("kazoo")

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadlines import deadline_s
from tests.system.cluster.polling import PATIENCE_S, until
from tests.system.cluster.running_cluster import BROKERS, PARTITIONS, RunningCluster

from odradek.errors import ErrorCode
from odradek.metadata.zookeeper import znodes
from odradek.model import TopicPartition as Where
from odradek.protocol import messages
from odradek.protocol.framing import encode_size
from odradek.protocol.header import decode_response_header, encode_request_header

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster faults")]

NOBODY: Final = 99
LEADER_AND_ISR, UPDATE_METADATA, LIST_OFFSETS = 4, 6, 2
VERSIONS: Final = {LEADER_AND_ISR: 7, UPDATE_METADATA: 8, LIST_OFFSETS: 7}
PART, FULL = 1, 2
TOPIC, UNNAMED, ELSEWHERE = "named", "named-transactions", "elsewhere"
GROUP: Final = "of elsewhere"


States = list[dict[str, Any]]


class Question(NamedTuple):
    """A request: the number of its API, and its values."""

    api: int
    values: dict[str, Any]

    @property
    def frame(self) -> bytes:
        version = VERSIONS[self.api]
        header = encode_request_header(self.api, version, 1, "the test", 2)
        body = header + messages.encode_request(self.api, version, self.values)
        return encode_size(len(body)) + body


def ask(address: tuple[str, int], *questions: Question) -> list[Any]:
    """The answers to requests that are sent all at once."""
    answers = []
    with (
        socket.create_connection(address, deadline_s(30)) as connection,
        connection.makefile("rb") as incoming,
    ):
        connection.sendall(b"".join(each.frame for each in questions))
        for api, _ in questions:
            frame = memoryview(incoming.read(int.from_bytes(incoming.read(4), "big")))
            position = decode_response_header(frame, 1)[1]
            answers.append(messages.decode_response(api, VERSIONS[api], frame, position))
    return answers


class Commander:
    """The controller of an epoch, which reads and writes states as all do."""

    def __init__(self, cluster: RunningCluster, epoch: int) -> None:
        self._zookeeper: Final = cluster.zookeeper
        self._epoch: Final = epoch
        read = {each: self._zookeeper.get(znodes.broker_path(each)) for each in BROKERS}
        self._brokers: Final = {
            each: znodes.read_broker(each, data, stat.czxid) for each, (data, stat) in read.items()
        }

    def move(self, where: Where) -> None:
        """Makes another in-sync replica lead."""
        path = znodes.state_path(where)
        data, stat = self._zookeeper.get(path)
        state = json.loads(data)
        state["leader"] = next(each for each in state["isr"] if each != state["leader"])
        state["leader_epoch"] += 1
        state["controller_epoch"] = self._epoch
        self._zookeeper.set(path, json.dumps(state).encode(), stat.version)

    def tell(self, broker_id: int, *commands: tuple[int, int, States]) -> None:
        """Sends commands, one behind the other, and without waiting for an answer: API, whether it
        is a full one, states of partitions. None may be refused as a whole."""
        questions = [self._command(broker_id, *each) for each in commands]
        for answer in ask(self._address(broker_id), *questions):
            assert answer.error_code == ErrorCode.NONE, answer
            for topic in getattr(answer, "topics", ()):
                errors = {each.error_code for each in topic.partition_errors}
                # What is older is not obeyed, nor the same again.
                assert errors <= {ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH}, answer

    def _command(self, broker_id: int, api: int, kind: int, states: States) -> Question:
        values = {
            "controller_id": NOBODY,
            "controller_epoch": self._epoch,
            "broker_epoch": self._brokers[broker_id].epoch,
            "type": kind,
            "topic_states": [self._of_topic(states)],
        }
        if api == LEADER_AND_ISR:
            return Question(api, {**values, "live_leaders": list(self._leaders())})
        return Question(api, {**values, "live_brokers": list(self._live())})

    def _leaders(self) -> Iterator[dict[str, object]]:
        for broker in self._brokers.values():
            for there in broker.endpoints:
                if there.listener_name == "INTERNAL":
                    yield {"broker_id": broker.id, "host_name": there.host, "port": there.port}

    def _live(self) -> Iterator[dict[str, object]]:
        for broker in self._brokers.values():
            endpoints = [
                {"port": each.port, "host": each.host, "listener": each.listener_name}
                for each in broker.endpoints
            ]
            yield {"id": broker.id, "endpoints": endpoints}

    def _address(self, broker_id: int) -> tuple[str, int]:
        there = self._brokers[broker_id].endpoints[0]
        return there.host, there.port

    def _of_topic(self, states: States) -> dict[str, Any]:
        node = json.loads(self._zookeeper.get(znodes.topic_path(TOPIC))[0])
        topic_id = UUID(bytes=base64.urlsafe_b64decode(node["topic_id"] + "=="))
        return {"topic_name": TOPIC, "topic_id": topic_id, "partition_states": states}

    def states(self, *partitions: int) -> States:
        """The states of partitions in ZooKeeper, in this order."""
        replicas = json.loads(self._zookeeper.get(znodes.topic_path(TOPIC))[0])["partitions"]
        return [self._state(Where(TOPIC, each), replicas[str(each)]) for each in partitions]

    def _state(self, where: Where, replicas: list[int]) -> dict[str, Any]:
        data, stat = self._zookeeper.get(znodes.state_path(where))
        state = znodes.read_state(where, data)
        return {
            "partition_index": where.partition,
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "partition_epoch": stat.version,
            "replicas": replicas,
        }

    def await_roles(self, where: Where) -> None:
        """Returns when each broker leads, or follows, in the epoch that is written down."""

        def answers() -> dict[int, ErrorCode]:
            return {each: self._role(each, where, state.leader_epoch) for each in BROKERS}

        state = znodes.read_state(where, self._zookeeper.get(znodes.state_path(where))[0])
        roles = dict.fromkeys(BROKERS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        roles[state.leader] = ErrorCode.NONE
        until(lambda: answers() == roles, f"{where} is led by {state.leader}", answers)

    def _role(self, broker_id: int, where: Where, leader_epoch: int) -> ErrorCode:
        partition = {
            "partition_index": where.partition,
            "current_leader_epoch": leader_epoch,
            "timestamp": -1,
        }
        topics = [{"name": where.topic, "partitions": [partition]}]
        values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        (answer,) = ask(self._address(broker_id), Question(LIST_OFFSETS, values))
        return ErrorCode(answer.topics[0].partitions[0].error_code)


@contextlib.contextmanager
def commanding(cluster: RunningCluster) -> Iterator[Commander]:
    """The test is the controller, of the next epoch, until the block is left."""
    zookeeper = cluster.zookeeper
    epoch = int(zookeeper.get(znodes.CONTROLLER_EPOCH)[0]) + 1
    taking = zookeeper.transaction()
    taking.delete(znodes.CONTROLLER)
    taking.create(znodes.CONTROLLER, znodes.controller_json(NOBODY, 1), ephemeral=True)
    taking.set_data(znodes.CONTROLLER_EPOCH, str(epoch).encode())
    outcomes = taking.commit()
    assert not any(isinstance(each, Exception) for each in outcomes), outcomes
    try:
        yield Commander(cluster, epoch)
    finally:
        zookeeper.delete(znodes.CONTROLLER)


def make_elsewhere(cluster: RunningCluster) -> None:
    """A topic that one broker has, of which a group has an offset."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(ELSEWHERE, 1, replica_assignment=[[BROKERS[0]]])
    admin.create_topics([new])[ELSEWHERE].result(PATIENCE_S)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    place = TopicPartition(ELSEWHERE, 0, 7)
    until(lambda: consumer.commit(offsets=[place], asynchronous=False), "an offset is committed")
    consumer.close()


def offset_elsewhere(cluster: RunningCluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    asked = [ConsumerGroupTopicPartitions(GROUP)]
    (place,) = admin.list_consumer_group_offsets(asked)[GROUP].result(PATIENCE_S).topic_partitions
    return int(place.offset)


def assert_all_there(cluster: RunningCluster) -> None:
    """Every replica has its log, and none is about to go."""
    for each in cluster.brokers.values():
        names = {log.name for disk in each.disks for log in disk.iterdir() if log.is_dir()}
        for topic in (TOPIC, UNNAMED, "__consumer_offsets", "__transaction_state"):
            assert {f"{topic}-{index}" for index in range(PARTITIONS)} <= names
        assert not any(name.endswith(("-delete", "-stray")) for name in names)


def test_what_a_full_command_does_not_name_stays(cluster: RunningCluster) -> None:
    """Brokers would delete logs, and groups their offsets, since a controller has read half of what
    there is; or who leads would be what came last, and not what is newest."""
    with cluster.load(TOPIC) as load:
        make_elsewhere(cluster)
        with commanding(cluster) as controller:
            before = controller.states(1, 2)
            for index in (2, 1):
                controller.move(Where(TOPIC, index))
            now = controller.states(2, 1)
            for broker_id in BROKERS:
                controller.tell(
                    broker_id,
                    (LEADER_AND_ISR, FULL, now),
                    (LEADER_AND_ISR, PART, before),
                    (UPDATE_METADATA, FULL, now),
                    (UPDATE_METADATA, PART, before),
                )
            for topic in (TOPIC, UNNAMED):
                for index in range(PARTITIONS):
                    controller.await_roles(Where(topic, index))
            load.await_progress()
            # The next controller finds what is half told.
            controller.move(Where(TOPIC, 0))
            for broker_id in reversed(BROKERS):
                full = controller.states(0)
                controller.tell(
                    broker_id, (LEADER_AND_ISR, FULL, full), (LEADER_AND_ISR, PART, before)
                )
            controller.await_roles(Where(TOPIC, 0))
            assert_all_there(cluster)
        until(lambda: cluster.controller() in BROKERS, "one of them is the controller")
        load.await_progress()
        assert_all_there(cluster)
        assert offset_elsewhere(cluster) == 7
        assert cluster.state(ELSEWHERE) == (BROKERS[0], {BROKERS[0]})
