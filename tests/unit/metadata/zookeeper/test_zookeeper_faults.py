"""Two failures at once around a controller: what it may say, and what a broker makes of it."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.outcomes import whatever
from tests.unit.metadata.zookeeper.zookeeper_cluster import Broker, Cluster

from odradek.clock import ManualClock
from odradek.errors import ErrorCode
from odradek.metadata import NewPartitions, NewTopic, PartitionChange, changes
from odradek.metadata.control import AlterPartition, LeaderAndIsr, UpdateMetadata
from odradek.metadata.engine import SLICE_PARTITIONS
from odradek.metadata.image import TopicImage
from odradek.metadata.zookeeper import metadata_updates as updates
from odradek.metadata.zookeeper.client import (
    Create,
    Delete,
    Failure,
    Refusal,
    ZooKeeperSettings,
)
from odradek.model import TopicPartition
from odradek.timer import SystemTimer

TP = TopicPartition("a", 0)
STATE = "/brokers/topics/a/partitions/0/state"
ISR_CHANGE = '{"version":1,"partitions":[{"topic":"a","partition":0}]}'


def create(cluster: Cluster, *assignment: tuple[int, ...], name: str = "a") -> None:
    (topic,) = cluster.controller.ask("create_topics", [NewTopic(name, assignment, {})])
    assert isinstance(topic, TopicImage), topic


def deaf_heirs() -> tuple[Broker, Broker]:
    """A controller that was just elected and has read nothing, and the other broker: both have
    never been told of a topic, whose controller is gone."""
    cluster = Cluster(3)
    cluster.brokers[2].is_deaf = cluster.brokers[3].is_deaf = True
    cluster.brokers[1].begin("create_topics", [NewTopic("a", ((1, 2, 3),), {})])
    cluster.settle()
    cluster.brokers.pop(1).store.close()
    heirs = list(cluster.brokers.values())
    while not (elected := [each for each in heirs if each.elected is not None]):
        assert cluster.tree.step(), "nobody is elected"
    heirs.remove(elected[0])
    assert not elected[0].image.topics
    heirs[0].is_deaf = False
    return elected[0], heirs[0]


def test_a_controller_commands_nobody_before_it_has_read() -> None:
    """The old commands of another controller would be the law: brokers would give up topics that
    were made since, and groups lose their offsets."""
    controller, other = deaf_heirs()
    while controller.elected is not None and not controller.elected.has_read:
        # A setting that somebody has changed, say.
        controller.store._view.publish(lambda image: changes.difference(image, image))
        assert controller.plane.sent == []
        assert controller.cluster.tree.step()
    controller.is_deaf = False
    controller.cluster.settle()
    assert sorted(controller.image.topics) == sorted(other.image.topics) == ["a"]
    first = next(each for _, each in controller.plane.sent if isinstance(each, LeaderAndIsr))
    assert [state.topic for state in first.partitions] == ["a"]


@pytest.mark.parametrize("end", [Broker.expire, Broker.close])
def test_a_controller_that_ends_while_it_reads(end: Callable[[Broker], None]) -> None:
    """Its begun work would not be taken over, or what it had half read be told."""
    controller, other = deaf_heirs()
    cluster = controller.cluster
    for _ in range(8):
        cluster.tree.step()
    assert controller.elected is not None
    assert not controller.elected.has_read
    end(controller)
    cluster.settle()
    assert cluster.controller is other
    assert other.state().leader == other.id
    assert controller.plane.sent == []


def test_a_controller_that_is_elected_anew_answers_nobody_before_it_has_read() -> None:
    """Among many roles a broker has not shown yet that its earlier election is over: leaders would
    be answered out of an image that the cluster has left behind."""
    cluster = Cluster(1)
    one = cluster.brokers[1]
    one.begin("create_topics", [NewTopic("a", ((1,),) * 190, {})])
    while not one.leads:
        if not cluster.tree.step():
            cluster.timer.advance_clock(0)
    first = one.elected
    cluster.tree.remove("/controller")
    while one.elected in (first, None):
        assert cluster.tree.step()
    assert one.image.controller_id == 1, "it knows no better yet"
    (refused,) = one.begin("on_controlled_shutdown", 1, one.image.brokers[1].epoch)
    assert refused.code is ErrorCode.NOT_CONTROLLER
    cluster.settle()
    assert one.state("a", 189).leader == 1


def test_what_nobody_speaks_of_is_not_taken_for_deleted() -> None:
    """Groups would lose the offsets of topics that are there, but were not named."""
    cluster = Cluster(2)
    create(cluster, (1,))
    create(cluster, (2, 1), name="here")
    two = cluster.brokers[2]
    whole = [each for _, each in cluster.brokers[1].plane.sent if isinstance(each, LeaderAndIsr)]
    header = whole[0].header._replace(controller_epoch=9)
    brokers = tuple(two.image.brokers.values())
    assert two.ask("on_leader_and_isr", LeaderAndIsr(header, True, (), ())) == {}
    assert two.ask("on_update_metadata", UpdateMetadata(header, (), brokers)) is None
    assert two.removed == ["a"]  # and `Broker` checks what is said to be deleted
    assert set(two.image.topics) == {"here"}, "a later command may have to end a replica's role"


def test_a_topic_that_may_not_be_read_is_not_gone() -> None:
    """A controller without the permission would have everybody give it up."""
    cluster = Cluster(2)
    create(cluster, (2, 1))
    cluster.tree.unreadable.add("/brokers/topics/a")
    cluster.stop(1)
    assert cluster.brokers[2].state().leader == 2
    assert cluster.brokers[2].removed == []


# Failed directories


def test_a_broker_says_itself_what_it_cannot_serve() -> None:
    """The controller was elected after the directory had failed; nobody else knows."""
    cluster = Cluster(3)
    create(cluster, (2, 3, 1))
    two = cluster.brokers[2]
    two.unserved.add(TP)
    two.store.report_offline([TP], 2)
    cluster.stop(1)
    assert sorted(cluster.controller.state().offline) == [1, 2]
    assert cluster.brokers[3].state().leader == 3


def test_a_replica_that_is_offline_does_not_join_the_isr() -> None:
    """It would be elected, and have nothing of what was acknowledged since."""
    cluster = Cluster(3)
    create(cluster, (1, 2, 3))
    two = cluster.brokers[2]
    two.unserved.add(TP)
    two.store.report_offline([TP], 2)
    cluster.settle()
    state = cluster.brokers[1].state()
    assert (state.isr, state.offline) == ((1, 3), (2,))
    change = PartitionChange(TP, state.partition_epoch, 1, (1, 2, 3))
    request = AlterPartition(1, cluster.brokers[1].image.brokers[1].epoch, [change], [0])
    (refused,) = cluster.brokers[1].ask(
        "on_alter_partition", request._replace(leader_epochs=[state.leader_epoch])
    )
    assert refused.code is ErrorCode.INELIGIBLE_REPLICA


def test_a_broker_that_answered_before_it_died_is_offline() -> None:
    """Its replicas would be taken for served until it comes back."""
    cluster = Cluster(3)
    cluster.brokers[1].begin("create_topics", [NewTopic("a", ((1, 2, 3),), {})])
    while not cluster.brokers[2].hosts:
        assert cluster.tree.step()
    turns = cluster.turns_of(2)
    answers = list(turns)
    turns.clear()
    cluster.brokers.pop(2).store.close()
    cluster.settle()
    assert cluster.brokers[1].state().offline == (2,)
    turns.extend(answers)
    cluster.settle()
    for broker in cluster.brokers.values():
        assert broker.state().offline == (2,)


def test_a_replica_is_told_whether_it_is_new() -> None:
    """On a broker that has lost a disk the log of a new replica is made on another; that of one
    that was there may be on the lost one."""
    cluster = Cluster(3)
    create(cluster, (1, 2))
    requested = '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2,3]}]}'
    cluster.tree.put("/admin/reassign_partitions", requested)
    cluster.settle()
    cluster.brokers[1].ask("create_partitions", [NewPartitions("a", 1, ((1, 3),))])
    told = [
        (state.partition.partition, state.is_new)
        for broker_id, each in cluster.brokers[1].plane.sent
        if broker_id == 3 and isinstance(each, LeaderAndIsr)
        for state in each.partitions
    ]
    assert (0, True) in told
    assert (1, True) in told
    cluster.brokers[1].plane.sent.clear()
    cluster.brokers[3].expire()
    cluster.brokers[3].register()
    again = [
        state.is_new
        for broker_id, each in cluster.brokers[1].plane.sent
        if broker_id == 3 and isinstance(each, LeaderAndIsr)
        for state in each.partitions
    ]
    assert again == [False, False]


# Many partitions


def test_many_roles_are_taken_a_few_at_a_time() -> None:
    """A broker that opens ten thousand logs stands still longer than its session lives, is taken
    for dead, comes back, and is told the same again."""
    cluster = Cluster(2)
    create(cluster, *((2, 1),) * 90)
    for broker in cluster.brokers.values():
        assert broker.largest_step == SLICE_PARTITIONS
        assert len(broker.image.topics["a"].partitions) == 90
    assert len(cluster.brokers[2].leads) == 90
    cluster.stop(1)
    assert cluster.brokers[2].largest_step == SLICE_PARTITIONS
    assert cluster.brokers[2].state("a", 89).isr == (2,)


def test_a_session_that_ends_among_many_roles() -> None:
    """The rest of a command would make the broker lead, which others take for dead."""
    cluster = Cluster(2)
    two = cluster.brokers[2]
    cluster.brokers[1].begin("create_topics", [NewTopic("a", ((2, 1),) * 90, {})])
    while not two.leads:
        if not cluster.tree.step():
            cluster.timer.advance_clock(0)
    assert len(two.leads) == SLICE_PARTITIONS
    assert "a" not in two.image.topics, "clients would ask for what is not there yet"
    two.expire()
    for _ in range(500):
        assert two.leads == set()
        cluster.tree.step()
        cluster.timer.advance_clock(0)
    assert len(two.hosts) == SLICE_PARTITIONS
    two.register()
    assert len(two.hosts) == 90
    assert cluster.brokers[1].state("a", 89).leader == 1


def test_a_session_that_ends_before_the_roles() -> None:
    """A broker that has just come notes first what it has had, and that alone takes a while."""
    cluster = Cluster(2)
    create(cluster, *((2, 1),) * 90)
    cluster.stop(2)
    two = cluster.add(2)
    two.begin("register_broker", 2, (), None)
    while not two.largest_step:
        if not cluster.tree.step():
            cluster.clock.advance(10)
            cluster.timer.advance_clock(0)
    two.expire()
    for _ in range(500):
        assert two.leads == two.hosts == set()
        cluster.tree.step()
        cluster.timer.advance_clock(0)
    two.register()
    assert len(two.hosts) == 90


def test_a_broker_that_stops_among_many_roles() -> None:
    """Its logs are closed by then: to open some more would end it in disorder."""
    cluster = Cluster(2)
    two = cluster.brokers[2]
    cluster.brokers[1].begin("create_topics", [NewTopic("a", ((2, 1),) * 90, {})])
    while not two.leads:
        if not cluster.tree.step():
            cluster.timer.advance_clock(0)
    two.close()
    cluster.settle()
    assert len(two.leads) == SLICE_PARTITIONS


# Questions and watches


def test_a_question_that_a_stale_controller_refuses_is_asked_again() -> None:
    """The in-sync replicas of the partition would stay as they are for ever: the leader waits for
    a state that nobody will write."""
    cluster = Cluster(2)
    create(cluster, (2, 1))
    controller, leader = cluster.brokers[1], cluster.brokers[2]
    newer = leader.state()._replace(partition_epoch=7)
    leader.store._view.publish(
        lambda image: changes.difference(image, updates.with_outcome(image, TP, newer))
    )
    answers = leader.begin("change_partitions", [PartitionChange(TP, 7, 2, (2,))])
    cluster.settle(2)
    assert answers == []
    for _ in range(7):
        cluster.tree.put(STATE, cluster.tree.text(STATE))
    cluster.tree.put("/isr_change_notification/isr_change_1", ISR_CHANGE)
    cluster.settle()
    ((changed,),) = answers
    assert changed.isr == controller.state().isr == (2,)


def test_nothing_is_watched_of_what_is_deleted() -> None:
    """Where topics come and go a controller would fill its memory, and ZooKeeper's."""
    cluster = Cluster(2)
    create(cluster, (2, 1))
    before = cluster.tree.watched()
    for name in ("b", "c", "d"):
        create(cluster, (2, 1), name=name)
        cluster.brokers[2].ask("delete_topics", [cluster.brokers[2].image.topics[name].topic_id])
    assert not {path for path in cluster.tree.watched() if path not in cluster.tree.entries} - {
        *before
    }


