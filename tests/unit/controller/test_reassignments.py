"""Reassignments: how they begin, go on, are taken back, and end."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.background import InlineBackground
from odradek.controller.replicas.reassigner import MOST_TRIES, Reassigner, Reassignment
from odradek.controller.replicas.reassignments import (
    plan_completions,
    plan_reassignment,
    reassignments_in_progress,
)
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import (
    BrokerRegistration,
    MetadataCache,
    MetadataImage,
    NewTopic,
    PartitionChange,
    PartitionImage,
    TopicImage,
)
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.model import TopicPartition

TP = TopicPartition("a", 0)


def _image(partition: PartitionImage, live: tuple[int, ...] = (1, 2, 3, 4, 5)) -> MetadataImage:
    brokers = {number: BrokerRegistration(number, (), None, 1) for number in live}
    topic = TopicImage("a", UUID(int=7), (partition,))
    return MetadataImage("c").with_brokers(brokers, 1).with_topics([topic])


def _partition(**changes: Any) -> PartitionImage:
    return PartitionImage(0, 1, 5, 9, (1, 2, 3), (1, 2, 3))._replace(**changes)


def _plan(partition: PartitionImage, target: tuple[int, ...] | None, **options: Any) -> Any:
    change = plan_reassignment(_image(partition), TP, target, **options)
    assert change is None or change.assignment is not None
    return None if change is None else (change.leader, change.isr, *change.assignment)


def _code_of(call: Callable[[], object]) -> object:
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


MOVING = _partition(replicas=(4, 2, 1, 3), isr=(1, 2, 3), adding=(4,), removing=(1, 3))


@pytest.mark.parametrize(
    ("partition", "target", "outcome"),
    [
        # Those that come stand in front, those that go behind, and all are kept until the end.
        (_partition(), (4, 5, 1), (1, (1, 2, 3), (4, 5, 1, 2, 3), (4, 5), (2, 3))),
        (_partition(), (1, 2, 3, 4), (1, (1, 2, 3), (1, 2, 3, 4), (4,), ())),
        # Nobody has to be waited for: another order, or fewer replicas.
        (_partition(), (3, 2, 1), (1, (1, 2, 3), (3, 2, 1), (), ())),
        (_partition(), (2, 1), (1, (1, 2), (2, 1), (), ())),
        # The leader goes: the first that stays and is in sync takes over.
        (_partition(), (3, 2), (3, (2, 3), (3, 2), (), ())),
        (_partition(isr=(1, 2)), (3, 2), (2, (2,), (3, 2), (), ())),
        # Begun anew: who was coming and is not wanted any more goes at once.
        (MOVING, (5, 2), (1, (1, 2, 3), (5, 2, 1, 3), (5,), (1, 3))),
        (MOVING._replace(isr=(1, 2, 3, 4)), (5, 2), (1, (1, 2, 3), (5, 2, 1, 3), (5,), (1, 3))),
        # Taken back.
        (MOVING, None, (1, (1, 2, 3), (2, 1, 3), (), ())),
        (MOVING._replace(isr=(1, 4), leader=4), None, (1, (1,), (2, 1, 3), (), ())),
    ],
)
def test_a_reassignment_begins(partition: PartitionImage, target: Any, outcome: Any) -> None:
    """Each with the leader, the ISR and the replicas that it leaves."""
    assert _plan(partition, target) == outcome


@pytest.mark.parametrize(("partition", "target"), [(_partition(), (1, 2, 3)), (MOVING, (4, 2))])
def test_what_is_so_already_is_nothing_to_do(partition: PartitionImage, target: Any) -> None:
    """A script that is run twice finds nothing the second time."""
    assert _plan(partition, target) is None


@pytest.mark.parametrize(
    ("partition", "target", "options", "code"),
    [
        (_partition(), (), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_partition(), (1, 1), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_partition(), (1, 9), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_partition(), (-1,), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (_partition(), None, {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        # Only a new replica is in sync: without it nothing would be left.
        (
            MOVING._replace(isr=(4,), leader=4),
            None,
            {},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            _partition(),
            (1, 2),
            {"allow_replication_factor_change": False},
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
    ],
)
def test_reassignments_that_cannot_be(
    partition: PartitionImage, target: Any, options: Any, code: ErrorCode
) -> None:
    """Each with Kafka's code."""
    assert _code_of(lambda: _plan(partition, target, **options)) is code


def test_unknown_partitions() -> None:
    """A topic and a partition that are not there."""
    image = _image(_partition())
    for unknown in (TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", -1)):
        code = _code_of(lambda tp=unknown: plan_reassignment(image, tp, (1,)))
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("isr", "live", "completed"),
    [
        ((1, 2, 3), (1, 2, 3, 4), None),
        ((1, 2, 3, 4), (1, 2, 3, 4), (4, (2, 4), (4, 2))),
        # The new replica is in sync, but gone again.
        ((1, 2, 3, 4), (1, 2, 3), None),
        # One that stays is not in sync; it is not waited for.
        ((1, 4), (1, 2, 4), (4, (4,), (4, 2))),
    ],
)
def test_a_reassignment_ends_when_its_new_replicas_are_in_sync(
    isr: Any, live: Any, completed: Any
) -> None:
    """A replica that goes leaves the ISR in the same step, and the leadership with it."""
    changes = plan_completions(_image(MOVING._replace(isr=isr), live), [TP])
    found = [(change.leader, change.isr, change.assignment) for change in changes]
    if completed is None:
        assert found == []
    else:
        assert found == [(*completed[:2], (completed[2], (), ()))]


