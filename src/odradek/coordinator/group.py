"""`Group`: the interface of every kind of group, and `GroupRegistry`, which holds all kinds.

A group is classic (members choose the assignment among themselves), a consumer group of the
newer protocol (the coordinator assigns) or a share group (members read the same partitions
together). Offsets, listing and deletion treat them alike,
through this class.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from uuid import UUID

from odradek.coordinator.records.record import CoordinatorRecord

CONSUMER_PROTOCOL_TYPE = "consumer"


CheckPartition = Callable[[UUID | None, int], None]
"""Whether somebody may commit an offset of one partition, by the id of its topic."""


class GroupType(StrEnum):
    """Kinds of groups, by the names that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group(ABC):
    """A group of any kind."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def type(self) -> GroupType:
        """The kind of the group."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, as DescribeGroups and ListGroups print it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """The protocol type of the members ("consumer", "connect"); empty for a group without
        any."""

    @property
    @abstractmethod
    def member_count(self) -> int:
        """How many members the group has."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def may_expire(self) -> bool:
        """Whether the group is removed automatically once it has no members and no offsets."""
        return True

    @abstractmethod
    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        api_version: int,
        is_transactional: bool = False,
    ) -> CheckPartition | None:
        """Checks that the sender may commit offsets: all of the request, or only partitions that
        pass another check, which raises a BrokerError for the others.

        Raises:
            BrokerError: it may not.
        """

    @abstractmethod
    def on_offset_commit(self, member_id: str) -> None:
        """Handles the sign of life of a member that has committed offsets."""

    @abstractmethod
    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Checks that the sender may fetch offsets; -1 is the epoch of a client that is no member.

        Raises:
            BrokerError: it may not.
        """

    @abstractmethod
    def check_offset_delete(self) -> None:
        """Checks that offsets of the group may be deleted at all.

        Raises:
            BrokerError: they may not.
        """

    @abstractmethod
    def check_delete(self) -> None:
        """Checks that the group may be deleted.

        Raises:
            BrokerError: NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND.
        """

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that members name, whether there are such topics or not."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, or may read it."""

    @abstractmethod
    def offset_expiry_base_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        """The moment that an offset's retention counts from (KIP-211); None: not now."""

    @abstractmethod
    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that remove the group from the log; its offsets apart."""

    @abstractmethod
    def on_removed(self) -> None:
        """Ends the group's timers and waits, after it was removed from the registry."""

    @abstractmethod
    def on_unloaded(self) -> None:
        """Answers all waiting requests: the coordinator moves away."""


class GroupRegistry:
    """The groups of one partition, of all kinds, by id."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def group_ids(self) -> list[str]:
        """The ids of all groups."""
        return list(self._groups)

    def get(self, group_id: str) -> Group | None:
        """The group of that id, of any kind."""
        return self._groups.get(group_id)

    def put(self, group: Group) -> None:
        """Adds a group, in place of one of the same id (a group may change its kind)."""
        self._groups[group.group_id] = group

    def remove(self, group_id: str) -> Group | None:
        """Forgets a group; returns it."""
        group = self._groups.pop(group_id, None)
        if group is not None:
            group.on_removed()
        return group