def test_a_topic_that_cannot_be_removed_is_tried_again_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ZooKeeper would be asked the same as fast as it can answer, for as long as it refuses."""
    cluster = Cluster(2)
    create(cluster, (2, 1))
    for path in ("/brokers/topics/a/partitions/7", "/brokers/topics/a/stranger"):
        cluster.tree.put(path)
    cluster.brokers[1].ask("delete_topics", [cluster.brokers[1].image.topics["a"].topic_id])
    assert 1 <= caplog.text.count("topic a could not be removed at once") <= 6
    assert "/brokers/topics/a" in cluster.tree.entries
    cluster.tree.commit([Delete("/brokers/topics/a/stranger")], 0)
    cluster.settle()
    assert "/brokers/topics/a" not in cluster.tree.entries


# What raises


def test_who_raises_ends_his_broker_and_no_queue_waits_for_it() -> None:
    """The broker would live on for the others, and hear nothing any more."""
    cluster = Cluster(3)
    three = cluster.brokers[3]
    three.raises = KeyError("a listener's")
    create(cluster, (3, 2), (2, 1))
    assert {repr(each) for each in three.broken} == {repr(three.raises)}
    assert cluster.brokers[2].state("a", 1).leader == 2
    three.raises = None
    three.broken.clear()
    create(cluster, (1, 2), name="b")
    assert three.image.topics["b"].partitions[0].leader == 1


def test_a_command_that_raises_ends_its_broker() -> None:
    """The connection would only log it, and the broker carry out no later command."""
    cluster = Cluster(2)
    create(cluster, (1, 2))
    two = cluster.brokers[2]
    two.store.on_leader_and_isr(last_command(cluster)._replace(partitions=None), whatever)
    assert [type(each) for each in two.broken] == [TypeError]


def test_an_answer_to_a_command_that_raises_keeps_no_other_command_waiting() -> None:
    """The broker would be deaf from then on."""
    cluster = Cluster(2)
    create(cluster, (1, 2))
    two, raised = cluster.brokers[2], KeyError("an answer's")

    def fail(_: object) -> None:
        raise raised

    two.store.on_leader_and_isr(last_command(cluster), fail)
    cluster.tree.run()
    assert two.broken == [raised]
    two.broken.clear()
    assert set(two.ask("on_leader_and_isr", last_command(cluster))) == {TP}


def last_command(cluster: Cluster) -> LeaderAndIsr:
    """The roles that broker 2 was last told."""
    sent = cluster.controller.plane.sent
    return [each for to, each in sent if to == 2 and isinstance(each, LeaderAndIsr)][-1]


def test_a_controller_that_raises_ends_its_broker() -> None:
    """Its event queue would be busy for ever: no leader is elected any more."""
    cluster = Cluster(3)
    one = cluster.brokers[1]
    elected = one.elected
    assert elected is not None

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    answers = one.begin("sync")
    elected._events.submit(fail)  # type: ignore[arg-type]
    assert [type(each) for each in one.broken] == [ZeroDivisionError]
    one.broken.clear()
    cluster.settle()
    assert answers == [None]


class Refused:
    """A node that may not be read, as kazoo answers."""

    def __init__(self) -> None:
        self.exception = pytest.importorskip("kazoo.exceptions").NoAuthError()
        self.value = None

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        callback(self)


@pytest.mark.parametrize("kind", ["get", "get_children"])
def test_what_may_not_be_read_is_looked_at_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper watches nothing that it refuses to read: nobody would ever hear of it again."""
    session_module = pytest.importorskip("odradek.metadata.zookeeper.connection.session")
    clock = ManualClock()
    timer = SystemTimer(clock)
    turns: list[Callable[[], None]] = []
    settings = ZooKeeperSettings("127.0.0.1:1", 1000, 1000)
    session = session_module.KazooSession(settings, timer, clock, turns.append)
    monkeypatch.setattr(session._client, f"{kind}_async", lambda _path, watch: Refused())
    heard: list[object] = []
    read = session.get if kind == "get" else session.children
    read("/a", heard.append, lambda: heard.append("changed"))
    turns.pop()()
    assert heard == [Failure.REFUSED]
    clock.advance(session_module.UNREADABLE_MS)
    timer.advance_clock(0)
    assert heard == [Failure.REFUSED, "changed"]


