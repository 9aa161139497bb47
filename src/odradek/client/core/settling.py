"""The items of one call, each asked for again until it has a value, or a permanent error."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Generic, TypeVar

from odradek.client.core.listed import each_once
from odradek.client.core.retries import TimeLimit
from odradek.client.errors import KafkaError, unanswered
from odradek.errors import ErrorCode

T = TypeVar("T")
K = TypeVar("K")


class Settling(Generic[K, T]):
    """The answers about the items of a call, and the items that are still `pending`."""

    def __init__(
        self,
        items: Iterable[K],
        limit: TimeLimit,
        final: Collection[ErrorCode],
        answers: dict[K, T | KafkaError],
    ) -> None:
        """Errors whose codes are `final` stay. `answers` may be filled by others as well."""
        self._order: Final = each_once(items)
        self._limit = limit
        self._final = final
        self.answers = answers
        self.pending = self._order

    def take(self, found: Mapping[K, T | KafkaError]) -> list[KafkaError]:
        """Takes the answers about the pending items; those with transient errors stay pending.
        Returns all errors."""
        asked = {item: found.get(item, unanswered(item)) for item in self.pending}
        self.answers.update(asked)
        self.pending = [item for item, answer in asked.items() if self._may_pass(answer)]
        return [answer for answer in asked.values() if isinstance(answer, KafkaError)]

    def raise_pending(self) -> None:
        """Raises the error of a pending item that may last longest."""
        answers = [self.answers[item] for item in self.pending]
        errors = [answer for answer in answers if isinstance(answer, KafkaError)]
        if errors:
            raise max(errors, key=self._limit.patience_ms)

    def outcome(self, failure: KafkaError | None) -> dict[K, T | KafkaError]:
        """The value or the error of each item; `failure` is the error of those that have none."""
        found: dict[K, T | KafkaError] = {}
        if failure is not None:
            found.update(dict.fromkeys(self._order, failure))
        found.update({item: self._told(answer) for item, answer in self.answers.items()})
        return {item: found[item] for item in self._order}

    def _may_pass(self, answer: T | KafkaError) -> bool:
        return (
            isinstance(answer, KafkaError)
            and answer.retriable
            and answer.code not in self._final
            and self._limit.allows_retry(answer)
        )

    def _told(self, answer: T | KafkaError) -> T | KafkaError:
        """An answer, or an error with its text for the user: with the limit, if that has ended the
        attempts."""
        if not isinstance(answer, KafkaError) or answer.code in self._final:
            return answer
        return self._limit.overdue(answer) if self._limit.has_ended(answer) else answer
