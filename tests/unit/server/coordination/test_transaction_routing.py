"""Markers and questions find the broker that leads or coordinates, and nobody waits for ever."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from tests.unit.coordinator.transactional.transactions import BILLS, COMMIT, ORDERS, Leaders

from odradek.coordinator.runtime.batches import EndMarker
from odradek.coordinator.transactions.requests import AddPartitionsRequest, ProducerIdAndEpoch
from odradek.coordinator.transactions.writes import TransactionWrites
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.model import TopicPartition
from odradek.protocol import messages
from odradek.server.coordination.transaction_routing import (
    SLICE_PARTITIONS,
    RoutedMarkers,
    RoutedWrites,
    SlicedMarkers,
)
from odradek.server.peers.batched_requests import SLOW_AFTER_MS, UNDER_WAY
from odradek.timer import MockTimer

E = ErrorCode
MARKER = EndMarker(5, 1, 0, COMMIT, 2)
REQUEST = AddPartitionsRequest("t", ProducerIdAndEpoch(5, 1), [ORDERS], 2)


class Channel:
    """Keeps what is asked, until the test answers it."""

    def __init__(self):
        self.asked = []
        self.is_closed = False

    def ask(self, api, values, on_done):
        messages.encode_request(api.key, api.max_version, values)  # every name is known
        self.asked.append((api, values, on_done))

    def close(self):
        self.is_closed = True

    def answer(self, values):
        api, _, on_done = self.asked.pop()
        data = messages.encode_response(api.key, api.max_version, values)
        frame = memoryview(data)
        on_done(messages.decode_response(api.key, api.max_version, frame, 0))


def partition_led_by(leader):
    return PartitionImage(0, leader, 0, 0, (leader,), (leader,))


class World:
    """Broker 1 among others; `leaders` are those of the partitions."""

    def __init__(self, leaders, brokers=(1, 2)):
        self.epochs = dict.fromkeys(brokers, 1)
        self.channels = []
        self.timer = MockTimer()
        self.metadata = SimpleNamespace(image=self)
        self._leaders = leaders

    def markers(self, local=None):
        return RoutedMarkers(1, local or Leaders(), self.metadata, self.timer, self._open)

    def writes(self):
        return RoutedWrites(1, NotHere(), self.metadata, self.timer, self._open)

    @property
    def brokers(self):
        return {each: SimpleNamespace(epoch=epoch) for each, epoch in self.epochs.items()}

    def partition(self, topic_partition):
        leader = self._leaders.get(topic_partition)
        return None if leader is None else partition_led_by(leader)

    def topic(self, name):
        return TopicImage(name, uuid4(), (partition_led_by(self._leaders["t"]),))

    def _open(self, _broker):
        self.channels.append(Channel())
        return self.channels[-1]


class Slices(Leaders):
    """Keeps how many partitions each slice was about, and their markers. The `broken` ones are a
    fault of ours, which keeps from the others what is written with them."""

    def __init__(self):
        super().__init__()
        self.counts = []
        self.broken = set()
        self.has_answered_first = False

    def write(self, marker, partitions, on_done):
        self.counts.append(len(partitions))
        if self.has_answered_first and len(partitions) > 1:
            super().write(marker, partitions[:1], on_done)
        for each in partitions:
            if each in self.broken:
                raise RuntimeError(f"boom {each}")
        super().write(marker, partitions, on_done)


class ManyMarkers:
    """Markers for more partitions than a slice has; `turns` are to come."""

    partitions = [TopicPartition("orders", number) for number in range(2 * SLICE_PARTITIONS + 1)]

    def __init__(self):
        self.local = Slices()
        self.marked = []
        self.codes = {}
        self.turns = []
        self.markers = SlicedMarkers(self.local, self.turns.append)

    def write(self):
        self.markers.write(MARKER, self.partitions, self.take)

    def take(self, partition, code):
        self.marked.append(partition)
        assert partition not in self.codes, f"{partition} is answered twice"
        self.codes[partition] = code

    def turn(self):
        (action,) = self.turns
        self.turns.clear()
        action()

    def turn_all(self):
        """Returns what was raised in a turn of its own."""
        raised = []
        while self.turns:
            try:
                self.turns.pop(0)()
            except RuntimeError as error:
                raised.append(str(error))
        return raised


def test_many_markers_are_written_in_slices():
    """The end of a transaction of 20 000 partitions held up everybody for a second."""
    many = ManyMarkers()
    many.write()
    assert many.marked == many.partitions[:SLICE_PARTITIONS]
    many.turn()
    many.turn()
    assert many.marked == many.partitions
    assert many.local.counts == [SLICE_PARTITIONS, SLICE_PARTITIONS, 1]
    assert not many.turns


@pytest.mark.parametrize("has_answered_first", [False, True])
@pytest.mark.parametrize("index", [1, SLICE_PARTITIONS + 1, 2 * SLICE_PARTITIONS])
def test_a_marker_that_cannot_be_written_costs_no_other_partition_its_own(
    index, has_answered_first
):
    """The request of the coordinator would never be answered, and readers of the partitions that
    come after it wait until a broker is started again."""
    many = ManyMarkers()
    many.local.has_answered_first = has_answered_first
    many.local.broken = {many.partitions[index]}
    many.write()
    raised = many.turn_all()
    assert many.codes == {
        each: ErrorCode.UNKNOWN_SERVER_ERROR if each in many.local.broken else ErrorCode.NONE
        for each in many.partitions
    }
    assert raised == [f"boom {many.partitions[index]}"]


def test_the_markers_of_a_broken_log_are_tried_again_by_the_coordinator():
    """Its transaction would wait for an answer that nobody gives, and its producer be told of
    concurrent transactions until the coordinator moves."""
    many = ManyMarkers()
    many.local.broken = set(many.partitions[SLICE_PARTITIONS:])
    many.write()
    assert len(many.turn_all()) == SLICE_PARTITIONS + 1
    assert many.codes.keys() == set(many.partitions)
    many.local.broken = set()
    many.codes.clear()
    many.write()
    assert many.turn_all() == []
    assert set(many.codes.values()) == {ErrorCode.NONE}


def test_no_marker_comes_behind_one_that_was_asked_for_later():
    """A coordinator that lost its connection asks again, and its producer writes on under the same
    epoch once that is answered: the next transaction would end in the middle."""
    many = ManyMarkers()
    many.write()
    last = many.partitions[-1]
    written = many.local.written
    behind = []
    many.markers.write(MARKER, [last], lambda _partition, _code: behind.append(len(written)))
    many.turn_all()
    (answered,) = behind
    assert last not in {partition for partition, _ in written[answered:]}
    assert [partition for partition, _ in written].count(last) == 2


def test_markers_of_many_producers_are_written_in_slices():
    """Each would be a slice of its own, and all of them be written in one turn."""
    many = ManyMarkers()
    many.markers.write_each([(MARKER, [each], many.take) for each in many.partitions])
    assert many.marked == many.partitions[:SLICE_PARTITIONS]
    many.turn()
    assert many.marked == many.partitions[: 2 * SLICE_PARTITIONS]
    assert many.turn_all() == []
    assert many.marked == many.partitions


def test_no_marker_is_written_after_the_end():
    """A log that is closed would fail, and its directory with it."""
    many = ManyMarkers()
    many.write()
    many.markers.close()
    many.turn()
    assert many.local.counts == [SLICE_PARTITIONS]
    assert not many.turns


class NotHere(TransactionWrites):
    """This broker coordinates nothing."""

    def add_or_verify(self, request, verify_only, on_done):
        raise AssertionError(f"{request} should be asked elsewhere")


def marker_codes(marker, code, *partitions):
    topics = [
        {
            "name": each.topic,
            "partitions": [{"partition_index": each.partition, "error_code": code}],
        }
        for each in partitions
    ]
    return {"markers": [{"producer_id": marker.producer_id, "topics": topics}]}


def write_codes(name, code, *partitions):
    topics = [
        {
            "name": each.topic,
            "results_by_partition": [
                {"partition_index": each.partition, "partition_error_code": code}
            ],
        }
        for each in partitions
    ]
    return {"results_by_transaction": [{"transactional_id": name, "topic_results": topics}]}


class Written(list):
    """The outcomes of markers."""

    def __call__(self, *outcome):
        self.append(outcome)


def test_each_partitions_marker_goes_to_its_leader():
    """Fails when a partition that another broker leads never gets its marker."""
    world = World({ORDERS: 1, BILLS: 2})
    local, done = Leaders(), Written()
    world.markers(local).write(MARKER, [ORDERS, BILLS], done)
    assert local.written == [(ORDERS, MARKER)]
    assert done == [(ORDERS, E.NONE)]
    (channel,) = world.channels
    channel.answer(marker_codes(MARKER, 3, BILLS))
    # The other broker has not heard of the topic yet, but it exists.
    assert done[1:] == [(BILLS, E.NOT_LEADER_OR_FOLLOWER)]


@pytest.mark.parametrize("brokers", [(1,), (1, 2)])
def test_a_broker_that_cannot_be_reached_is_answered_for(brokers):
    """Fails when a transaction waits for ever for a broker that is gone."""
    world = World({BILLS: 2, "t": 2}, brokers)
    done, codes = Written(), []
    world.markers().write(MARKER, [BILLS], done)
    world.writes().add_or_verify(REQUEST, True, codes.append)
    for channel in world.channels:
        while channel.asked:
            channel.asked.pop()[2](BrokerError(E.NETWORK_EXCEPTION))
    assert done == [(BILLS, E.NETWORK_EXCEPTION)]
    assert codes == [[E.NETWORK_EXCEPTION]]


def test_markers_and_questions_do_not_wait_for_each_other():
    """Fails when a slow partition keeps every producer from its next transaction."""
    world = World({BILLS: 2, "t": 2})
    codes = []
    world.markers().write(MARKER, [BILLS], Written())
    world.writes().add_or_verify(REQUEST, False, codes.append)
    _, questions = world.channels
    questions.answer(write_codes("t", 0, ORDERS))
    assert codes == [[E.NONE]]


def test_markers_for_one_broker_go_beside_those_that_raise():
    """Fails when a mistake about one partition keeps a transaction's other partitions waiting."""
    world = World({ORDERS: 1, BILLS: 2})
    local, done = Leaders(), Written()
    local.raises = KeyError("ours")
    with pytest.raises(KeyError):
        world.markers(local).write(MARKER, [ORDERS, BILLS], done)
    (channel,) = world.channels
    channel.answer(marker_codes(MARKER, 0, BILLS))
    assert done == [(BILLS, E.NONE)]