def test_a_path_that_kazoo_does_not_send_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """After ten of them the broker would ask ZooKeeper for nothing any more."""
    session_module = pytest.importorskip("odradek.metadata.zookeeper.connection.session")
    clock = ManualClock()
    turns: list[Callable[[], None]] = []
    settings = ZooKeeperSettings("127.0.0.1:1", 1000, 1000)
    session = session_module.KazooSession(settings, SystemTimer(clock), clock, turns.append)
    heard: list[object] = []
    for _ in range(settings.max_in_flight + 1):
        session.get("/config/clients/..", heard.append)
        session.commit([Create("/config/users/.")], heard.append)
        turns.pop()()
    assert heard == [Failure.REFUSED, Refusal(0, Failure.REFUSED)] * (settings.max_in_flight + 1)
    monkeypatch.setattr(session._client, "get_async", lambda _path, watch: Refused())
    session.get("/a", heard.append)
    turns.pop()()
    assert len(heard) == 2 * settings.max_in_flight + 3


class Promised:
    """An outcome as kazoo gives it: a value, or an error."""

    def __init__(self, outcome: Any) -> None:
        self.exception = outcome if isinstance(outcome, Exception) else None
        self.value = outcome

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        callback(self)


class Told:
    """A session whose outcomes are given, and the levels at which it tells what is refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.module = pytest.importorskip("odradek.metadata.zookeeper.connection.session")
        self.exceptions = pytest.importorskip("kazoo.exceptions")
        self.outcome: Any = None
        self._turns: list[Callable[[], None]] = []
        clock = ManualClock()
        settings = ZooKeeperSettings("127.0.0.1:1", 1000, 1000)
        self.session = self.module.KazooSession(
            settings, SystemTimer(clock), clock, self._turns.append
        )
        for kind in ("get", "get_children"):
            monkeypatch.setattr(
                self.session._client, f"{kind}_async", lambda _path, watch: Promised(self.outcome)
            )
        transaction = SimpleNamespace(
            create=lambda *_arguments, **_options: None,
            commit_async=lambda: Promised(self.outcome),
        )
        monkeypatch.setattr(self.session._client, "transaction", lambda: transaction)
        self._caplog = caplog
        caplog.set_level(logging.DEBUG, self.module.__name__)

    def levels(self, request: Callable[[], None], outcome: Any) -> list[str]:
        self.outcome = outcome
        self._caplog.clear()
        request()
        self._turns.pop()()
        return [record.levelname for record in self._caplog.records]


def test_what_is_refused_again_and_again_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that its owner has closed fills the disk with a line every few seconds, for ever."""
    told = Told(monkeypatch, caplog)
    session, exceptions = told.session, told.exceptions
    stat = SimpleNamespace(version=0, creation_transaction_id=1, owner_session_id=0)
    requests: list[tuple[Callable[[], None], Any, Any]] = [
        (lambda: session.get("/a", whatever, whatever), exceptions.NoAuthError(), (b"", stat)),
        (lambda: session.children("/a", whatever, whatever), exceptions.NoAuthError(), []),
        (
            lambda: session.commit([Create("/a", b"")], whatever),
            [exceptions.NoAuthError()],
            ["/a"],
        ),
    ]
    # Each of the three is told of, also where another is refused at the same node.
    for request, refused, _ in requests:
        assert [told.levels(request, refused) for _ in range(3)] == [
            ["ERROR"],
            ["DEBUG"],
            ["DEBUG"],
        ]
    for request, refused, done in requests:
        assert told.levels(request, refused) == ["DEBUG"]
        assert told.levels(request, done) == []
        assert told.levels(request, refused) == ["ERROR"]
    assert told.levels(requests[0][0], exceptions.MarshallingError()) == ["ERROR"]
    assert told.levels(lambda: session.get("/b", whatever, whatever), exceptions.NoAuthError()) == [
        "ERROR"
    ]


