"""A controller over an in-memory store, with the outcomes of its callbacks at hand."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.late_background import LateBackground

from odradek.config import BrokerConfig
from odradek.controller import Controller, CreatableTopic
from odradek.controller.topics.operations import CreateTopicPolicy
from odradek.metadata import MetadataCache, MetadataStoreError
from odradek.metadata.sqlite import EmbeddedMetadataStore, SharedMetadata
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.model import EndPoint
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import MockTimer

ENDPOINTS = (EndPoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)


class NoJournal:
    """A store that writes every change in the background, and keeps nothing. If it `fails`, its
    disk is full."""

    def __init__(self) -> None:
        self.fails = False

    def read(self) -> StoredMetadata:
        return StoredMetadata("cluster", 0, 0, (), {})

    def write(self, statements: object) -> None:
        if self.fails:
            raise MetadataStoreError("disk full")

    def close(self) -> None:
        pass


class ControllerKit:
    """Everything around a controller; `ask` runs an operation and returns its one answer."""

    def __init__(
        self,
        properties: dict[str, str] | None = None,
        policy: CreateTopicPolicy | None = None,
    ) -> None:
        numbers = itertools.count(1)
        self.cache = MetadataCache()
        self._background = LateBackground(is_late=False)
        self.journal = NoJournal()
        self._shared = SharedMetadata(
            self._background, lambda size: next(numbers).to_bytes(size, "big"), self.journal
        )
        self.store = EmbeddedMetadataStore(self.cache, self._shared)
        self.config = BrokerConfig(properties)
        self.timer = MockTimer()
        self.purgatory = DelayedOperationPurgatory("topic", self.timer)
        self.controller = Controller(
            self.store, self.cache, self.config, 1, self.purgatory, lambda bound: 0, policy
        )
        self.store.load()
        self.store.register_broker(1, ENDPOINTS, None, lambda _: None)

    def ask(self, operation: Callable[..., None], *args: Any, **kwargs: Any) -> Any:
        answers: list[Any] = []
        operation(*args, on_done=answers.append, **kwargs)
        assert len(answers) == 1, f"{len(answers)} answers"
        return answers[0]

    def another_broker(self, broker_id: int) -> EmbeddedMetadataStore:
        """A broker that lives until its store is closed."""
        store = EmbeddedMetadataStore(MetadataCache(), self._shared)
        store.load()
        store.register_broker(broker_id, ENDPOINTS, None, lambda _: None)
        return store

    def hold_commits(self) -> None:
        self._background.is_late = True

    def commit_all(self) -> None:
        self._background.run()

    def create(self, *topics: CreatableTopic, **kwargs: Any) -> Any:
        return self.ask(self.controller.create_topics, topics, 1000, **kwargs)

    def must_create(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        (result,) = self.create(CreatableTopic(name, partitions, 1, configs=settings))
        assert not result.error_code, result


@pytest.fixture
def kit() -> ControllerKit:
    return ControllerKit()


@pytest.fixture
def kit_with() -> type[ControllerKit]:
    return ControllerKit