def test_a_slow_partition_holds_up_its_own_markers_only():
    """Fails when one partition stalls the transactions of all others between two brokers."""
    world = World({BILLS: 2, ORDERS: 2})
    markers, done = world.markers(), Written()
    others = [MARKER._replace(producer_id=number) for number in range(6, 26)]
    markers.write(MARKER, [BILLS], done)
    for each in others:
        markers.write(each, [BILLS, ORDERS], done)
    slow, quick = world.channels
    quick.answer(marker_codes(others[0], 0, ORDERS))
    assert done == [(ORDERS, E.NONE)]
    (values,) = [values for _, values, _ in quick.asked]
    told = {each["producer_id"]: each["topics"] for each in values["markers"]}
    assert told == {
        each.producer_id: [{"name": ORDERS.topic, "partition_indexes": [0]}] for each in others[1:]
    }
    slow.answer(marker_codes(MARKER, 0, BILLS))
    assert done[1:] == [(BILLS, E.NONE)]
    (values,) = [values for _, values, _ in slow.asked]
    assert len(values["markers"]) == len(others), "what has waited goes together"


def partitions_asked(values):
    """The partitions of a request for markers."""
    return {
        TopicPartition(topic["name"], index)
        for marker in values["markers"]
        for topic in marker["topics"]
        for index in topic["partition_indexes"]
    }


