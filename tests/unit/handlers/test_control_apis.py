"""The commands of a controller, from its values over the wire to the broker's, and back."""

from uuid import UUID

import pytest
from tests.unit.handlers.conftest import run
from tests.unit.protocol.controller_frames import DECREE, REQUESTS, TOPIC_ID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.long_requests import SLICE_ENTRIES
from odradek.handlers.table import API_TABLE, ZOOKEEPER_API_TABLE
from odradek.metadata.control import (
    AlterPartition,
    ControlHeader,
    ControlledBroker,
    LeaderAndIsr,
    PartitionState,
    StoppedReplica,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.model import EndPoint, TopicPartition
from odradek.protocol import messages
from odradek.server.peers.control_plane import SocketControlPlane

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7
API_VERSIONS, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS = 18, 56, 67
ORDERS = TopicPartition("orders", 3)
EPOCH = DECREE["broker_epoch"]
PLAIN = EndPoint("PLAINTEXT", "PLAINTEXT", "eins.example", 9092)
INTERNAL = EndPoint("INTERN", "PLAINTEXT", "eins.example", 9093)
BROKER = BrokerRegistration(2, (PLAIN, INTERNAL), "links", EPOCH)
STATE = PartitionState(
    "orders",
    TOPIC_ID,
    7,
    PartitionImage(3, 2, 5, 11, (2, 3, 1), (2, 3), adding=(1,), removing=(3,)),
    is_new=True,
)


class Told(ControlledBroker):
    """Remembers what it is told, and answers `outcome` when the test says so."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.heard = []
        self.waiting = []
        self.answers_at_once = True

    def _hear(self, *arguments):
        *heard, on_done = arguments
        self.heard.append(heard[0] if len(heard) == 1 else tuple(heard))
        if self.answers_at_once:
            on_done(self.outcome)
        else:
            self.waiting.append(on_done)

    on_leader_and_isr = on_update_metadata = on_stop_replica = _hear
    on_alter_partition = on_controlled_shutdown = _hear


@pytest.fixture
def told(cluster):
    """Makes the cluster's broker one of a ZooKeeper cluster, which answers what is given."""

    def answering(outcome):
        broker = Told(outcome)
        cluster.replace(apis=ZOOKEEPER_API_TABLE, controlled=broker)
        return broker

    return answering


# What is advertised


def test_only_a_broker_of_a_zookeeper_cluster_takes_commands(cluster, told):
    """Anybody could command a broker that stands alone."""
    commands = {4, 5, 6, 7, 56, 67}
    assert not commands & API_TABLE.keys()
    told(None)
    answer = cluster.ask(API_VERSIONS, 0)
    assert commands <= {row.api_key for row in answer.api_keys}


# What the controller alone decides


def test_only_the_controller_decides(cluster, told):
    """A topic would be made by a broker that does not know all brokers."""
    told(None)
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    assert cluster.ask(19, 7, topics=[topic]).topics[0].error_code == ErrorCode.NONE
    cluster.replace(broker_id=2)
    refused = [
        cluster.ask(19, 7, topics=[topic]).topics[0],
        cluster.ask(20, 6, topics=[{"name": "t"}]).responses[0],
        cluster.ask(37, 3, topics=[{"name": "t", "count": 2}]).results[0],
        cluster.ask(43, 2, topic_partitions=None),
        cluster.ask(45, 1, topics=[]),
        cluster.ask(46, 0, topics=None),
        cluster.ask(57, 1, feature_updates=[]),
    ]
    assert {each.error_code.value for each in refused} == {ErrorCode.NOT_CONTROLLER}


# LeaderAndIsr


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_of_every_version(cluster, told, version):
    """An older controller could not make this broker lead."""
    broker = told({ORDERS: ErrorCode.KAFKA_STORAGE_ERROR})
    answer = cluster.ask(LEADER_AND_ISR, version, **REQUESTS[LEADER_AND_ISR])
    heard = broker.heard[0]
    assert heard.header == ControlHeader(1, 7, EPOCH if version >= 2 else -1)
    (state,) = heard.partitions
    assert (state.topic, state.controller_epoch, state.is_new) == ("orders", 7, version >= 1)
    assert state.topic_id == (TOPIC_ID if version >= 5 else UUID(int=0))
    assert state.partition[:6] == (3, 2, 5, 11, (2, 3, 1), (2, 3))
    assert state.partition.adding == ((1,) if version >= 3 else ())
    (leader,) = heard.leaders
    assert leader.endpoints == (EndPoint("PLAINTEXT", "PLAINTEXT", "zwei.example", 9092),)
    assert answer.error_code == ErrorCode.NONE
    errors = answer.partition_errors if version < 5 else answer.topics[0].partition_errors
    assert [(each.partition_index, each.error_code.value) for each in errors] == [(3, 56)]


@pytest.mark.parametrize("version", [0, 4, 7])
def test_a_refused_leader_and_isr_is_refused_for_every_partition(cluster, told, version):
    """Kafka's controller looks at the partitions as well."""
    told(BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH))
    answer = cluster.ask(LEADER_AND_ISR, version, **REQUESTS[LEADER_AND_ISR])
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    errors = answer.partition_errors if version < 5 else answer.topics[0].partition_errors
    assert [each.error_code.value for each in errors] == [ErrorCode.STALE_CONTROLLER_EPOCH]


