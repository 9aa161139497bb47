"""A question to other brokers is answered once, in its order, and held up by nothing else."""

from collections import Counter
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from tests.rounds import seeds

from odradek.client.apis import DESCRIBE_PRODUCERS
from odradek.errors import BrokerError, ErrorCode
from odradek.server.peers.batched_requests import (
    DIVIDED,
    MOST_SLOW,
    SLOW_AFTER_MS,
    TOGETHER_BYTES,
    UNDER_WAY,
    BatchedRequests,
)
from odradek.timer import MockTimer

SEEDS = seeds("ODRADEK_ASKING_SEEDS", 150)
LOST = BrokerError(ErrorCode.NETWORK_EXCEPTION)
FAULTS = (BrokerError, KeyError, AttributeError)


class Question(NamedTuple):
    """The `number`th about a key; of a name there is one in a request."""

    key: int
    number: int
    name: int


class Form(NamedTuple):
    """Questions of a kind, which are echoed."""

    kind: str
    is_broken: bool = False
    api = DESCRIBE_PRODUCERS

    def name(self, question):
        return question.key, question.name

    def encode(self, questions):
        if self.is_broken:
            raise KeyError("cannot be encoded")
        return {"kind": self.kind, "questions": list(questions)}

    def decode(self, response):
        return {self.name(each): each.number for each in response.questions}


A, B = Form("a"), Form("b")
BROKEN = Form("a", is_broken=True)


class Connection:
    """Keeps what is asked until the test answers it. A broker would answer in that order, so what
    is behind another request waits for it."""

    def __init__(self, world):
        self.world = world
        self.asked = None
        self.is_closed = False

    def ask(self, api, values, on_done):
        assert self.asked is None, "a request waits behind another one"
        assert not self.is_closed, "a request is sent on a connection that is closed"
        self.asked = (values, on_done)
        self.world.on_sent(values)

    def close(self):
        self.is_closed = True

    @property
    def questions(self):
        return self.asked[0]["questions"]

    def answer(self, outcome=None):
        (values, on_done), self.asked = self.asked, None
        if outcome is None:
            outcome = SimpleNamespace(questions=values["questions"])
        on_done(outcome)


class World:
    """Broker 2 among others, which may be gone."""

    def __init__(self):
        self.timer = MockTimer()
        self.brokers = {2: SimpleNamespace(epoch=1)}
        self.connections = []
        self.requests = BatchedRequests(SimpleNamespace(image=self), self.timer, self._open)
        self.asked = {}
        self.sent = {}
        self.answers = {}
        self.is_refusing = False
        self.again = {}

    def _open(self, _broker):
        if self.is_refusing:
            raise KeyError("has no end point")
        self.connections.append(Connection(self))
        return self.connections[-1]

    @property
    def under_way(self):
        return [each for each in self.connections if each.asked and not each.is_closed]

    def keys_under_way(self):
        return [{question.key for question in each.questions} for each in self.under_way]

    def ask(self, key, form=A, name=0, size_bytes=0, then=lambda: None):
        """Returns the question; `then` comes with its answer."""
        question = Question(key, len(self.asked.setdefault(key, [])), name)
        self.asked[key].append(question)

        def on_answer(told, answer):
            assert told == key
            assert question not in self.answers, f"{question} is answered twice"
            self.answers[question] = answer
            then()

        self.requests.ask(2, form, {key: question}, on_answer, size_bytes)
        return question

    def on_sent(self, values):
        """Of a key nothing is under way, and nothing before it is without an answer."""
        named = Counter()
        for each in values["questions"]:
            before = self.asked[each.key][: each.number]
            together = [one for one in before if one in values["questions"]]
            assert all(one in self.answers or one in together for one in before)
            named[each.key, each.name] += 1
        assert max(named.values()) == 1
        keys = [key for some in self.keys_under_way() for key in some]
        assert max(Counter(keys).values()) == 1, "two requests about a key are under way"

    def is_over(self):
        assert set(self.answers) == {each for some in self.asked.values() for each in some}
        assert self.timer.size == 0
        return True


