"""The assignor `simple`: every partition is read, and every member reads, as evenly as possible.

Evenness comes before the previous assignment. If there are more members than partitions, members
share partitions.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from odradek.coordinator.assignors.assignor import Partitions

SIMPLE_ASSIGNOR: Final = "simple"

_Partition = tuple[UUID, int]


class _Share:
    """An assignment that is being computed."""

    def __init__(
        self, subscriptions: Mapping[str, frozenset[UUID]], before: Mapping[str, Partitions]
    ) -> None:
        self._subscriptions = subscriptions
        self._before = before
        self.given: dict[str, list[_Partition]] = {member: [] for member in sorted(subscriptions)}
        self.readers: dict[_Partition, int] = {}

    def may_have(self, member: str, partition: _Partition) -> bool:
        return partition[0] in self._subscriptions[member]

    def had(self, member: str, partition: _Partition) -> bool:
        return partition[1] in self._before.get(member, {}).get(partition[0], ())

    def give(self, member: str, partition: _Partition) -> None:
        self.given[member].append(partition)
        self.readers[partition] = self.readers.get(partition, 0) + 1


def assign_simply(
    subscriptions: Mapping[str, frozenset[UUID]],
    before: Mapping[str, Partitions],
    partitions: Partitions,
) -> dict[str, Partitions]:
    """The partitions of each member, by the ids of the topics that it reads."""
    share = _Share(subscriptions, before)
    targets = [
        (topic_id, index)
        for topic_id in sorted(partitions)
        for index in sorted(partitions[topic_id])
        if any(topic_id in topic_ids for topic_ids in subscriptions.values())
    ]
    _keep(share, targets)
    _give_the_rest(share, targets)
    _share_out(share, targets)
    return {member: _by_topic(given) for member, given in share.given.items()}


def _keep(share: _Share, targets: list[_Partition]) -> None:
    """Members keep their partitions, up to an even share."""
    if not share.given:
        return
    least, extra = divmod(len(targets), len(share.given))
    for partition in targets:
        for member, given in share.given.items():
            if not (share.had(member, partition) and share.may_have(member, partition)):
                continue
            if len(given) < least:
                share.give(member, partition)
                break
            if len(given) == least and extra:
                extra -= 1
                share.give(member, partition)
                break


def _give_the_rest(share: _Share, targets: list[_Partition]) -> None:
    for partition in targets:
        if partition not in share.readers:
            readers = [each for each in share.given if share.may_have(each, partition)]
            share.give(min(readers, key=lambda each: len(share.given[each])), partition)


def _share_out(share: _Share, targets: list[_Partition]) -> None:
    """Assigns members without partitions to the partitions with the fewest readers, preferring
    their previous ones."""
    for member, given in share.given.items():
        open_to = [each for each in targets if share.may_have(member, each)]
        if open_to and not given:
            partition = min(
                open_to, key=lambda each: (share.readers[each], not share.had(member, each))
            )
            share.give(member, partition)


def _by_topic(given: list[_Partition]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, index in given:
        found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
