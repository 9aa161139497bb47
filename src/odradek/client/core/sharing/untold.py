"""The errors that wait for the reader of a share consumer."""

from collections import deque
from collections.abc import Set

from odradek.client.errors import BadRecord, KafkaError


class UntoldErrors:
    """Each is for one read. What is wrong with a topic, or the group, is told once, however many
    partitions, or brokers, say so."""

    def __init__(self) -> None:
        self._topics: Set[str] = frozenset()
        self._waiting: deque[tuple[str, KafkaError]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def reads(self, topics: Set[str]) -> None:
        """Drops the errors of other topics, from now on too."""
        self._topics = topics
        self._waiting = deque([each for each in self._waiting if not each[0] or each[0] in topics])

    def add(self, error: KafkaError, topic: str = "") -> None:
        """Adds an error, of a topic if it has a name."""
        is_read = not topic or topic in self._topics
        is_news = isinstance(error, BadRecord) or all(
            (name, known.code) != (topic, error.code) for name, known in self._waiting
        )
        if is_read and is_news:
            self._waiting.append((topic, error))

    def take(self) -> KafkaError:
        """Takes the first."""
        return self._waiting.popleft()[1]
