"""`Subscriptions`: the topics that the members of a group read together, updated as members join
and leave."""

from collections import Counter
from collections.abc import Iterator, Mapping

from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.records.consumer_group_records import ConsumerGroupRegularExpressionValue

Expressions = Mapping[str, ConsumerGroupRegularExpressionValue]
"""The regular expressions of a group with the topics that they match."""


class Subscriptions:
    """How many members name a topic, and how many use an expression."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.expressions: Counter[str] = Counter()

    def copy(self) -> "Subscriptions":
        """An independent copy."""
        other = Subscriptions()
        other.names = self.names.copy()
        other.expressions = self.expressions.copy()
        return other

    def add(self, member: ConsumerMember) -> None:
        """Counts a member in."""
        self.names.update(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            self.expressions[member.subscribed_topic_regex] += 1

    def discard(self, member: ConsumerMember) -> None:
        """Removes a member that was counted in."""
        for name in member.subscribed_topic_names:
            _take(self.names, name)
        if member.subscribed_topic_regex:
            _take(self.expressions, member.subscribed_topic_regex)

    def topic_names(self, resolved: Expressions) -> set[str]:
        """The topics that any member reads, whether they exist or not."""
        topics = set(self.names)
        for expression in self.expressions:
            if expression in resolved:
                topics.update(resolved[expression].topics)
        return topics

    def includes(self, topic: str, resolved: Expressions) -> bool:
        """Whether any member reads the topic."""
        if topic in self.names:
            return True
        return any(
            topic in resolved[expression].topics
            for expression in self.expressions
            if expression in resolved
        )


def topic_names_of(member: ConsumerMember, resolved: Expressions) -> Iterator[str]:
    """The topics that one member reads."""
    yield from member.subscribed_topic_names
    matched = resolved.get(member.subscribed_topic_regex)
    if matched is not None:
        yield from matched.topics


def _take(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
