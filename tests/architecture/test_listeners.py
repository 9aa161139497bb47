"""Listeners cannot raise: what one of them raises ends its broker, and leaves no queue waiting.

A listener is called again and again with what has changed: the metadata, the settings, the session.
The first test finds by their form all methods that take one, so that none is left out by the
others, which let each listener of a broker raise in its turn.
"""

import ast
import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.deadlines import deadline_s
from tests.sources import reads_sources, tree_of
from tests.unit.metadata.zookeeper.test_acls import ORDERS, PREFIX, READ
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster
from tests.unit.server.test_halt import started

from odradek.acl import AclBinding
from odradek.clock import ManualClock
from odradek.config import BrokerConfig
from odradek.controller import CreatableTopic
from odradek.controller.zookeeper_store import ZooKeeperMetadataStore
from odradek.errors import BrokerError
from odradek.metadata import NewTopic
from odradek.metadata.cache import MetadataCache
from odradek.metadata.engine import BrokerView, MetadataEngine
from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite.store import EmbeddedMetadataStore
from odradek.metadata.zookeeper.announcements import Announcements
from odradek.metadata.zookeeper.client import ZooKeeperSettings
from odradek.model import ConfigResourceType
from odradek.server.broker import BrokerServer
from odradek.timer import SystemTimer

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "odradek"
OF_ALL: Final = (
    (BrokerView, "subscribe"),
    (MetadataCache, "on_published"),
    (MetadataCache, "on_told"),
)
OF_ONE: Final = (*OF_ALL, (BrokerConfig, "subscribe"), (EmbeddedMetadataStore, "on_session_lost"))
OF_SEVERAL: Final = (
    *OF_ALL,
    (BrokerView, "follow"),
    (ZooKeeperMetadataStore, "on_session_lost"),
    (Announcements, "follow"),
)
BY_ITSELF: Final = {"KazooSession.on_session_lost"}
MAY_RAISE: Final = {"BrokerConfig.check_by"}
"""What refuses a change of settings before it is stored."""
NEVER_TOLD: Final = {"MetadataCache.on_told"}
"""A broker that is alone knows everything from its start on."""
ALL_BROKERS: Final = ConfigResource(ConfigResourceType.BROKER, "")


class RaisedError(Exception):
    """An error that a listener raises, and that no code of ours expects."""


def fields_in(node: ast.AST) -> set[str]:
    """The fields of `self` that are named in an expression."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def called_again(made: ast.ClassDef) -> set[str]:
    """The fields of which each element is called, and stays."""
    found: set[str] = set()
    for node in ast.walk(made):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            called = {
                each.func.id
                for statement in node.body
                for each in ast.walk(statement)
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
            }
            if node.target.id in called:
                found |= fields_in(node.iter)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("do_each", "run_each"):
            found |= fields_in(node.args[0])
    return found


def registrations(tree: ast.Module) -> Iterator[str]:
    """The methods that keep an argument to be called again."""
    for made in ast.walk(tree):
        if not isinstance(made, ast.ClassDef):
            continue
        fields = called_again(made)
        for method in made.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            arguments = {each.arg for each in method.args.args}
            for node in ast.walk(method):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "append"
                    and fields_in(node.func.value) & fields
                    and arguments & {ast.unparse(each) for each in node.args}
                ):
                    yield f"{made.name}.{method.name}"


@reads_sources
def test_every_way_to_listen_is_tried_here() -> None:
    """Fails when a way to listen is not tried: its listener could raise, and leave a live broker
    that gets no changes.
    """
    found = {
        each
        for folder in ("config", "controller", "metadata")
        for path in (SOURCE / folder).rglob("*.py")
        for each in registrations(tree_of(path))
    }
    tried = {f"{made.__name__}.{method}" for made, method in (*OF_ONE, *OF_SEVERAL)}
    assert found == tried | BY_ITSELF | MAY_RAISE


class Traps:
    """Stands before every listener that is registered; the `armed` one raises instead."""

    def __init__(self, patch: pytest.MonkeyPatch, ways: tuple[tuple[type, str], ...]) -> None:
        self.names: list[str] = []
        self.armed = -1
        self.is_laying = True
        for made, method in ways:
            self._lay(patch, made, method)

    def _lay(self, patch: pytest.MonkeyPatch, made: type, method: str) -> None:
        register = getattr(made, method)

        def trapped(registry: Any, *arguments: Any) -> None:
            *before, listener = arguments
            if self.is_laying:
                listener = self._trap(f"{made.__name__}.{method}", listener)
            register(registry, *before, listener)

        patch.setattr(made, method, trapped)

    def _trap(self, name: str, listener: Callable[..., Any]) -> Callable[..., Any]:
        number = len(self.names)
        self.names.append(name)

        def trap(*arguments: Any) -> Any:
            if self.armed == number:
                raise RaisedError(name)
            return listener(*arguments)

        return trap


def is_idle(engine: MetadataEngine) -> bool:
    """Whether the next change could begin."""
    under_way = (engine._committing, engine._acting, engine._resume)
    return not engine._draining and under_way == (None, None, None)


class OneBroker:
    """A broker that is alone, until it has ended."""

    def __init__(self, broker: BrokerServer, halted: list[str]) -> None:
        self._broker = broker
        self._halted = halted

    async def meet_all(self) -> None:
        """Causes every event that somebody listens to."""
        topic = CreatableTopic("t", 1)
        await self._do(
            lambda on_done: self._broker.controller.create_topics([topic], 60_000, on_done)
        )
        settings = {ALL_BROKERS: {"message.max.bytes": "2000000"}}
        await self._do(lambda on_done: self._broker.store.alter_configs(settings, on_done))
        if not self._halted:
            self._broker.store.expire()

    async def _do(self, begin: Callable[[Callable[[object], None]], None]) -> None:
        answers: list[object] = []
        if not self._halted:
            begin(answers.append)
        async with asyncio.timeout(deadline_s(60)):
            while not self._halted and not answers:
                await asyncio.sleep(0.001)


def test_a_listener_of_a_broker_that_raises_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would live on with a change that not all have acted on, or hear nothing more."""

    async def end(number: int) -> list[str]:
        with monkeypatch.context() as patch:
            traps = Traps(patch, OF_ONE)
            halted: list[str] = []
            broker = await started(tmp_path / str(number), halted)
            traps.armed = number
            await OneBroker(broker, halted).meet_all()
            if 0 <= number < len(traps.names) and traps.names[number] not in NEVER_TOLD:
                error = RaisedError(traps.names[number])
                assert halted == [f"a broken invariant: {error!r}"]
            async with asyncio.timeout(deadline_s(60)):
                while not is_idle(broker.embedded.shared._engine):
                    await asyncio.sleep(0.001)
            answers: list[object] = []
            broker.store.sync(answers.append)
            await broker.stop()
            assert answers, f"{traps.names[number]} keeps others waiting"
            return traps.names

    names = asyncio.run(end(-1))
    assert set(names) == {f"{made.__name__}.{method}" for made, method in OF_ONE}
    for number in range(len(names)):
        assert asyncio.run(end(number)) == names


