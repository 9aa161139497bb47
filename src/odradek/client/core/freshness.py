"""Decides which topics the client asks for again, and when.

A topic is outdated when it is not known, when its metadata are doubted, or when it was last
answered `metadata.max.age.ms` ago. Doubted metadata stays known: other partitions of the topic are
read and written meanwhile. Topics that were just asked for are asked for again only after a pause,
which grows while the responses bring nothing new. `BROKERS_ALONE` means no topic, None all of them.
"""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final

from odradek.client.core.metadata import ClusterMetadata
from odradek.client.core.retries import ExponentialBackoff
from odradek.client.errors import error_for
from odradek.clock import LONG_AGO_MS


class _NoTopic(Enum):
    """No name: any text may be asked for, by mistake, as a topic."""

    BROKERS_ALONE = 0


BROKERS_ALONE: Final = _NoTopic.BROKERS_ALONE
Subject = str | _NoTopic | None


class _Asked:
    """How a subject was asked for last."""

    def __init__(self) -> None:
        self.fruitless = 0
        self.not_before_ms = LONG_AGO_MS
        self.answered_ms: int | None = None


class Freshness:
    """The age of a client's metadata."""

    def __init__(self, max_age_ms: int, backoff: ExponentialBackoff) -> None:
        self._max_age_ms = max_age_ms
        self._backoff = backoff
        self._asked: dict[Subject, _Asked] = {}
        self._doubted: set[str] = set()

    def doubt(self, names: Iterable[str]) -> None:
        """Marks metadata of these topics as possibly out of date."""
        self._doubted.update(names)

    def outdated(self, names: Iterable[str], known: ClusterMetadata, now_ms: int) -> set[str]:
        """Picks the topics that have to be asked for."""
        return {
            name
            for name in names
            if name in self._doubted or name not in known.topics or self._is_old(name, now_ms)
        }

    def wait_ms(self, subjects: Collection[Subject], now_ms: int) -> int:
        """How long to wait before these are asked for: topics not asked for recently do not wait
        for those that were."""
        return max(0, min(self._of(each).not_before_ms for each in subjects) - now_ms)

    def sent(self, subjects: Iterable[Subject]) -> None:
        """Records that a request for these leaves now: it answers earlier doubts, not later
        ones."""
        self._doubted.difference_update(each for each in subjects if isinstance(each, str))

    def failed(self, subjects: Iterable[Subject], now_ms: int) -> None:
        """Records that a request for these was not answered."""
        for subject in subjects:
            self._pause(self._of(subject), now_ms, has_news=False)
            if isinstance(subject, str):
                self._doubted.add(subject)

    def answered(
        self,
        subjects: Iterable[Subject],
        before: ClusterMetadata,
        after: ClusterMetadata,
        answer: ClusterMetadata,
        now_ms: int,
    ) -> None:
        """Records an answer, and whether it changed the metadata from `before` to `after`."""
        for subject in subjects:
            if subject is BROKERS_ALONE:
                has_news = (before.nodes, before.controller_id) != (
                    after.nodes,
                    after.controller_id,
                )
            elif subject is None:
                has_news = before.topics != after.topics
            else:
                assert isinstance(subject, str), "a topic has a name"
                has_news = before.topics.get(subject) != after.topics.get(subject)
            self._pause(self._of(subject), now_ms, has_news=has_news)
        for name, topic in answer.topics.items():
            self._of(name).answered_ms = now_ms
            if topic.error_code and error_for(topic.error_code).retriable:
                self._doubted.add(name)

    def _of(self, subject: Subject) -> _Asked:
        return self._asked.setdefault(subject, _Asked())

    def _is_old(self, name: str, now_ms: int) -> bool:
        answered_ms = self._of(name).answered_ms
        return answered_ms is None or now_ms - answered_ms >= self._max_age_ms

    def _pause(self, asked: _Asked, now_ms: int, *, has_news: bool) -> None:
        is_long_ago = now_ms >= asked.not_before_ms + self._backoff.max_ms
        asked.fruitless = 0 if has_news or is_long_ago else asked.fruitless + 1
        asked.not_before_ms = now_ms + self._backoff.wait_ms(asked.fruitless)
