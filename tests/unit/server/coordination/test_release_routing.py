"""Released records find the leader of their target, and it is told what is certainly not there."""

import pytest
from tests.unit.replication.fakes import Cluster, batch
from tests.unit.server.coordination.test_transaction_routing import Channel

from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import BrokerRegistration, MetadataDelta
from odradek.model import TopicPartition
from odradek.records.builder import RecordBatchBuilder
from odradek.replication.schedule.sender import NotAppended
from odradek.server.coordination.release_routing import RoutedReleases
from odradek.server.peers.batched_requests import SLOW_AFTER_MS, TOGETHER_BYTES, UNDER_WAY
from odradek.testing.faulty_files import FaultyFileSystem

OUT = TopicPartition("out", 0)


class World:
    """Broker 1; broker 2 can be asked."""

    def __init__(self, directory, brokers=(1, 2)):
        self.files = FaultyFileSystem()
        self.cluster = Cluster(directory, file_system=self.files)
        self.channels = []
        registered = {one: BrokerRegistration(one, (), None, 5) for one in brokers}
        self.cluster.image = self.cluster.image.with_brokers(registered, 1)
        self.metadata = MetadataCache(self.cluster.image)
        self.outcomes = []
        self.releases = RoutedReleases(
            BrokerConfig({"broker.id": "1"}),
            self.cluster.timer,
            self.cluster.replicas,
            self.metadata,
            self._open,
        )

    def _open(self, broker):
        self.channels.append(Channel())
        return self.channels[-1]

    @property
    def channel(self):
        """The only one on which something is asked."""
        (found,) = [each for each in self.channels if each.asked]
        return found

    def send(self):
        self.releases.send(OUT, bytearray(batch(b"v")), self.outcomes.append)

    def answer(self, code, base_offset=-1):
        partition = {"index": 0, "error_code": code, "base_offset": base_offset}
        topics = [{"name": "out", "partition_responses": [partition]}]
        self.channel.answer({"responses": topics, "throttle_time_ms": 0})

    @property
    def outcome(self):
        [found] = self.outcomes
        return None if found is None else (type(found), found.code)


@pytest.fixture
def world(tmp_path):
    made = World(str(tmp_path / "data"))
    yield made
    made.cluster.close()


