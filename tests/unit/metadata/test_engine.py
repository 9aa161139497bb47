"""The one queue in which metadata changes, whichever store keeps it."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage, MetadataCache, MetadataDelta, MetadataImage
from odradek.metadata.changes import Change
from odradek.metadata.engine import (
    SLICE_PARTITIONS,
    BrokerView,
    MetadataEngine,
    OnCommitted,
)
from odradek.metadata.image import PartitionImage, TopicImage
from odradek.metadata.serial_queue import Release, SerialQueue
from odradek.model import TopicPartition

OVER = BrokerError(ErrorCode.NOT_CONTROLLER)


class Disk:
    """A commit whose end the test decides."""

    def __init__(self, said: list[Any]) -> None:
        self.said = said
        self.waiting: list[tuple[Change[Any], OnCommitted]] = []

    def commit(self, change: Change[Any], on_committed: OnCommitted) -> None:
        self.said.append("commit")
        self.waiting.append((change, on_committed))

    def finish(self, outcome: BrokerError | None = None) -> None:
        change, on_committed = self.waiting.pop(0)
        on_committed(outcome or change)


class Kit:
    """An engine with one view, and what happens at it in order."""

    def __init__(self, *, in_slices: bool = False) -> None:
        self.said: list[Any] = []
        self.later: list[Any] = []
        self.disk = Disk(self.said)
        self.engine = MetadataEngine()
        defer = self.later.append if in_slices else None
        self.view = BrokerView(self.engine, MetadataCache(), 1, defer=defer)
        self.engine.views.append(self.view)
        self.view.subscribe(ListenerStage.REPLICAS, lambda _: self.say("act"))
        self.view.subscribe(ListenerStage.CONTROLLER, lambda _: self.say("decide"))
        self.view.cache.on_published(lambda _: self.say("publish"))

    def say(self, what: str) -> tuple[()]:
        self.said.append(what)
        return ()

    def submit(self, name: str, *, commits: bool, partitions: int = 1) -> None:
        def plan(image: MetadataImage) -> Change[str]:
            self.say("plan")
            return Change(name, with_topic(image, name, partitions))

        self.view.submit(plan, self.said.append, self.disk.commit if commits else None)


def with_topic(image: MetadataImage, name: str, count: int) -> MetadataDelta:
    partitions = tuple(PartitionImage(index, 1, 0, 0, (1,), (1,)) for index in range(count))
    number = len(image.topics) + 1
    topic = TopicImage(name, UUID(int=number), partitions)
    return MetadataDelta(image, image.with_topics([topic]), added=[topic])


def test_a_change_takes_effect_in_five_steps_and_the_next_one_waits() -> None:
    """A client would see a topic that is not durable, or whose logs are not open."""
    kit = Kit()
    kit.submit("a", commits=True)
    kit.submit("b", commits=False)
    assert kit.said == ["plan", "commit"]
    assert not kit.view.cache.image.topics
    kit.disk.finish()
    steps = ["act", "decide", "publish"]
    assert kit.said == ["plan", "commit", *steps, "a", "plan", *steps, "b"]
    assert sorted(kit.view.cache.image.topics) == ["a", "b"]


def test_what_was_not_written_changes_nothing() -> None:
    """A refused write would be shown to clients."""
    kit = Kit()
    kit.submit("a", commits=True)
    kit.disk.finish(OVER)
    assert kit.said == ["plan", "commit", OVER]
    assert not kit.engine.image.topics


def test_a_commit_that_was_refused_meanwhile_has_no_effect_when_it_ends() -> None:
    """A controller that was deposed would overwrite what its successor says."""
    kit = Kit()
    kit.submit("a", commits=True)
    kit.submit("b", commits=True)
    kit.submit("c", commits=False)
    kit.engine.refuse_commits(OVER)
    assert kit.said[:4] == ["plan", "commit", OVER, OVER]
    assert list(kit.view.cache.image.topics) == ["c"]
    kit.disk.finish()
    assert list(kit.view.cache.image.topics) == ["c"]
    assert kit.said[-1] == "c"


def test_a_change_that_is_cut_short_ends_with_what_was_acted_on() -> None:
    """Partitions would be listed of which nobody has opened the log."""
    kit = Kit(in_slices=True)
    kit.submit("a", commits=False, partitions=45)
    kit.submit("b", commits=True)
    kit.later.pop(0)()
    assert kit.said == ["plan", "act", "act"]
    kit.engine.cut_short(OVER)
    assert len(kit.view.cache.image.topics["a"].partitions) == 40
    assert kit.said == ["plan", "act", "act", OVER, "decide", "publish", "a"]
    kit.later.pop(0)()
    assert "b" not in kit.view.cache.image.topics


def test_a_long_change_is_shown_in_a_turn_and_the_next_begins_in_another() -> None:
    """The work of a controller and the clients on ten thousand partitions takes its time: with the
    last of them, and with the next ten thousand, a session would end."""
    kit = Kit(in_slices=True)
    kit.submit("a", commits=False, partitions=SLICE_PARTITIONS + 1)
    kit.submit("b", commits=False)
    turns = [list(kit.said)]
    while kit.later:
        kit.said.clear()
        kit.later.pop(0)()
        turns.append(list(kit.said))
    shown = ["decide", "publish"]
    assert turns == [["plan", "act"], ["act"], [*shown, "a"], ["plan", "act", *shown, "b"]]


@pytest.mark.parametrize("turns", range(4))
def test_a_long_change_that_is_cut_short_is_shown_once(turns: int) -> None:
    """Between its turns it would be lost, or shown and answered again; or what waits behind it
    would wait for a turn that does not come any more."""
    kit = Kit(in_slices=True)
    kit.submit("a", commits=False, partitions=SLICE_PARTITIONS + 1)
    kit.submit("b", commits=True)
    kit.submit("c", commits=False)
    for _ in range(turns):
        kit.later.pop(0)()
    kit.engine.cut_short(OVER)
    assert [kit.said.count(each) for each in ("a", "c", "publish")] == [1, 1, 2]
    assert OVER in kit.said or turns == 3, "it was begun"
    topics = kit.view.cache.image.topics
    assert len(topics["a"].partitions) == SLICE_PARTITIONS + (turns > 0)
    said = len(kit.said)
    while kit.later:
        kit.later.pop(0)()
    assert len(kit.said) == said
    assert sorted(topics) == ["a", "c"]


def test_what_no_slice_could_serve_is_taken_out_of_the_change_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker with a dead disk would rebuild the image of all topics for each of its slices."""
    counts: list[int] = []
    without_replicas = MetadataDelta.without_replicas

    def counted(delta: MetadataDelta, partitions: Any, broker_id: int) -> MetadataDelta:
        counts.append(len(partitions))
        return without_replicas(delta, partitions, broker_id)

    monkeypatch.setattr(MetadataDelta, "without_replicas", counted)
    kit = Kit(in_slices=True)

    def refuse(delta: MetadataDelta) -> list[TopicPartition]:
        return [TopicPartition(topic.name, each.partition) for topic, each in delta.partitions()]

    kit.view.subscribe(ListenerStage.REPLICAS, refuse)
    kit.submit("a", commits=False, partitions=3 * SLICE_PARTITIONS)
    while kit.later:
        kit.later.pop(0)()
    assert counts == [*[SLICE_PARTITIONS] * 3, 3 * SLICE_PARTITIONS]
    states = kit.view.cache.image.topics["a"].partitions
    assert {each.offline for each in states} == {(1,)}