class SlowPartitions:
    """Broker 2 leads some partitions that are slow, and `quick`; markers for all are under way."""

    def __init__(self, count):
        self.quick = TopicPartition("quick", 0)
        self.slow = [TopicPartition("slow", number) for number in range(count)]
        self.world = World(dict.fromkeys([*self.slow, self.quick], 2))
        self.markers, self.done = self.world.markers(), Written()

    def write(self, *partitions, producer_id=5):
        marker = MARKER._replace(producer_id=producer_id)
        self.markers.write(marker, list(partitions), self.done)

    def answer(self, *partitions):
        """The broker answers every request that is under way about nothing but these."""
        under_way = [
            (channel, channel.asked[0]) for channel in self.world.channels if channel.asked
        ]
        for channel, (_, values, _) in under_way:
            asked = partitions_asked(values)
            if asked <= set(partitions):
                producers = [each["producer_id"] for each in values["markers"]]
                made = [marker_codes(MARKER._replace(producer_id=n), 0, *asked) for n in producers]
                channel.answer({"markers": [each["markers"][0] for each in made]})

    def under_way(self):
        return [
            partitions_asked(values)
            for channel in self.world.channels
            for _, values, _ in channel.asked
        ]


@pytest.mark.parametrize("count", [UNDER_WAY, UNDER_WAY + 1, 8, 30])
@pytest.mark.parametrize("together", [False, True])
def test_no_number_of_slow_partitions_holds_up_others(count, together):
    """Fails when a few slow partitions stall all transactions between two brokers."""
    case = SlowPartitions(count)
    for each in [case.slow] if together else [[each] for each in case.slow]:
        case.write(*each)
    case.write(case.quick)
    case.world.timer.advance_clock(SLOW_AFTER_MS)
    case.answer(case.quick)
    assert case.done == [(case.quick, E.NONE)]
    case.write(case.quick)
    case.answer(case.quick)
    assert case.done == [(case.quick, E.NONE)] * 2, "at once, from now on"