class OneOfThree:
    """The second of three brokers over ZooKeeper, which comes last; the others have no traps."""

    def __init__(self, traps: Traps) -> None:
        traps.is_laying = False
        self._cluster = Cluster(keeps_acls=True)
        self._other = self._cluster.start(1)
        self._cluster.start(3)
        traps.is_laying = True
        self.broker = self._cluster.add(2)
        traps.is_laying = False

    def meet_all(self) -> None:
        """Causes every event that somebody listens to."""
        self.broker.begin("register_broker", 2, (), None)
        self._turn()
        self.make("t")
        acls = [AclBinding(ORDERS, READ), AclBinding(PREFIX, READ)]
        settings = {ALL_BROKERS: {"message.max.bytes": "2000000"}}
        self._other.begin("alter_configs", settings)
        self._other.begin("alter_acls", acls, ())
        self._turn()
        if not self.broker.broken:
            self.broker.zookeeper.expire()
        self._turn()

    def make(self, name: str) -> Any:
        """Creates a topic through another broker; returns what that is told."""
        answers = self._other.begin("create_topics", [NewTopic(name, ((1, 2),), {})])
        self._turn()
        return answers

    def _turn(self) -> None:
        """Runs everything that is pending, also for a broker that has ended."""
        for _ in range(20):
            self._cluster.tree.run()
            self._cluster.clock.advance(50)
            self._cluster.timer.advance_clock(0)


def test_a_listener_of_a_broker_in_a_cluster_that_raises_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker would be taken for a live one by the others, and hear nothing more."""

    def end(number: int) -> list[str]:
        with monkeypatch.context() as patch:
            traps = Traps(patch, OF_SEVERAL)
            one = OneOfThree(traps)
            traps.armed = number
            one.meet_all()
            if number >= 0:
                error = RaisedError(traps.names[number])
                assert {repr(each) for each in one.broker.broken} == {repr(error)}
            assert is_idle(one.broker.store._view.engine)
            answers = one.broker.begin("sync")
            one.broker.store.close()
            assert answers, f"{traps.names[number]} keeps others waiting"
            (made,) = one.make("later")
            assert not isinstance(made[0], BrokerError)
            return traps.names

    names = end(-1)
    assert set(names) == {f"{made.__name__}.{method}" for made, method in OF_SEVERAL}
    for number in range(len(names)):
        assert end(number) == names


def test_a_listener_of_a_session_that_raises_ends_its_broker() -> None:
    """A broker would act as a live one when others have taken over."""
    module = pytest.importorskip("odradek.metadata.zookeeper.connection.session")
    broken: list[Exception] = []
    settings = ZooKeeperSettings("127.0.0.1:1", 1000, 1000)
    clock = ManualClock()
    session = module.KazooSession(
        settings, SystemTimer(clock), clock, lambda action: action(), broken.append
    )
    session.on_session_lost(raise_it)
    session._on_state(module.KazooState.LOST)
    assert [type(each) for each in broken] == [RaisedError]


def raise_it() -> None:
    raise RaisedError
