"""A ZooKeeper of one process: a tree, sessions and watches, with nothing said before its turn.

Every request, answer and event waits until `run` takes it; in the order of each client, between
clients in the order that a `Random` has it. So one seed is one history, and a test can stop between
any two steps: `drop` breaks a client's connection, `expire` ends its session. Where watches
`are_late` they come in an order of their own: kazoo calls them on another thread than answers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from odradek.metadata.zookeeper.client import (
    Check,
    Create,
    Created,
    Delete,
    Failure,
    Node,
    OnChanged,
    OnChildren,
    OnCommitted,
    OnNode,
    Operation,
    Refusal,
    SetData,
    ZooKeeperClient,
)
from odradek.timer import Timer, TimerTask

MOST_STEPS = 100_000
UNREADABLE_MS = 100

OnBroken = Callable[[Exception], None]


def fail(error: Exception) -> None:
    """Ends the test, where there is no broker to end."""
    raise error


def attempt(step: Callable[[], None], on_broken: OnBroken) -> None:
    """Takes a step; if it raises, the broker ends. It is ours in the session with a real ZooKeeper,
    which is no step of a walk through the modules."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - of whatever kind, it is the end
        on_broken(error)


def is_impossible(path: str) -> bool:
    """Whether kazoo sends no request about a path."""
    return not {".", ".."}.isdisjoint(path.split("/"))


class _Entry:
    def __init__(self, data: bytes, created: int, owner: int) -> None:
        self.data = data
        self.version = 0
        self.created = created
        self.owner = owner
        self.numbered = 0

    def node(self) -> Node:
        return Node(self.data, self.version, self.created, self.owner)


