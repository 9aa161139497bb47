"""The input and output of an assignor."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partitions by topic id; a topic without any is not in it."""


class MemberSpec(NamedTuple):
    """A member: the topics that it reads, and its previous target."""

    instance_id: str | None
    topic_ids: frozenset[UUID]
    partitions: Partitions


class AssignmentSpec(NamedTuple):
    """Everything that an assignment depends on. Every topic that a member reads is in
    `partition_counts`."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


class PartitionAssignor(ABC):
    """Divides partitions among members. Every partition of a subscribed topic goes to exactly one
    of its subscribers, and the same spec always gives the same result."""

    name: str

    @abstractmethod
    def assign(self, spec: AssignmentSpec) -> dict[str, Partitions]:
        """The partitions of each member."""