class TestWhatIsLedHere:
    def test_it_is_appended(self, world):
        """Fails when a record is told delivered that is not, or the other way round."""
        world.cluster.create("out")
        world.send()
        assert world.outcome is None

    def test_there_is_no_such_topic(self, world):
        """Fails when what was never sent is taken for something in doubt, and cannot expire."""
        world.send()
        assert world.outcome == (NotAppended, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def test_the_target_is_a_schedule_topic(self, world):
        """Fails when a record goes round in circles."""
        world.cluster.create("out", schedule_enable="true")
        world.send()
        assert world.outcome == (NotAppended, ErrorCode.INVALID_RECORD)

    def test_a_full_disk_has_taken_nothing(self, world):
        """Fails when a record that a full disk refused cannot expire until there is room."""
        world.cluster.create("out")
        world.files.is_full = True
        world.send()
        assert world.outcome == (NotAppended, ErrorCode.KAFKA_STORAGE_ERROR)

    def test_a_disk_that_fails_may_have_taken_it(self, world):
        """Fails when a record comes twice, as its batch is found on the disk after a restart."""
        world.cluster.create("out")
        world.files.fail_at, world.files.fail_count = world.files.operations + 1, 9
        world.send()
        assert world.outcome == (BrokerError, ErrorCode.KAFKA_STORAGE_ERROR)


class TestWhatAnotherLeads:
    @pytest.fixture(autouse=True)
    def led_by_the_other(self, world):
        world.cluster.create("out", (2,), leader=2)
        world.send()

    def test_it_says_so(self, world):
        """Fails when an answer is not heard."""
        world.answer(ErrorCode.NONE, 7)
        assert world.outcome is None

    def test_it_refuses(self, world):
        """Fails when a record that was refused cannot expire."""
        world.answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        assert world.outcome == (NotAppended, ErrorCode.NOT_ENOUGH_REPLICAS)

    def test_it_has_it_and_not_enough_others_do(self, world):
        """Fails when a record that is there is sent as another."""
        world.answer(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 7)
        assert world.outcome == (BrokerError, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def test_its_disk_refuses_or_fails(self, world):
        """Fails when a failed disk of another broker is taken for a full one."""
        world.answer(ErrorCode.KAFKA_STORAGE_ERROR)
        assert world.outcome == (BrokerError, ErrorCode.KAFKA_STORAGE_ERROR)

    def test_nobody_answers(self, world):
        """Fails when what may have arrived is sent as another."""
        world.releases.close()
        assert world.outcome == (BrokerError, ErrorCode.NETWORK_EXCEPTION)


class TestHowFarATargetHasCome:
    """Fails when a batch that is there is taken for one that is not, or the other way round."""

    def look(self, world, producer_id):
        found = []
        world.releases.look(OUT, producer_id, found.append)
        return found

    def test_here(self, world):
        world.cluster.create("out")
        builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
        for value in (b"a", b"b"):
            builder.append(0, None, value)
        world.releases.send(OUT, bytearray(builder.build()), world.outcomes.append)
        assert (self.look(world, 7), self.look(world, 8)) == ([1], [-1])

    def test_elsewhere(self, world):
        world.cluster.create("out", (2,), leader=2)
        producer = {
            "producer_id": 7,
            "producer_epoch": 0,
            "last_sequence": 5,
            "last_timestamp": 0,
            "coordinator_epoch": 0,
            "current_txn_start_offset": -1,
        }
        partition = {"partition_index": 0, "error_code": 0, "active_producers": [producer]}
        answer = {"topics": [{"name": "out", "partitions": [partition]}], "throttle_time_ms": 0}
        for producer_id, sequence in ((7, 5), (8, -1)):
            found = self.look(world, producer_id)
            assert found == []
            world.channel.answer(answer)
            assert found == [sequence]

    def test_nobody_can_tell(self, world):
        [found] = self.look(world, 7)
        assert found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.cluster.create("out", (2,), leader=2)
        asked = self.look(world, 7)
        partition = {"partition_index": 0, "error_code": 6, "active_producers": []}
        topics = [{"name": "out", "partitions": [partition]}]
        world.channel.answer({"topics": topics, "throttle_time_ms": 0})
        unanswered = self.look(world, 7)
        world.releases.close()
        codes = [each.code for each in (*asked, *unanswered)]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION]


def test_nobody_leads(tmp_path):
    """Fails when what waits for a leader cannot expire."""
    world = World(str(tmp_path / "data"), brokers=(1,))
    world.cluster.create("out", (2,), leader=2)
    world.send()
    assert world.outcome == (NotAppended, ErrorCode.LEADER_NOT_AVAILABLE)
    world.cluster.close()


class Targets(World):
    """Broker 2 leads every target, and answers when the test says so."""

    def __init__(self, directory):
        super().__init__(directory)
        self.told = []

    def create(self, *names):
        for name in names:
            self.cluster.create(name, (2,), leader=2)

    def release(self, name, values=(b"v",)):
        target = TopicPartition(name, 0)
        self.releases.send(
            target, bytearray(batch(*values)), lambda error: self.told.append((name, error))
        )

    def under_way(self):
        """The subject of each request that broker 2 has."""
        return [
            [topic["name"] for topic in values["topic_data"]]
            for channel in self.channels
            for _, values, _ in channel.asked
            if not channel.is_closed
        ]

    def answer_about(self, name, code=ErrorCode.NONE):
        """Broker 2 has done with the request about a topic, and with what went with it."""
        (channel,) = [
            each
            for each in self.channels
            if each.asked and name in [one["name"] for one in each.asked[0][1]["topic_data"]]
        ]
        names = [each["name"] for each in channel.asked[0][1]["topic_data"]]
        partition = {"index": 0, "error_code": code, "base_offset": 7}
        topics = [{"name": each, "partition_responses": [partition]} for each in names]
        channel.answer({"responses": topics, "throttle_time_ms": 0})


@pytest.fixture
def targets(tmp_path):
    made = Targets(str(tmp_path / "data"))
    yield made
    made.cluster.close()


class TestManyTargets:
    def test_a_slow_one_holds_up_no_other(self, targets):
        """Fails when one slow replica keeps everything that is due on its leader from delivery."""
        names = [f"slow{number}" for number in range(6)]
        targets.create("quick", *names)
        for name in names:
            targets.release(name)
        targets.cluster.timer.advance_clock(SLOW_AFTER_MS)
        for _ in range(2):
            targets.release("quick")
            targets.answer_about("quick")
        assert targets.told == [("quick", None)] * 2
        for name in names:
            if targets.told.count((name, None)) == 0:
                targets.answer_about(name)
        assert sorted(targets.told[2:]) == [(name, None) for name in names]

    def test_batches_for_one_target_keep_their_order(self, targets):
        """Fails when a later batch of a producer arrives first, and the target refuses it."""
        targets.create("out")
        targets.release("out", [b"1"])
        targets.release("out", [b"2"])
        assert targets.under_way() == [["out"]]
        targets.answer_about("out", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert targets.under_way() == [["out"]]
        targets.answer_about("out")
        assert [None if each is None else each.code for _, each in targets.told] == [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            None,
        ]

    def test_small_batches_go_together_and_large_ones_do_not(self, targets):
        """Fails when each of many targets is a request, or a request is too large for a broker."""
        busy = [f"busy{number}" for number in range(UNDER_WAY)]
        targets.create(*busy, "a", "b", "large")
        for name in (*busy, "a", "b"):
            targets.release(name)
        targets.release("large", [bytes(TOGETHER_BYTES)])
        targets.answer_about(busy[0])
        targets.answer_about(busy[1])
        assert targets.under_way() == [["a", "b"], ["large"], [busy[2]], [busy[3]]]

    def test_nobody_waits_for_a_leader_that_is_gone(self, targets):
        """Fails when a record waits for ever for a broker that will not answer."""
        targets.create("out")
        targets.release("out")
        targets.release("out")
        before = targets.cluster.image
        targets.cluster.image = before.with_brokers({}, 1)
        change = MetadataDelta(before, targets.cluster.image, brokers_changed=True)
        targets.metadata.publish(change)
        targets.cluster.timer.advance_clock(0)
        assert [type(error) for _, error in targets.told] == [BrokerError, BrokerError]
        assert targets.under_way() == []