def test_slow_partitions_that_are_tried_again_hold_up_no_others():
    """A partition that stays slow would hold up all that wait whenever its marker is tried again,
    for as long as a replica may take."""
    case = SlowPartitions(8)
    case.write(*case.slow, case.quick)
    for number in (6, 7):
        case.write(*case.slow, case.quick, producer_id=number)
    case.world.timer.advance_clock(SLOW_AFTER_MS)
    assert case.under_way() == [{*case.slow, case.quick}], "what they have begun with is one answer"
    case.answer(*case.slow, case.quick)
    assert sorted(map(sorted, case.under_way())) == sorted(
        [each] for each in [*case.slow, case.quick]
    )
    case.done.clear()
    case.answer(case.quick)
    assert case.done == [(case.quick, E.NONE)] * 2


def test_what_is_quick_again_goes_together_again():
    """Every partition would have its markers by a request of its own for ever after."""
    case = SlowPartitions(8)
    case.write(*case.slow)
    case.world.timer.advance_clock(SLOW_AFTER_MS)
    case.write(*case.slow, producer_id=6)
    everything = [*case.slow, case.quick]
    case.answer(*everything)
    assert len(case.under_way()) == len(case.slow)
    case.write(case.quick)
    case.answer(*everything)
    case.write(*everything)
    assert case.under_way() == [set(everything)]
    case.answer(*everything)
    assert case.world.timer.size == 0


def test_nothing_is_asked_on_a_new_connection_behind_the_end():
    """A broker that ends would open connections that nobody closes."""
    case = SlowPartitions(UNDER_WAY + 1)
    for each in case.slow:
        case.write(each)
    case.markers.requests.close()
    case.write(case.quick)
    assert len(case.done) == len(case.slow) + 1
    assert len(case.world.channels) == UNDER_WAY
    assert case.world.timer.size == 0


def test_no_more_than_a_few_requests_are_under_way():
    """Fails when every partition of a broker takes a connection of its own."""
    partitions = [TopicPartition("many", number) for number in range(20)]
    world = World(dict.fromkeys(partitions, 2))
    markers, done = world.markers(), Written()
    for each in partitions:
        markers.write(MARKER, [each], done)
    assert len(world.channels) == UNDER_WAY
    for channel in world.channels:
        for _ in range(len(channel.asked)):
            _, values, _ = channel.asked[-1]
            asked = [
                TopicPartition(topic["name"], index)
                for marker in values["markers"]
                for topic in marker["topics"]
                for index in topic["partition_indexes"]
            ]
            channel.answer(marker_codes(MARKER, 0, *asked))
    while any(channel.asked for channel in world.channels):
        (channel,) = [each for each in world.channels if each.asked]
        _, values, _ = channel.asked[-1]
        (marker,) = values["markers"]
        (topic,) = marker["topics"]
        asked = [TopicPartition("many", index) for index in topic["partition_indexes"]]
        channel.answer(marker_codes(MARKER, 0, *asked))
    assert sorted(done) == [(each, E.NONE) for each in partitions]


def test_questions_about_many_ids_go_together():
    """Fails when every first write of a transaction is a request that waits for replicas."""
    world = World({"t": 2})
    writes, codes = world.writes(), {}
    names = [f"id-{number}" for number in range(10)]
    for name in names:
        request = REQUEST._replace(transactional_id=name)
        writes.add_or_verify(request, False, lambda code, name=name: codes.update({name: code}))
    *first, last = world.channels
    assert len(first) == UNDER_WAY - 1
    last.answer(write_codes(names[UNDER_WAY - 1], 0, ORDERS))
    (values,) = [values for _, values, _ in last.asked]
    assert [each["transactional_id"] for each in values["transactions"]] == names[UNDER_WAY:]
    last.answer(write_codes(names[-1], 0, ORDERS))
    assert codes[names[-1]] == [E.NONE]
    assert codes[names[-2]] == [E.NETWORK_EXCEPTION], "an answer that lacks it is none"