class Tree:
    """The nodes of an ensemble."""

    def __init__(self, random: Random | None = None, timer: Timer | None = None) -> None:
        self.random = random or Random(0)
        self.timer = timer
        self.entries: dict[str, _Entry] = {"/": _Entry(b"", 0, 0)}
        self.zxid = 0
        self.sessions = 0
        self.clients: list[TreeClient] = []
        self.others: list[deque[Callable[[], None]]] = []
        self.writes = 0
        self.attempts = 0
        self.asked: deque[str] = deque(maxlen=8)
        self.unreadable: set[str] = set()
        self.unwritable: set[str] = set()
        self.are_late = False
        self.on_written: Callable[[Sequence[Operation]], None] = lambda _operations: None
        self._watches: list[tuple[str, str, TreeClient, OnChanged]] = []

    def run(self, most_steps: int = MOST_STEPS) -> None:
        """Until nobody has anything to say or to hear; fails when that never comes."""
        for _ in range(most_steps):
            if not self.step():
                return
        raise AssertionError(f"not settled after {most_steps} steps: {self.unsettled()}")

    def unsettled(self) -> str:
        """A client that has something to say or to hear, and what was asked last."""
        clients = [
            f"client {at} {len(each.turns) + len(each.events)}"
            for at, each in enumerate(self.clients, 1)
        ]
        others = [f"queue {at} {len(each)}" for at, each in enumerate(self.others, 1)]
        return f"waiting: {', '.join(clients + others)}; asked last: {', '.join(self.asked)}"

    def step(self) -> bool:
        """One thing, of somebody."""
        connected = [each for each in self.clients if each.is_connected]
        ready = [(each.turns, each.on_broken) for each in connected if each.turns]
        ready += [(each.events, each.on_broken) for each in connected if each.events]
        ready += [(each, fail) for each in self.others if each]
        if not ready:
            return False
        queue, on_broken = self.random.choice(ready)
        attempt(queue.popleft(), on_broken)
        return True

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = (other.removeprefix(prefix) for other in self.entries if other.startswith(prefix))
        return [name for name in names if name and "/" not in name]

    def text(self, path: str) -> str:
        return self.entries[path].data.decode()

    def put(self, path: str, data: str = "") -> None:
        """Somebody else writes."""
        kind = SetData(path, data.encode(), -1) if path in self.entries else None
        outcome = self.commit([kind or Create(path, data.encode())], 0)
        assert not isinstance(outcome, Refusal), outcome

    def remove(self, path: str) -> None:
        """Somebody else takes a node away."""
        assert not isinstance(self.commit([Delete(path)], 0), Refusal), path

    def watched(self) -> set[str]:
        return {path for _, path, _, _ in self._watches}

    def watch(self, kind: str, path: str, client: "TreeClient", on_changed: OnChanged) -> None:
        self._watches.append((kind, path, client, on_changed))

    def forget(self, client: "TreeClient") -> list[OnChanged]:
        mine = [each for each in self._watches if each[2] is client]
        self._watches = [each for each in self._watches if each[2] is not client]
        return [on_changed for _, _, _, on_changed in mine]

    def end(self, session: int) -> None:
        owned = [path for path, entry in self.entries.items() if entry.owner == session]
        for path in owned:
            self.commit([Delete(path)], 0)

    def commit(self, operations: Sequence[Operation], session: int) -> Created | Refusal:
        # Worked out on a copy of what it touches, so that a refusal leaves nothing.
        undo: list[Callable[[], None]] = []
        events: list[tuple[str, str]] = []
        created = []
        self.zxid += 1
        self.attempts += 1
        self.asked.append(f"write {operations[-1].path}")
        for place, operation in enumerate(operations):
            if is_impossible(operation.path) or (session and operation.path in self.unwritable):
                failure: Failure | None = Failure.REFUSED
            else:
                failure = self._apply(operation, session, undo, events, created)
            if failure is not None:
                for each in reversed(undo):
                    each()
                return Refusal(place, failure)
        self.writes += 1
        for kind, path in events:
            fired = [each for each in self._watches if each[:2] == (kind, path)]
            self._watches = [each for each in self._watches if each[:2] != (kind, path)]
            for _, _, client, on_changed in fired:
                (client.events if self.are_late else client.turns).append(on_changed)
        self.on_written(operations)
        return tuple(created)

    def _apply(
        self,
        operation: Operation,
        session: int,
        undo: list[Callable[[], None]],
        events: list[tuple[str, str]],
        created: list[str],
    ) -> Failure | None:
        path = operation.path
        parent = path.rpartition("/")[0] or "/"
        entry = self.entries.get(path)
        match operation:
            case Create(_, data, ephemeral, sequential):
                if parent not in self.entries:
                    return Failure.NO_NODE
                if self.entries[parent].owner:
                    return Failure.REFUSED  # what goes with a session has no children
                if sequential:
                    path = f"{path}{self.entries[parent].numbered:010}"
                    self.entries[parent].numbered += 1
                elif entry is not None:
                    return Failure.NODE_EXISTS
                self.entries[path] = _Entry(data, self.zxid, session if ephemeral else 0)
                undo.append(lambda: self.entries.pop(path) and None)
                events += [("node", path), ("children", parent)]
                created.append(path)
            case SetData(_, data, version):
                if entry is None:
                    return Failure.NO_NODE
                if version not in (-1, entry.version):
                    return Failure.BAD_VERSION
                before = (entry.data, entry.version)
                entry.data, entry.version = data, entry.version + 1
                undo.append(lambda: entry.__dict__.update(data=before[0], version=before[1]))
                events.append(("node", path))
            case Delete(_, version):
                if entry is None:
                    return Failure.NO_NODE
                if version not in (-1, entry.version):
                    return Failure.BAD_VERSION
                if self.children(path):
                    return Failure.NOT_EMPTY
                del self.entries[path]
                undo.append(lambda: self.entries.update({path: entry}))
                events += [("node", path), ("children", path), ("children", parent)]
            case Check(_, version):
                if entry is None:
                    return Failure.NO_NODE
                if version != entry.version:
                    return Failure.BAD_VERSION
        return None


