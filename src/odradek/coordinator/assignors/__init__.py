"""Assignors: how the coordinator shares the partitions of topics out among consumers (KIP-848).

An assignor is a pure function of the members' subscriptions, the partition counts and the previous
assignment. `ASSIGNORS` is what a group may choose from, by name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.coordinator.assignors.assignor import (
    AssignmentSpec,
    MemberSpec,
    PartitionAssignor,
    Partitions,
)
from odradek.coordinator.assignors.range import RangeAssignor
from odradek.coordinator.assignors.uniform import UniformAssignor

ASSIGNORS: Final[Mapping[str, PartitionAssignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), RangeAssignor())}
)

__all__ = [
    "ASSIGNORS",
    "AssignmentSpec",
    "MemberSpec",
    "PartitionAssignor",
    "Partitions",
    "RangeAssignor",
    "UniformAssignor",
]