def test_nothing_is_committed_while_a_change_is_cut_short() -> None:
    """A controller decides on what is shown in the end: it would write in its next session what it
    has decided in the one that is over."""
    kit = Kit(in_slices=True)

    def decide(_: MetadataDelta) -> tuple[()]:
        kit.submit("b", commits=True)
        return ()

    kit.view.subscribe(ListenerStage.CONTROLLER, decide)
    kit.submit("a", commits=False, partitions=SLICE_PARTITIONS + 1)
    kit.engine.cut_short(OVER)
    assert kit.said == ["plan", "act", "decide", "publish", "a", OVER]
    kit.submit("c", commits=True)
    assert kit.said[-2:] == ["plan", "commit"]


@pytest.mark.parametrize("in_commit", [False, True])
@pytest.mark.parametrize("raised", [BrokerError(ErrorCode.UNKNOWN_TOPIC_ID), KeyError("a")])
def test_a_step_that_raises_is_answered_and_the_next_one_begins(
    raised: Exception, in_commit: bool
) -> None:
    """The queue would wait for ever."""
    broken: list[Exception] = []
    kit = Kit()
    kit.view.on_broken = broken.append  # type: ignore[misc]

    def fail(*_: object) -> Change[None]:
        raise raised

    if in_commit:
        kit.view.submit(lambda _: Change(None), kit.said.append, fail)
    else:
        kit.view.submit(fail, kit.said.append)
    kit.submit("b", commits=False)
    assert isinstance(kit.said[0], BrokerError)
    assert kit.said[-1] == "b"
    assert broken == ([] if isinstance(raised, BrokerError) else [raised])


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_asker_that_raises_ends_its_broker_and_keeps_no_other_waiting(is_refused: bool) -> None:
    """A turn of the loop would only log it: the broker lives on, and whoever asked behind it waits
    for ever."""
    broken: list[Exception] = []
    kit = Kit()
    kit.view.on_broken = broken.append  # type: ignore[misc]
    raised = KeyError("no invariant is asserted")

    def fail(_: object) -> None:
        raise raised

    kit.view.submit(lambda _: Change(None), fail, kit.disk.commit)
    kit.submit("b", commits=True)
    if is_refused:
        kit.engine.refuse_commits(OVER)
    else:
        kit.disk.finish()
        kit.disk.finish()
    assert kit.said[-1] == (OVER if is_refused else "b")
    assert broken == [raised]