@pytest.mark.parametrize(("kind", "is_full"), [(0, False), (1, False), (2, True)])
def test_only_a_full_one_is_full(cluster, told, kind, is_full):
    """Replicas that were not named would be thrown away."""
    broker = told({})
    cluster.ask(LEADER_AND_ISR, 7, **{**REQUESTS[LEADER_AND_ISR], "type": kind})
    assert broker.heard[0].is_full is is_full


# UpdateMetadata


@pytest.mark.parametrize("version", range(9))
def test_update_metadata_of_every_version(cluster, told, version):
    """Clients would be sent to brokers that are not there."""
    broker = told(None)
    answer = cluster.ask(UPDATE_METADATA, version, **REQUESTS[UPDATE_METADATA])
    heard = broker.heard[0]
    assert heard.header == ControlHeader(1, 7, EPOCH if version >= 5 else -1)
    (state,) = heard.partitions
    assert state.partition[:6] == (3, 2, 5, 11, (2, 3, 1), (2, 3))
    assert state.partition.offline == ((3,) if version >= 4 else ())
    first = heard.brokers[0]
    names = [endpoint.listener_name for endpoint in first.endpoints]
    several = ["PLAINTEXT", "INTERN"] if version >= 3 else ["PLAINTEXT", "PLAINTEXT"]
    assert names == (several if version >= 1 else ["PLAINTEXT"])
    assert first.endpoints[0][2:] == ("eins.example", 9092)
    assert first.rack == ("links" if version >= 2 else None)
    assert answer.error_code == ErrorCode.NONE


def test_a_refused_update_says_so(cluster, told):
    """A controller that was succeeded would go on."""
    told(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
    answer = cluster.ask(UPDATE_METADATA, 8, **REQUESTS[UPDATE_METADATA])
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


# StopReplica


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_of_every_version(cluster, told, version):
    """A replica would be kept that has to go, or its log thrown away."""
    broker = told({ORDERS: ErrorCode.FENCED_LEADER_EPOCH})
    answer = cluster.ask(STOP_REPLICA, version, **REQUESTS[STOP_REPLICA])
    fourth = TopicPartition("orders", 4)
    expected = {
        0: [StoppedReplica(ORDERS, -1, True)],
        1: [StoppedReplica(ORDERS, -1, True), StoppedReplica(fourth, -1, True)],
        3: [StoppedReplica(ORDERS, 5, True), StoppedReplica(fourth, -2, False)],
    }
    assert broker.heard[0].replicas == expected[{2: 1, 4: 3}.get(version, version)]
    (error,) = answer.partition_errors
    assert (error.topic_name, error.partition_index) == ORDERS
    assert error.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_refused_stop_says_nothing_of_partitions(cluster, told):
    """As Kafka answers it."""
    told(BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH))
    answer = cluster.ask(STOP_REPLICA, 4, **REQUESTS[STOP_REPLICA])
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert answer.partition_errors == ()