@pytest.mark.parametrize("paused", [1, 2])
def test_who_stands_still_is_replaced_as_soon_as_its_session_is_over(paused: int) -> None:
    """Producers would be silent for longer than the session, when the controller has to be elected
    anew as well: nothing that the others do then waits for a clock. A broker that is not waited for
    as a leader is not waited for as a replica of other leaders either."""
    cluster = Cluster(3)
    create(cluster, (paused, 3))
    create(cluster, (3, paused), name="b")
    cluster.settle()
    broker = cluster.brokers[paused]
    broker.pause()
    cluster.tree.end(broker.zookeeper.session_id)
    cluster.tree.run()
    others = [each for each in cluster.brokers.values() if each is not broker]
    assert {each.state().leader for each in others} == {3}
    assert TP in cluster.brokers[3].leads
    assert {each.state("b").isr for each in others} == {(3,)}


def test_a_question_to_a_controller_that_stands_still_is_asked_of_the_next() -> None:
    """The leader would wait for `controller.socket.timeout.ms`, half a minute, until it asks again,
    and its producers with it: until then no other replica leaves its ISR either."""
    cluster = Cluster(3)
    create(cluster, (2, 3))
    leader, controller = cluster.brokers[2], cluster.brokers[1]
    cluster.settle()
    controller.pause()
    answers = leader.begin("change_partitions", [PartitionChange(TP, 0, 2, (2,))])
    cluster.settle()
    assert answers == []
    cluster.tree.end(controller.zookeeper.session_id)
    cluster.settle()
    ((changed,),) = answers
    assert changed.isr == cluster.brokers[3].state().isr == (2,)