def test_tasks_wait_for_each_other_until_they_may_begin() -> None:
    """A request would be carried out before the one that came first."""
    may_begin = False
    queue = SerialQueue(lambda: may_begin)
    said: list[str] = []
    releases: list[Release] = []

    def task(name: str) -> None:
        def begin(release: Release) -> None:
            said.append(name)
            releases.append(release)

        queue.submit(begin, lambda: said.append(f"not {name}"))

    for name in "abc":
        task(name)
    assert said == []
    may_begin = True
    queue.go_on()
    assert said == ["a"]
    releases.pop()()
    assert said == ["a", "b"]
    queue.refuse_all()
    releases.pop()()
    assert said == ["a", "b", "not c"]


def test_a_task_that_raises_has_had_its_turn() -> None:
    """All that come after it would wait for ever."""
    queue, said = SerialQueue(), list[str]()

    def fail(_: Release) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        queue.submit(fail)
    queue.submit(lambda _: said.append("next"))
    assert said == ["next"]


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("stage", ListenerStage)
def test_a_listener_that_raises_leaves_no_asker_without_an_answer(
    stage: ListenerStage, commits: bool, in_slices: bool
) -> None:
    """Where nobody ends the broker, the queues that wait for the answer would be busy for good: no
    leader is elected, and nothing that a controller commands is done."""
    kit = Kit(in_slices=in_slices)
    broken = [True]

    def listen(_delta: MetadataDelta) -> tuple[()]:
        assert not broken, "ISR [1, 2, 3] outside of [1, 2]"
        return ()

    def make(name: str) -> None:
        kit.submit(name, commits=commits, partitions=50)
        if commits:
            kit.disk.finish()
        while kit.later:
            kit.later.pop(0)()

    kit.view.subscribe(stage, listen)
    with pytest.raises(AssertionError, match="outside of"):
        make("a")
    (answer,) = [each for each in kit.said if each == "a" or isinstance(each, BrokerError)]
    assert answer == "a" or answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
    broken.clear()
    make("b")
    assert kit.said[-2:] == ["publish", "b"]


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_what_the_engine_itself_raises_ends_the_askers_broker(
    monkeypatch: pytest.MonkeyPatch, turn: int, commits: bool
) -> None:
    """In a turn of the loop it would only be logged: the asker waits for ever, clients see half a
    change, and the broker lives on for the others."""
    kit = Kit(in_slices=True)
    broken: list[Exception] = []
    kit.view.on_broken = broken.append  # type: ignore[misc]
    raised = KeyError("no invariant is asserted")
    in_slices, without_replicas = MetadataDelta.in_slices, MetadataDelta.without_replicas

    def slices(delta: MetadataDelta, size: int) -> Iterator[MetadataDelta]:
        for number, each in enumerate(in_slices(delta, size), 1):
            if number == turn:
                raise raised
            yield each

    def unserved(delta: MetadataDelta, *what: Any) -> MetadataDelta:
        if turn == 3 and len(delta.image.topics["a"].partitions) == 50:
            raise raised
        return without_replicas(delta, *what)

    def make(name: str) -> None:
        kit.submit(name, commits=commits, partitions=50)
        if commits:
            kit.disk.finish()
        while kit.later:
            kit.later.pop(0)()

    kit.view.subscribe(ListenerStage.REPLICAS, lambda _: [TopicPartition("a", 0)])
    with monkeypatch.context() as patch:
        patch.setattr(MetadataDelta, "in_slices", slices)
        patch.setattr(MetadataDelta, "without_replicas", unserved)
        make("a")
    assert broken == [raised]
    answers = [each for each in kit.said if each == "a" or isinstance(each, BrokerError)]
    assert len(answers) == 1
    make("b")
    assert kit.said[-2:] == ["publish", "b"]