def test_each_question_about_an_id_has_its_own_answer():
    """A producer that was fenced would write into the transaction of the one that took its place,
    or that one would be told that it was fenced."""
    world = World({"t": 2})
    writes, fenced, successor = world.writes(), [], []
    for number in range(UNDER_WAY):
        other = REQUEST._replace(transactional_id=f"id-{number}")
        writes.add_or_verify(other, False, lambda _: None)
    newer = REQUEST._replace(producer=ProducerIdAndEpoch(5, 2))
    writes.add_or_verify(REQUEST, False, fenced.append)
    writes.add_or_verify(newer, False, successor.append)
    *_, last = world.channels
    last.answer(write_codes(f"id-{UNDER_WAY - 1}", 0, ORDERS))
    last.answer(write_codes("t", E.INVALID_PRODUCER_EPOCH, ORDERS))
    assert (fenced, successor) == ([[E.INVALID_PRODUCER_EPOCH]], [])
    last.answer(write_codes("t", 0, ORDERS))
    assert successor == [[E.NONE]]


@pytest.mark.parametrize("is_answer", [True, False], ids=["an asker", "an answer"])
def test_what_raises_about_one_question_keeps_no_other_without_its_answer(is_answer):
    """Fails when a write hangs for ever, and its connection with it, by the mistake of another."""
    world = World({"t": 2})
    writes, codes = world.writes(), []

    def ask(name, on_codes):
        writes.add_or_verify(REQUEST._replace(transactional_id=name), False, on_codes)

    def fail(_):
        raise KeyError("ours")

    for number in range(UNDER_WAY):
        ask(f"busy{number}", lambda _: None)
    channel = world.channels[-1]
    ask("a", fail if is_answer else codes.append)
    ask("b", codes.append)
    channel.asked.pop()[2](BrokerError(E.NETWORK_EXCEPTION))
    ask("c", codes.append)
    _, _, on_done = channel.asked.pop()
    with pytest.raises(KeyError if is_answer else AttributeError):
        on_done(BrokerError(E.NETWORK_EXCEPTION) if is_answer else "no response")
    assert codes == [[E.NETWORK_EXCEPTION]] * (1 if is_answer else 2)
    channel.answer(write_codes("c", 0, ORDERS))
    assert codes[-1] == [E.NONE]


def test_markers_of_many_producers_in_a_partition_go_together():
    """A partition that many transactions write to would have one marker a round trip."""
    world = World({ORDERS: 2})
    markers, done = world.markers(), Written()
    ends = [MARKER._replace(producer_id=each) for each in range(4)]
    for each in (*ends, ends[-1]):
        markers.write(each, [ORDERS], done)
    (channel,) = world.channels
    counts = []
    while channel.asked:
        ((_, values, _),) = channel.asked
        asked = [each["producer_id"] for each in values["markers"]]
        counts.append(len(asked))
        answers = [marker_codes(MARKER._replace(producer_id=each), 0, ORDERS) for each in asked]
        channel.answer({"markers": [each for some in answers for each in some["markers"]]})
    assert counts == [1, 3, 1]
    assert done == [(ORDERS, E.NONE)] * 5


def test_a_broker_that_came_back_is_asked_anew_and_nobody_waits_for_the_old():
    """Fails when whoever asked a dead broker is never answered."""
    world = World({"t": 2})
    writes, done = world.writes(), []
    writes.add_or_verify(REQUEST, True, done.append)
    (old,) = world.channels
    world.epochs[2] += 1
    writes.requests.drop_gone()
    assert old.is_closed
    assert done == [[E.NETWORK_EXCEPTION]]
    writes.add_or_verify(REQUEST, False, done.append)
    _, new = world.channels
    new.answer(write_codes("t", 0, ORDERS))
    assert done[1:] == [[E.NONE]]
    writes.add_or_verify(REQUEST, False, done.append)
    writes.add_or_verify(REQUEST, False, done.append)
    writes.requests.close()
    assert done[2:] == [[E.NETWORK_EXCEPTION]] * 2
    assert len(world.channels) == 2, "none is opened behind the end"
