"""States of partitions that somebody removes from ZooKeeper where a controller knows them: they are
written again under later epochs, and no replica without the records leads."""

from collections.abc import Sequence

import pytest
from tests.unit.controller.elected.test_overwritten_topics import (
    Replicas,
    assert_all_agree,
    deleted,
    keep_who_is_in_sync,
    take_over,
    write_over,
)
from tests.unit.controller.elected.test_reassigned_topics import (
    MOMENTS,
    SECOND,
    TP,
    create,
    reassign,
    step,
    written,
)
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.controller.elected import state_writer
from odradek.metadata import PartitionChange
from odradek.metadata.image import PartitionImage
from odradek.metadata.zookeeper import znodes
from odradek.model import TopicPartition

ISR_CHANGED = '{"version":1,"partitions":[{"topic":"a","partition":0}]}'


def change_isr(cluster: Cluster, where: TopicPartition, isr: Replicas) -> PartitionImage:
    state = cluster.controller.state(*where)
    change = PartitionChange(where, state.partition_epoch, state.leader, tuple(isr))
    (changed,) = cluster.brokers[state.leader].ask("change_partitions", [change])
    assert isinstance(changed, PartitionImage), changed
    return changed


def a_cluster() -> Cluster:
    """Of the first partition only the second and third replica have all records."""
    cluster = Cluster(3)
    create(cluster, (1, 2, 3), (2, 3))
    (elected,) = cluster.controller.ask(
        "change_partitions",
        [PartitionChange(TP, cluster.controller.state().partition_epoch, 2, (1, 2, 3))],
    )
    assert isinstance(elected, PartitionImage), elected
    change_isr(cluster, TP, (2, 3))
    return cluster


def remove(cluster: Cluster, *, with_folders: bool = False) -> None:
    for where in (TP, SECOND):
        cluster.tree.remove(znodes.state_path(where))
        if with_folders:
            cluster.tree.remove(znodes.partition_path(where))
    if with_folders:
        cluster.tree.remove(znodes.partitions_path("a"))


def assert_later(cluster: Cluster, *before: PartitionImage) -> None:
    assert_all_agree(cluster)
    assert not any(deleted(cluster).values())
    for where, state in zip((TP, SECOND), before, strict=True):
        after = cluster.controller.state(*where)
        assert after.partition_epoch > state.partition_epoch
        assert after.leader_epoch >= state.leader_epoch


def states(cluster: Cluster) -> list[PartitionImage]:
    return [cluster.controller.state(*where) for where in (TP, SECOND)]


@pytest.mark.parametrize("with_folders", [False, True])
@pytest.mark.parametrize("versions_per_write", [3, 500])
def test_states_that_somebody_removes_under_a_controller(
    monkeypatch: pytest.MonkeyPatch, versions_per_write: int, *, with_folders: bool
) -> None:
    """No state could be written any more: partitions of brokers that go would have no leader."""
    monkeypatch.setattr(state_writer, "VERSIONS_PER_WRITE", versions_per_write)
    cluster = a_cluster()
    before = states(cluster)
    remove(cluster, with_folders=with_folders)
    cluster.stop(2)
    assert_later(cluster, *before)
    assert [(each.leader, each.isr) for each in states(cluster)] == [(3, (3,)), (3, (3,))]


@pytest.mark.parametrize("with_folders", [False, True])
def test_replicas_are_moved_though_the_state_is_gone(*, with_folders: bool) -> None:
    """The topic's node and the states go together: all of it would be refused again and again."""
    cluster = a_cluster()
    before = states(cluster)
    remove(cluster, with_folders=with_folders)
    moved = [reassign(cluster.controller, TP, (3, 2)), reassign(cluster.controller, SECOND, (3, 2))]
    cluster.settle()
    assert moved == [[{TP: None}], [{SECOND: None}]]
    assert written(cluster) == [(3, 2), (3, 2)]
    assert_all_agree(cluster)
    assert all(
        now.partition_epoch > then.partition_epoch
        for now, then in zip(states(cluster), before, strict=True)
    )