def test_what_is_in_progress() -> None:
    """All of a topic, or of what was asked for; of unknown ones nothing."""
    image = _image(MOVING)
    assert reassignments_in_progress(image, "a") == [MOVING]
    assert reassignments_in_progress(image, "a", [0, 7]) == [MOVING]
    assert reassignments_in_progress(image, "a", [1]) == []
    assert reassignments_in_progress(image, "b") == []
    assert reassignments_in_progress(_image(_partition()), "a") == []


class _Brokers:
    """The stores of brokers 1 to 5, their controllers, and a topic with replicas 1, 2 and 3."""

    def __init__(self) -> None:
        shared = SharedMetadata(InlineBackground(), lambda count: bytes(range(1, count + 1)))
        self.cache = MetadataCache()
        self.stores = {}
        for broker_id in range(1, 6):
            store = EmbeddedMetadataStore(self.cache if broker_id == 1 else MetadataCache(), shared)
            ReplicationControl(store, broker_id, lambda image, topic: False)
            store.load()
            store.register_broker(broker_id, (), None, lambda outcome: None)
            self.stores[broker_id] = store
        self.reassigner = Reassigner(self.stores[1], self.cache)
        self.stores[1].create_topics([NewTopic("a", ((1, 2, 3),), {})], lambda outcome: None)

    @property
    def partition(self) -> PartitionImage:
        found = self.cache.image.partition(TP)
        assert found is not None
        return found

    def alter(self, target: tuple[int, ...] | None) -> BrokerError | None:
        answers: list[Any] = []
        self.reassigner.alter([Reassignment(TP, target)], answers.append)
        (answer,) = answers
        return answer[TP]

    def set_isr(self, isr: tuple[int, ...]) -> None:
        """As the leader does that sees its followers come and go."""
        state = self.partition
        if state.leader in isr:
            change = PartitionChange(TP, state.partition_epoch, state.leader, isr)
            self.stores[state.leader].change_partitions([change], lambda outcome: None)


def test_from_begin_to_end() -> None:
    """The controller ends it when the leader has taken the new replica in; who goes is no
    replica of the next leader epoch."""
    brokers = _Brokers()
    assert brokers.alter((4, 2)) is None
    assert brokers.partition[3:] == (1, (4, 2, 1, 3), (1, 2, 3), (), (4,), (1, 3))
    epoch = brokers.partition.leader_epoch
    brokers.set_isr((1, 2, 3, 4))
    assert brokers.partition[4:] == ((4, 2), (2, 4), (), (), ())
    assert (brokers.partition.leader, brokers.partition.leader_epoch) == (4, epoch + 1)


def test_a_reassignment_that_a_leader_overtakes_is_worked_out_again() -> None:
    """The plan was made on an ISR that is over; the answer is not the store's refusal."""
    brokers = _Brokers()
    change_partitions = brokers.stores[1].change_partitions

    def overtaken(changes: Any, on_done: Any) -> None:
        del brokers.stores[1].change_partitions
        brokers.set_isr((1, 2))
        change_partitions(changes, on_done)

    brokers.stores[1].change_partitions = overtaken  # type: ignore[method-assign]
    assert brokers.alter((4, 1)) is None
    assert brokers.partition[4:] == ((4, 1, 2, 3), (1, 2), (), (4,), (2, 3))


def test_a_reassignment_that_is_always_overtaken_is_refused() -> None:
    """The state that the store has cannot be read here: it would be planned for ever."""
    brokers = _Brokers()
    planned = []

    def overtaken(changes: Any, on_done: Any) -> None:
        planned.append(changes)
        on_done([BrokerError(ErrorCode.INVALID_UPDATE_VERSION) for _ in changes])

    brokers.stores[1].change_partitions = overtaken  # type: ignore[method-assign]
    refused = brokers.alter((4, 1))
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_UPDATE_VERSION
    assert len(planned) == MOST_TRIES


@given(
    st.lists(
        st.one_of(
            st.permutations(range(1, 6)).flatmap(
                lambda ids: st.integers(1, 4).map(lambda count: ("to", tuple(ids[:count])))
            ),
            st.just(("back", None)),
            st.sets(st.integers(1, 5), min_size=1).map(lambda ids: ("isr", tuple(sorted(ids)))),
        ),
        max_size=12,
    )
)
def test_any_history_leaves_a_partition_that_holds_together(steps: list[tuple[str, Any]]) -> None:
    """The leader is in sync, who is in sync is a replica, who comes and who goes are apart, and
    nobody is waited for that is in sync already."""
    brokers = _Brokers()
    for kind, value in steps:
        before = brokers.partition
        if kind == "isr":
            brokers.set_isr(tuple(each for each in value if each in before.replicas))
        else:
            brokers.alter(value)
        state = brokers.partition
        assert state.leader in state.isr
        assert set(state.isr) <= set(state.replicas)
        assert len(set(state.replicas)) == len(state.replicas)
        assert set(state.adding) | set(state.removing) <= set(state.replicas)
        assert not set(state.adding) & set(state.removing)
        staying = set(state.isr) - set(state.removing)
        assert not state.is_reassigning or not staying or not set(state.adding) <= staying
        gone = set(before.replicas) - set(state.replicas)
        assert not gone or state.leader_epoch > before.leader_epoch
