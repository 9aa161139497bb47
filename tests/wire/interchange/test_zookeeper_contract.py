"""The parts of ZooKeeper that a store relies on, of an ensemble and of the tree that tests have
instead."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("kazoo")

from tests.deadlines import deadline_s
from tests.unit.metadata.zookeeper.zookeeper_tree import Tree, TreeClient
from tools.zookeeper_node import zookeeper_ensemble

from odradek.clock import SystemClock
from odradek.metadata.zookeeper import ZooKeeperSettings
from odradek.metadata.zookeeper.client import (
    Check,
    Create,
    Delete,
    Failure,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.metadata.zookeeper.connection.session import KazooSession
from odradek.timer import SystemTimer

DEADLINE_S = deadline_s(60)
SESSION_MS = 10_000


class InTree:
    """Sessions with a tree in memory."""

    def __init__(self) -> None:
        self._tree = Tree()

    def client(self) -> ZooKeeperClient:
        client = TreeClient(self._tree)
        client.start()
        return client

    def until(self, is_so: Callable[[], object]) -> None:
        self._tree.run()
        assert is_so()

    def close(self) -> None:
        """It holds nothing."""


class InEnsemble:
    """Sessions with an ensemble, whose loop is this thread."""

    def __init__(self, connect: str) -> None:
        self._connect = connect
        self._clock = SystemClock()
        self._timer = SystemTimer(self._clock)
        self._calls: deque[Callable[[], None]] = deque()
        self._called = threading.Event()
        self._clients: list[KazooSession] = []

    def client(self) -> ZooKeeperClient:
        settings = ZooKeeperSettings(self._connect, SESSION_MS, round(DEADLINE_S * 1000))
        client = KazooSession(settings, self._timer, self._clock, self._call)
        client.start()
        self._clients.append(client)
        return client

    def _call(self, action: Callable[[], None]) -> None:
        self._calls.append(action)
        self._called.set()

    def until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < deadline, "it did not come to that"
            self._called.wait(0.01)
            self._called.clear()
            while self._calls:
                self._calls.popleft()()

    def close(self) -> None:
        for each in self._clients:
            each.close()


class World:
    """A session that asks and waits for the answer; `heard` are the watches that were called."""

    def __init__(self, place: InTree | InEnsemble) -> None:
        self.place = place
        self.client = place.client()
        self.heard: list[str] = []

    def _ask(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        begin(answers.append)
        self.place.until(lambda: answers)
        return answers[0]

    def commit(self, *operations: Operation) -> Any:
        return self._ask(lambda on_done: self.client.commit(operations, on_done))

    def get(self, path: str, watch: str | None = None) -> Any:
        return self._ask(lambda on_done: self.client.get(path, on_done, self._hear(watch)))

    def children(self, path: str, watch: str | None = None) -> Any:
        found = self._ask(lambda on_done: self.client.children(path, on_done, self._hear(watch)))
        return found if isinstance(found, Failure) else sorted(found)

    def _hear(self, watch: str | None) -> Callable[[], None] | None:
        return None if watch is None else lambda: self.heard.append(watch)

    def heard_by_now(self) -> list[str]:
        """Changes are told in their order, answers on a way of their own: the last change is that
        of /e."""
        self.get("/e", "the last")
        self.commit(SetData("/e", b"", -1))
        self.place.until(lambda: "the last" in self.heard)
        heard, self.heard = self.heard, []
        return heard[:-1]


@pytest.fixture(scope="module")
def connect() -> Iterator[str]:
    with zookeeper_ensemble(1) as ensemble:
        yield ensemble.connect


@pytest.fixture(params=["tree", pytest.param("ensemble", marks=pytest.mark.slow)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """With the nodes /a and /a/b, and /e, which goes with the session."""
    place: InTree | InEnsemble = InTree()
    if request.param == "ensemble":
        root = "".join(filter(str.isalnum, request.node.name))
        place = InEnsemble(f"{request.getfixturevalue('connect')}/{root}")
    made = World(place)
    nodes = Create("/a"), Create("/a/b"), Create("/e", ephemeral=True)
    assert made.commit(*nodes) == ("/a", "/a/b", "/e")
    yield made
    place.close()


@pytest.mark.parametrize(
    ("operations", "place", "failure"),
    [
        ([Create("/a")], 0, Failure.NODE_EXISTS),
        ([Create("/x/y")], 0, Failure.NO_NODE),
        ([Create("/x/y-", sequential=True)], 0, Failure.NO_NODE),
        ([Create("/e/f")], 0, Failure.REFUSED),
        ([SetData("/a", b"new", 7)], 0, Failure.BAD_VERSION),
        ([SetData("/x", b"new", -1)], 0, Failure.NO_NODE),
        ([Delete("/a")], 0, Failure.NOT_EMPTY),
        ([Delete("/a", 7)], 0, Failure.BAD_VERSION),
        ([Delete("/x")], 0, Failure.NO_NODE),
        ([Check("/a", 1)], 0, Failure.BAD_VERSION),
        ([Check("/x", 0)], 0, Failure.NO_NODE),
        ([SetData("/a", b"new", 0), Create("/c"), Create("/a")], 2, Failure.NODE_EXISTS),
        ([Delete("/a/b"), Delete("/a"), Check("/a", 0)], 2, Failure.NO_NODE),
    ],
)
def test_a_refused_transaction_leaves_nothing(
    world: World, operations: list[Operation], place: int, failure: Failure
) -> None:
    """A tree that refuses less, or in part, would let through what an ensemble refuses."""
    before = [world.get(path) for path in ("/a", "/a/b", "/c")]
    world.get("/a", "node")
    world.children("/a", "children")
    assert world.commit(*operations) == Refusal(place, failure)
    assert [world.get(path) for path in ("/a", "/a/b", "/c")] == before
    assert world.heard_by_now() == []


@pytest.mark.parametrize("name", [".", ".."], ids=["here", "above"])
def test_a_path_that_cannot_be_is_refused_and_nothing_waits_for_it(world: World, name: str) -> None:
    """A broker whose client has such a name would ask ZooKeeper for nothing any more."""
    for _ in range(30):
        assert world.get(f"/a/{name}") is Failure.REFUSED
        assert world.children(f"/a/{name}/b") is Failure.REFUSED
        assert world.commit(Create(f"/a/{name}")) == Refusal(0, Failure.REFUSED)
    assert world.children("/a") == ["b"]


def test_a_transaction_sees_what_it_has_done(world: World) -> None:
    """A topic is made with all that lies below it."""
    made = world.commit(Create("/c"), Create("/c/d"), SetData("/c", b"1", 0), Check("/c", 1))
    assert made == ("/c", "/c/d")
    found = world.get("/c")
    assert (found.data, found.version, found.created) == (b"1", 1, world.get("/c/d").created)
    assert world.commit(Delete("/c/d"), Delete("/c", 1)) == ()
    assert world.get("/c") is None


def test_what_a_node_says(world: World) -> None:
    """Brokers fence each other by these numbers."""
    first, mine = world.get("/a"), world.get("/e")
    assert first == Node(b"", 0, first.created, 0)
    assert mine.owner == world.client.session_id != 0
    world.commit(SetData("/a", b"1", -1))
    assert world.get("/a") == Node(b"1", 1, first.created, 0)
    world.commit(Delete("/e"))
    world.commit(Create("/e"))
    assert world.get("/e").created > mine.created
    assert world.get("/e").version == 0


def test_names_with_numbers_rise(world: World) -> None:
    """Announcements are read in the order of their names."""
    names = []
    for _ in range(3):
        names += world.commit(Create("/a/n-", sequential=True))
        world.commit(Delete(names[-1]))
    assert names == sorted(set(names))
    assert {len(name) for name in names} == {len("/a/n-") + 10}


def test_what_is_not_there(world: World) -> None:
    """A node that is missing is an answer, a list of nobody's children is not."""
    assert world.get("/x") is None
    assert world.children("/x") is Failure.NO_NODE
    assert world.children("/a") == ["b"]
    assert world.children("/a/b") == []


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        ([SetData("/a", b"1", -1)], ["a"]),
        ([SetData("/a/b", b"1", -1)], ["b"]),
        ([Create("/a/c")], ["below a"]),
        ([Create("/x")], ["x"]),
        ([Delete("/a/b")], ["b", "below a", "below b"]),
        ([Create("/a/b/c")], ["below b"]),
        ([Check("/a", 0)], []),
    ],
)
def test_a_watch_is_called_once(world: World, change: list[Operation], heard: list[str]) -> None:
    """A store would miss a change, or read without end."""
    for path, name in (("/a", "a"), ("/a/b", "b"), ("/x", "x")):
        world.get(path, name)
    for path, name in (("/a", "below a"), ("/a/b", "below b")):
        world.children(path, name)
    assert not isinstance(world.commit(*change), Refusal)
    assert sorted(world.heard_by_now()) == heard
    world.commit(SetData("/a", b"2", -1))
    assert world.heard_by_now() == ([] if "a" in heard else ["a"])


def test_a_session_takes_its_nodes_with_it(world: World) -> None:
    """No broker would hear of one that has gone."""
    other = world.place.client()
    done: list[Any] = []
    other.commit([Create("/theirs", ephemeral=True), Create("/stays")], done.append)
    world.place.until(lambda: done)
    world.get("/theirs", "theirs")
    other.close()
    world.place.until(lambda: world.heard)
    assert world.get("/theirs") is None
    assert world.get("/stays").owner == 0