OTHER_STATE = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'


def make_others(cluster: Cluster) -> None:
    """In the place of the states, those of a broker that is not in sync."""
    remove(cluster)
    for where in (TP, SECOND):
        cluster.tree.put(znodes.state_path(where), OTHER_STATE)


def test_states_that_somebody_makes_anew_under_a_controller() -> None:
    """No state could be written any more: the versions that writes are based on are those of the
    states before."""
    cluster = a_cluster()
    before = states(cluster)
    make_others(cluster)
    cluster.stop(2)
    assert_later(cluster, *before)
    assert [(each.leader, each.isr) for each in states(cluster)] == [(3, (3,)), (3, (3,))]


@pytest.mark.parametrize("moment", MOMENTS)
def test_states_that_somebody_makes_anew_as_a_controller_begins(moment: int) -> None:
    """A replica without the records would lead, under an epoch that others have left behind."""
    cluster = a_cluster()
    for isr in ((2,), (2, 3)):
        change_isr(cluster, SECOND, isr)
    keep_who_is_in_sync(cluster)
    before = states(cluster)
    make_others(cluster)
    step(cluster, moment)
    take_over(cluster, 3)
    assert_later(cluster, *before)
    assert [(each.leader, each.isr) for each in states(cluster)] == [(2, (2, 3)), (2, (2, 3))]


@pytest.mark.parametrize("versions_per_write", [3, 4, 5])
def test_a_controller_that_goes_as_it_writes_a_state_again(
    monkeypatch: pytest.MonkeyPatch, versions_per_write: int
) -> None:
    """The next one would go on with a version that brokers have left behind: they ignore it, and
    it refuses what their leaders ask for."""
    monkeypatch.setattr(state_writer, "VERSIONS_PER_WRITE", versions_per_write)
    cluster = a_cluster()
    for isr in ((2, 3, 1), (2, 3), (2, 3, 1), (2, 3)):
        change_isr(cluster, TP, isr)
    before = states(cluster)
    path = znodes.state_path(TP)
    remove(cluster)
    cluster.tree.put("/isr_change_notification/isr_change_1", ISR_CHANGED)
    while path not in cluster.tree.entries:
        step(cluster, 1)
    assert cluster.tree.entries[path].version < before[0].partition_epoch
    take_over(cluster, 3)
    assert_later(cluster, *before)
    assert change_isr(cluster, TP, (2,)).isr == (2,)


def test_states_that_are_read_and_gone_are_written_again() -> None:
    """The writers of a changed state name one that is not there."""
    cluster = a_cluster()
    before = states(cluster)
    remove(cluster)
    cluster.tree.put("/isr_change_notification/isr_change_1", ISR_CHANGED)
    cluster.settle()
    assert_later(cluster, *before)


OVERWRITES: Sequence[tuple[Replicas, ...]] = ((), ([1], [1]), ([1, 2, 3], [2, 3]))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("keeps_id", "with_folders"), [(False, False), (True, False), (False, True)]
)
@pytest.mark.parametrize("replicas", OVERWRITES)
def test_states_that_are_gone_as_a_controller_begins(
    moment: int, replicas: tuple[Replicas, ...], *, keeps_id: bool, with_folders: bool
) -> None:
    """The first replica that lives would lead, under an epoch that others have left behind: they
    ignore it as long as they live, and then cut their records off."""
    cluster = a_cluster()
    keep_who_is_in_sync(cluster)
    before = states(cluster)
    topic_id = cluster.controller.image.topics["a"].topic_id
    remove(cluster, with_folders=with_folders)
    if replicas:
        write_over(cluster, *replicas, keeps_id=keeps_id)
    step(cluster, moment)
    take_over(cluster, 3)
    assert cluster.controller.image.topics["a"].topic_id == topic_id
    assert_later(cluster, *before)
    assert [(each.leader, each.isr) for each in states(cluster)] == [(2, (2, 3)), (2, (2, 3))]
