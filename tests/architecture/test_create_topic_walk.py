"""A create-topic walks straight through controller and metadata on both stores, and the page on the
controller draws it: these are all modules that it enters, in their order."""

import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

import odradek
from odradek.background import InlineBackground
from odradek.config import BrokerConfig
from odradek.controller import Controller, CreatableTopic
from odradek.metadata import MetadataCache
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.database import Database
from odradek.model import EndPoint
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer

SOURCES = Path(odradek.__file__).parent
ROOT = Path(__file__).parents[2]
ROOMS = ("controller", "metadata")
# Values, and the code of classes that is entered wherever one is made or compared.
VALUES = {"controller/results.py", "metadata/image.py", "metadata/shared_map.py"}


def walk(action: Callable[[], None]) -> list[str]:
    """The modules of both floors that an action enters, each where it is entered first."""
    entered: dict[str, None] = {}

    def trace(frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCES):
                module = path.relative_to(SOURCES)
                if module.parts[0] in ROOMS and str(module) not in VALUES:
                    entered[module.as_posix()] = None

    sys.setprofile(trace)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(entered)


def drawn(store: str) -> list[str]:
    """The modules that the page names, in the code block behind the store's name."""
    page = (ROOT / "docs/internals/controller.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"{store}:\n\n((?:    .*\n)+)", page)
    return re.findall(r"\S+\.py", block)


def take(answers: list[Any]) -> Callable[[Any], None]:
    """Keeps an answer, and asks for the settings that it is told with, as the handler does."""

    def on_done(results: Any) -> None:
        answers.append(results)
        assert results[0].configs

    return on_done


def test_on_sqlite(tmp_path: Path) -> None:
    """Somebody who reads the page would look for a decision in the wrong room."""
    numbers = itertools.count(1)
    cache = MetadataCache()
    shared = SharedMetadata(
        InlineBackground(), lambda n: next(numbers).to_bytes(n, "big"), Database(str(tmp_path))
    )
    store = EmbeddedMetadataStore(cache, shared)
    purgatory = DelayedOperationPurgatory("Topic", MockTimer(), 1)
    controller = Controller(store, cache, BrokerConfig(), 1, purgatory, lambda _: 0)
    store.load()
    answers: list[Any] = []
    endpoint = EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
    store.register_broker(1, (endpoint,), None, answers.append)
    found = walk(lambda: controller.create_topics([CreatableTopic("a", 1, 1)], 1000, take(answers)))
    assert answers[-1][0].name == "a"
    assert found == drawn("On sqlite")
    store.close()


def test_on_zookeeper() -> None:
    """The walk is as on sqlite, though another broker than the one asked is the controller."""
    cluster = Cluster(2)
    elected = cluster.brokers[1].image.controller_id
    asked = next(each for each in cluster.brokers.values() if each.id != elected)
    answers: list[Any] = []

    def create() -> None:
        asked.controller.create_topics([CreatableTopic("a", 1, 1)], 1000, take(answers))
        cluster.settle()

    found = walk(create)
    assert answers[0][0].name == "a"
    assert found == drawn("On ZooKeeper")