@pytest.mark.parametrize("part", range(3))
def test_everything_is_answered_once_and_in_order_whatever_happens(part):
    """Fails when somebody waits for ever, is told twice or what another was told, or when a state
    that was written later is overwritten by an earlier one."""
    happened = Counter()
    for seed in SEEDS[part::3]:
        try:
            happened.update(Chaos(seed).run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    wanted = {"answered", "slow", "lost", "lacking", "garbage", "gone", "raised", "again", "broken"}
    assert len(SEEDS) < 100 or wanted <= set(happened), happened


class Chaos:
    """Askers, a broker that is slow, forgets and dies, and faults of ours."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.world = World()
        self.happened = Counter()
        self.keys = self.rng.choice((3, 12, 60))

    def run(self):
        for _ in range(150):
            with suppress(*FAULTS):
                self.rng.choice((self.ask, self.ask, self.ask, *(self.answer,) * 2, self.fate))()
        while self.world.under_way:
            with suppress(*FAULTS):
                self.world.under_way[0].answer()
        if self.rng.random() < 0.5:
            with suppress(*FAULTS):
                self.world.requests.close()
        assert self.world.is_over()
        return self.happened

    def ask(self):
        form = Form(self.rng.choice("ab"), self.rng.random() < 0.03)
        self.happened["broken"] += form.is_broken
        size_bytes = self.rng.choice((0, 1000, TOGETHER_BYTES // 2, TOGETHER_BYTES * 2))
        key, name = self.rng.randrange(self.keys), self.rng.randrange(2)
        then = self.rng.choice((self.nothing, self.nothing, self.raise_, self.ask_again))
        self.world.ask(key, form, name, size_bytes, then)

    def nothing(self):
        """The asker is content."""

    def raise_(self):
        if self.rng.random() < 0.3:
            self.happened["raised"] += 1
            raise KeyError("ours")

    def ask_again(self):
        if self.rng.random() < 0.7:
            self.happened["again"] += 1
            self.ask()

    def answer(self):
        """Answers are in any order: each request has a connection."""
        if not self.world.under_way:
            return
        connection = self.rng.choice(self.world.under_way)
        kind = self.rng.choice(("answered", "answered", "answered", "lost", "lacking", "garbage"))
        self.happened[kind] += 1
        some = SimpleNamespace(questions=connection.questions[1:])
        outcome = {"lost": LOST, "lacking": some, "garbage": "no response"}.get(kind)
        connection.answer(outcome)

    def fate(self):
        if self.rng.random() < 0.7:
            self.happened["slow"] += 1
            self.world.timer.advance_clock(SLOW_AFTER_MS // 2)
            return
        self.happened["gone"] += 1
        if self.world.brokers and self.rng.random() < 0.5:
            self.world.brokers.clear()
        else:
            self.world.brokers[2] = SimpleNamespace(epoch=self.rng.randrange(2, 9))
        self.world.is_refusing = self.rng.random() < 0.2
        self.world.requests.drop_gone()


def test_only_what_has_the_same_form_goes_together():
    """A coordinator would store the states of one group under the name of another."""
    world = World()
    for key in range(UNDER_WAY):
        world.ask(key)
    for key in range(10, 20):
        world.ask(key, B if key % 2 else A)
    first, second, *_ = world.under_way
    first.answer()
    second.answer()
    kinds = [each.asked[0]["kind"] for each in world.under_way]
    assert sorted(kinds) == ["a", "a", "a", "b"]
    assert world.keys_under_way()[:2] == [set(range(10, 20, 2)), set(range(11, 20, 2))]


def test_a_request_is_no_larger_than_what_one_alone_may_be():
    """A broker would close the connection for a request that is too large, again and again."""
    world = World()
    for key in range(UNDER_WAY):
        world.ask(key)
    for key in range(10, 15):
        world.ask(key, size_bytes=TOGETHER_BYTES * 2 // 5)
    world.ask(15, size_bytes=TOGETHER_BYTES * 2)
    for connection in list(world.under_way):
        connection.answer()
    assert world.keys_under_way() == [{10, 11}, {12, 13}, {14}, {15}]


def test_very_many_slow_partitions_do_not_take_a_connection_each():
    """A broker whose replicas are all slow would run out of file descriptors; and of what is not
    known to be slow nothing may wait."""
    world = World()
    for key in 2 * [*range(32 * MOST_SLOW)]:
        world.ask(key)
    for _ in range(10):
        world.timer.advance_clock(SLOW_AFTER_MS)
    for connection in list(world.under_way):
        connection.answer()
    for _ in range(10):
        world.timer.advance_clock(SLOW_AFTER_MS)
    assert MOST_SLOW <= len(world.under_way) < MOST_SLOW + DIVIDED
    quick = world.ask(-1)
    (connection,) = [each for each in world.under_way if each.questions == [quick]]
    connection.answer()
    assert world.answers[quick] == quick.number
    while world.under_way:
        world.under_way[0].answer()
    assert world.is_over()


def test_any_number_of_questions_is_answered_for_a_broker_that_is_gone():
    """The answer to one would be given within that to another until the stack is full, and the
    rest have none."""
    world = World()
    for _ in range(3000):
        world.ask(1)
    world.brokers.clear()
    world.requests.drop_gone()
    assert world.is_over()


@pytest.mark.parametrize("fault", ["what is sent", "the connection"])
def test_what_cannot_be_sent_is_answered_and_keeps_nothing_busy(fault):
    """Its key and its connection would be taken for ever, and whoever asked wait."""
    world = World()
    world.is_refusing = fault == "the connection"
    for _ in range(2 * UNDER_WAY):
        with pytest.raises(KeyError):
            world.ask(1, A if world.is_refusing else BROKEN)
    assert {each.code for each in world.answers.values()} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    world.is_refusing = False
    question = world.ask(1)
    world.under_way[0].answer()
    assert world.answers[question] == question.number
    assert world.is_over()


def test_an_asker_that_raises_keeps_no_other_broker_waiting():
    """When brokers are gone nobody may be left without an answer, whatever another one raises."""
    world = World()

    def fail():
        raise KeyError("ours")

    for key in range(UNDER_WAY):
        world.ask(key, then=fail)
    world.ask(UNDER_WAY)
    with pytest.raises(KeyError):
        world.requests.close()
    assert world.is_over()