# What comes late


@pytest.mark.parametrize("api", [LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA])
def test_what_comes_over_an_earlier_connection_is_not_obeyed(cluster, told, api):
    """An order to delete, held up on its way, would delete what was made since under the name."""
    broker = told({})

    def ask(number, controller_epoch):
        fields = REQUESTS[api] | {"controller_epoch": controller_epoch}
        request = messages.encode_request(api, 4, fields)
        exchange = cluster.exchange(api, 4, request, connection_id=f"connection-{number}")
        cluster.dispatcher().handle_frame(exchange)
        return exchange

    assert not ask(1, 7).closed
    assert not ask(2, 7).closed
    late = ask(1, 7)
    assert (late.closed, late.sent) == (True, None)
    assert not ask(2, 7).closed
    assert not ask(1, 8).closed
    assert len(broker.heard) == 4


# ControlledShutdown


@pytest.mark.parametrize("version", range(4))
def test_controlled_shutdown_of_every_version(cluster, told, version):
    """A broker could not leave in order."""
    broker = told([ORDERS])
    answer = cluster.ask(CONTROLLED_SHUTDOWN, version, broker_id=2, broker_epoch=EPOCH)
    assert broker.heard == [(2, EPOCH if version >= 2 else -1)]
    (remaining,) = answer.remaining_partitions
    assert (remaining.topic_name, remaining.partition_index) == ORDERS


def test_who_is_not_the_controller_has_a_stale_epoch(cluster, told):
    """As Kafka answers it: the broker looks for the controller again."""
    told(BrokerError(ErrorCode.NOT_CONTROLLER))
    answer = cluster.ask(CONTROLLED_SHUTDOWN, 3, broker_id=2, broker_epoch=EPOCH)
    assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


# AlterPartition and AllocateProducerIds