class TreeClient(ZooKeeperClient):
    """A client of a tree. As with ours of ZooKeeper, `on_broken` ends the broker when whoever was
    told something raises."""

    def __init__(self, tree: Tree, on_broken: OnBroken = fail) -> None:
        self.tree = tree
        self.on_broken = on_broken
        self.turns: deque[Callable[[], None]] = deque()
        self.events: deque[Callable[[], None]] = deque()
        self.is_connected = True
        self._waiting: list[Callable[[Any], None]] = []
        self._listeners: list[Callable[[], None]] = []
        self._session = 0
        self._drops = 0

    def start(self) -> None:
        self.tree.sessions += 1
        self._session = self.tree.sessions
        self.tree.clients.append(self)

    def close(self) -> None:
        if self in self.tree.clients:
            self.tree.clients.remove(self)
            self.tree.forget(self)
            self.tree.end(self._session)
            self._fail()

    def drop(self) -> None:
        """The connection breaks, and is made again; changes that were on their way are made twice,
        and their answers are those of the second time."""
        self._drops += 1
        watches = self.tree.forget(self)
        self.turns.extend(watches)

    def expire(self) -> None:
        """The session is over; another one begins."""
        self.tree.end(self._session)
        self.tree.forget(self)
        self.tree.sessions += 1
        self._session = self.tree.sessions
        self._fail()
        self.lose_by_itself()

    def lose_by_itself(self) -> None:
        """The client takes the session for lost; the ensemble does not know."""
        attempt(self._tell_lost, self.on_broken)

    def _tell_lost(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _fail(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.turns.clear()
        self.events.clear()
        for answer in waiting:
            attempt(partial(answer, Failure.SESSION_LOST), self.on_broken)

    @property
    def session_id(self) -> int:
        return self._session

    def on_session_lost(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def get(self, path: str, on_done: OnNode, on_changed: OnChanged | None = None) -> None:
        def read() -> Node | Failure | None:
            self.tree.asked.append(f"read {path}")
            if path in self.tree.unreadable or is_impossible(path):
                self._look_later(on_changed)
                return Failure.REFUSED
            if on_changed is not None:
                self.tree.watch("node", path, self, on_changed)
            entry = self.tree.entries.get(path)
            return None if entry is None else entry.node()

        self._ask(read, on_done)

    def children(self, path: str, on_done: OnChildren, on_changed: OnChanged | None = None) -> None:
        def read() -> tuple[str, ...] | Failure:
            self.tree.asked.append(f"list {path}")
            is_there = path in self.tree.entries
            if path in self.tree.unreadable or not is_there:
                self._look_later(on_changed)
                return Failure.REFUSED if is_there or is_impossible(path) else Failure.NO_NODE
            if on_changed is not None:
                self.tree.watch("children", path, self, on_changed)
            return tuple(self.tree.children(path))

        self._ask(read, on_done)

    def _look_later(self, on_changed: OnChanged | None) -> None:
        """A node that cannot be read is not watched: to hear of it, one looks after a while."""
        if on_changed is not None and self.tree.timer is not None:
            self.tree.timer.add(TimerTask(UNREADABLE_MS, lambda: self.turns.append(on_changed)))

    def commit(self, operations: Sequence[Operation], on_done: OnCommitted) -> None:
        def answer(outcome: Any) -> None:
            on_done(Refusal(0, outcome) if isinstance(outcome, Failure) else outcome)

        self._ask(lambda: self.tree.commit(operations, self._session), answer, is_change=True)

    def read_now(self, paths: Sequence[str]) -> Mapping[str, Node | None]:
        entries = {path: self.tree.entries.get(path) for path in paths}
        return {path: None if each is None else each.node() for path, each in entries.items()}

    def children_now(self, path: str) -> tuple[str, ...]:
        return tuple(self.tree.children(path))

    def commit_now(self, operations: Sequence[Operation]) -> Created | Refusal:
        return self.tree.commit(operations, self._session)

    def _ask(
        self, work: Callable[[], Any], answer: Callable[[Any], None], *, is_change: bool = False
    ) -> None:
        """Done in one turn, answered in another."""
        if self not in self.tree.clients:
            self.turns.append(lambda: answer(Failure.SESSION_LOST))
            return
        self._waiting.append(answer)

        def do() -> None:
            outcome, drops = work(), self._drops
            self.turns.append(lambda: finish(outcome, drops))

        def finish(outcome: Any, drops: int) -> None:
            if is_change and drops != self._drops:
                outcome = work()
            if answer in self._waiting:
                self._waiting.remove(answer)
                answer(outcome)

        self.turns.append(do)