@pytest.mark.parametrize("version", [2, 3])
def test_alter_partition(cluster, told, version):
    """A leader could not shrink or grow its ISR."""
    cluster.create("orders", partitions=2)
    topic_id = cluster.cache.image.topics["orders"].topic_id
    broker = told(
        [
            PartitionImage(0, 2, 6, 12, (), (2,)),
            BrokerError(ErrorCode.INVALID_UPDATE_VERSION),
        ]
    )
    unknown = {"topic_id": UUID(int=99), "partitions": [{"partition_index": 0}]}
    asked = [
        {
            "partition_index": index,
            "leader_epoch": 5,
            "partition_epoch": 11,
            "new_isr": [2],
            "new_isr_with_epochs": [{"broker_id": 2, "broker_epoch": -1}],
        }
        for index in range(2)
    ]
    topics = [unknown, {"topic_id": topic_id, "partitions": asked}]
    answer = cluster.ask(ALTER_PARTITION, version, broker_id=2, broker_epoch=9, topics=topics)
    (heard,) = broker.heard
    assert (heard.broker_id, heard.broker_epoch, heard.leader_epochs) == (2, 9, [5, 5])
    assert heard.changes[1] == PartitionChange(TopicPartition("orders", 1), 11, 2, (2,))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    changed, refused = answer.topics[1].partitions
    assert (changed.leader_id, changed.leader_epoch, changed.isr) == (2, 6, (2,))
    assert changed.partition_epoch == 12
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_producer_ids_are_given_to_registered_brokers(cluster, told):
    """Two brokers would hand out the same ids, or none could."""
    told(None)
    epoch = cluster.cache.image.brokers[1].epoch
    first, second = (
        cluster.ask(ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=epoch) for _ in range(2)
    )
    assert (first.producer_id_len, second.producer_id_len) == (1000, 1000)
    assert second.producer_id_start == first.producer_id_start + 1000
    for broker_id, broker_epoch, code in (
        (1, epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
        (2, epoch, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        asked = {"broker_id": broker_id, "broker_epoch": broker_epoch}
        assert cluster.ask(ALLOCATE_PRODUCER_IDS, 0, **asked).error_code == code


# Many partitions

MANY = [TopicPartition("orders", index) for index in range(4 * SLICE_ENTRIES)]


def long_command(api):
    """Sends a command about many replicas; its frame is decoded on a thread."""
    states = [{**STATES_OF[api], "partition_index": index} for _, index in MANY]
    topic = {"topic_name": "orders", "partition_states": states}
    if api == STOP_REPLICA:
        return REQUESTS[api] | {"topic_states": [topic]}
    return REQUESTS[api] | {
        "ungrouped_partition_states": [{"topic_name": "orders", **each} for each in states],
        "topic_states": [topic | {"topic_id": TOPIC_ID}],
    }


STATES_OF = {
    LEADER_AND_ISR: REQUESTS[LEADER_AND_ISR]["topic_states"][0]["partition_states"][0],
    STOP_REPLICA: REQUESTS[STOP_REPLICA]["topic_states"][0]["partition_states"][0],
}


@pytest.mark.parametrize(
    ("api", "version"), [(LEADER_AND_ISR, 4), (LEADER_AND_ISR, 7), (STOP_REPLICA, 4)]
)
def test_many_replicas_are_answered_in_slices(cluster, told, background, api, version):
    """A broker that has taken ten thousand roles would stand still once more to say so."""
    told(dict.fromkeys(MANY, ErrorCode.NONE))
    request = messages.encode_request(api, version, long_command(api))
    exchange = cluster.exchange(api, version, request)
    cluster.dispatcher().handle_frame(exchange)
    assert run(background, exchange) >= len(MANY) // SLICE_ENTRIES
    answer = cluster.answer(exchange, api, version)
    by_topic = api == LEADER_AND_ISR and version == 7
    errors = answer.topics[0].partition_errors if by_topic else answer.partition_errors
    assert [each.partition_index for each in errors] == [index for _, index in MANY]


def test_many_isr_changes_are_answered_in_slices(cluster, told, background):
    """As many partitions shrink and grow with a broker that goes and comes back."""
    names = [f"t{number}" for number in range(2 * SLICE_ENTRIES)]
    for name in names:
        background.is_late = False
        cluster.create(name)
    background.is_late = True
    topics = cluster.cache.image.topics
    told([PartitionImage(0, 2, 6, 12, (), (2,)) for _ in names])
    asked = [
        {"topic_id": topics[name].topic_id, "partitions": [{"partition_index": 0}]}
        for name in names
    ]
    fields = {"broker_id": 2, "broker_epoch": 9, "topics": asked}
    request = messages.encode_request(ALTER_PARTITION, 3, fields)
    exchange = cluster.exchange(ALTER_PARTITION, 3, request)
    cluster.dispatcher().handle_frame(exchange)
    assert run(background, exchange) >= len(names) // SLICE_ENTRIES
    answer = cluster.answer(exchange, ALTER_PARTITION, 3)
    assert [each.topic_id for each in answer.topics] == [each["topic_id"] for each in asked]
    assert {each.partitions[0].partition_epoch for each in answer.topics} == {12}


# The way there


class Channel:
    """Carries a request to the cluster's dispatcher as bytes, once the test lets it."""

    def __init__(self, cluster, version_of):
        self.cluster = cluster
        self.version_of = version_of
        self.asked = []
        self.is_closed = False

    def ask(self, api, values, on_done):
        self.asked.append((api, values, on_done))

    def close(self):
        self.is_closed = True

    def deliver(self):
        """Answers the oldest request."""
        api, values, on_done = self.asked.pop(0)
        version = self.version_of(api)
        request = messages.encode_request(api.key, version, values)
        exchange = self.cluster.exchange(api.key, version, request)
        self.cluster.dispatcher().handle_frame(exchange)
        on_done(self.cluster.answer(exchange, api.key, version))

    def fail(self):
        """Loses the oldest request."""
        self.asked.pop(0)[2](BrokerError(ErrorCode.NETWORK_EXCEPTION))


class Ways:
    """A control plane to the cluster's broker, and the channels that it has opened."""

    def __init__(self, cluster, version_of=lambda api: api.max_version):
        self.channels = []

        def open_channel(broker):
            self.channels.append(Channel(cluster, version_of))
            return self.channels[-1]

        self.plane = SocketControlPlane(cluster.cache, cluster.timer, "INTERN", open_channel)


@pytest.mark.parametrize("newest", [True, False])
def test_what_is_commanded_arrives(cluster, told, newest):
    """The controller's values would not be the broker's."""
    ways = Ways(cluster, lambda api: api.max_version if newest else api.min_version)
    header = ControlHeader(1, 7, EPOCH)
    heard = []
    topic_id = TOPIC_ID if newest else UUID(int=0)
    state = STATE._replace(topic_id=topic_id)
    if not newest:
        without = state.partition._replace(adding=(), removing=())
        state = state._replace(partition=without)
    shown = state._replace(
        is_new=False, partition=state.partition._replace(adding=(), removing=(), offline=(3,))
    )
    errors = {ORDERS: ErrorCode.KAFKA_STORAGE_ERROR}
    command = LeaderAndIsr(header, newest, [state], [BROKER])
    broker = told(errors)
    ways.plane.leader_and_isr(BROKER, command, heard.append)
    ways.channels[0].deliver()
    stop = StopReplica(header, [StoppedReplica(ORDERS, 5, True)])
    ways.plane.stop_replica(BROKER, stop, heard.append)
    ways.channels[0].deliver()
    broker.outcome = None
    update = UpdateMetadata(header, [shown], [BROKER])
    ways.plane.update_metadata(BROKER, update, heard.append)
    ways.channels[0].deliver()
    broker.outcome = [ORDERS]
    ways.plane.controlled_shutdown(BROKER, 2, EPOCH, heard.append)
    ways.channels[0].deliver()
    assert heard == [errors, errors, None, [ORDERS]]
    told_command, told_stop, told_update, told_shutdown = broker.heard
    assert told_command.partitions == [state]
    assert (told_command.header, told_command.is_full) == (header, newest)
    assert told_command.leaders[0].endpoints[0][2:] == ("eins.example", 9093)
    assert told_stop == stop
    update_id = TOPIC_ID if newest else UUID(int=0)
    assert told_update.partitions == [shown._replace(topic_id=update_id)]
    assert told_update.brokers == [BROKER._replace(epoch=-1)]
    assert told_shutdown == (2, EPOCH)


def test_what_is_asked_for_comes_back_in_order(cluster, told):
    """A leader would take the outcome of one partition for another's."""
    cluster.create("orders", partitions=2)
    outcomes = [PartitionImage(1, 2, 6, 12, (), (2,)), BrokerError(ErrorCode.INELIGIBLE_REPLICA)]
    told(outcomes)
    ways = Ways(cluster)
    gone = PartitionChange(TopicPartition("gone", 0), 1, 2, (2,))
    changes = [
        gone,
        PartitionChange(TopicPartition("orders", 1), 11, 2, (2,)),
        PartitionChange(TopicPartition("orders", 0), 3, 2, (2, 3)),
    ]
    heard = []
    ways.plane.alter_partition(BROKER, AlterPartition(2, 9, changes, [1, 5, 5]), heard.append)
    ways.channels[0].deliver()
    ((unknown, changed, refused),) = heard
    assert unknown.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert changed == outcomes[0]
    assert refused.code is ErrorCode.INELIGIBLE_REPLICA


def test_one_request_is_under_way_at_a_time(cluster, told):
    """A later command would overtake an earlier one."""
    broker = told({})
    ways = Ways(cluster)
    heard = []
    for epoch in (1, 2, 3):
        header = ControlHeader(1, epoch, EPOCH)
        ways.plane.stop_replica(BROKER, StopReplica(header, []), heard.append)
        assert len(ways.channels[0].asked) == 1
    for _ in range(3):
        ways.channels[0].deliver()
    assert [command.header.controller_epoch for command in broker.heard] == [1, 2, 3]
    assert heard == [{}, {}, {}]


def test_a_command_is_sent_again_while_its_broker_lives(cluster, told):
    """A broker would not hear of what it leads, and go on as before."""
    broker = told({})
    living = cluster.cache.image.brokers[1]
    ways = Ways(cluster)
    heard = []
    ways.plane.stop_replica(living, StopReplica(ControlHeader(1, 1, 1), []), heard.append)
    ways.plane.stop_replica(living, StopReplica(ControlHeader(1, 2, 1), []), heard.append)
    channel = ways.channels[0]
    channel.fail()
    assert (heard, channel.asked) == ([], [])
    cluster.timer.advance_clock(100)
    channel.deliver()
    channel.deliver()
    assert [command.header.controller_epoch for command in broker.heard] == [1, 2]
    assert heard == [{}, {}]


def test_a_command_to_a_dead_broker_is_given_up(cluster, told):
    """The controller would wait for ever for one that is gone."""
    told({})
    ways = Ways(cluster)
    heard = []
    gone = cluster.cache.image.brokers[1]._replace(epoch=-5)
    ways.plane.stop_replica(gone, StopReplica(ControlHeader(1, 1, 1), []), heard.append)
    ways.channels[0].fail()
    assert heard[0].code is ErrorCode.NETWORK_EXCEPTION


def test_a_question_is_not_asked_again(cluster, told):
    """Another controller may be the one to ask by now."""
    told([])
    ways = Ways(cluster)
    heard = []
    ways.plane.controlled_shutdown(cluster.cache.image.brokers[1], 2, 3, heard.append)
    ways.channels[0].fail()
    assert heard[0].code is ErrorCode.NETWORK_EXCEPTION


def test_a_broker_that_comes_back_has_a_way_of_its_own(cluster, told):
    """Commands for its earlier session would be sent to it."""
    told({})
    ways = Ways(cluster)
    heard, anew = [], []
    living = cluster.cache.image.brokers[1]
    ways.plane.stop_replica(living, StopReplica(ControlHeader(1, 1, 1), []), heard.append)
    back = living._replace(epoch=living.epoch + 1)
    ways.plane.stop_replica(back, StopReplica(ControlHeader(1, 1, 2), []), anew.append)
    assert ways.channels[0].is_closed
    assert heard[0].code is ErrorCode.NETWORK_EXCEPTION
    ways.channels[1].deliver()
    assert anew == [{}]


def test_closing_answers_everybody(cluster, told):
    """Somebody would wait for ever."""
    told({})
    ways = Ways(cluster)
    heard = []
    living = cluster.cache.image.brokers[1]
    for _ in range(2):
        ways.plane.stop_replica(living, StopReplica(ControlHeader(1, 1, 1), []), heard.append)
    channel = ways.channels[0]
    late = channel.asked[0][2]
    ways.plane.close()
    assert [error.code for error in heard] == [ErrorCode.NETWORK_EXCEPTION] * 2
    late({})
    assert len(heard) == 2


def test_an_unexpected_failure_is_answered(cluster, told):
    """The controller would wait for its time-out."""
    cluster.replace(apis=ZOOKEEPER_API_TABLE, controlled=object())
    for key, version in ((LEADER_AND_ISR, 7), (STOP_REPLICA, 4), (UPDATE_METADATA, 8)):
        answer = cluster.ask(key, version, **REQUESTS[key])
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
