"""Assignors: divide the partitions of topics among consumers (KIP-848).

An assignor is a pure function of the members' subscriptions, the partition counts and the previous
assignment. `ASSIGNORS` has those that a group may choose, by name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.config.broker import BrokerConfig
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


def assignor_names(config: BrokerConfig) -> list[str]:
    """The assignors that are switched on, the default first."""
    names: tuple[str, ...] = config["group.consumer.assignors"]
    return [name for name in names if name in ASSIGNORS] or list(ASSIGNORS)


__all__ = [
    "ASSIGNORS",
    "AssignmentSpec",
    "MemberSpec",
    "PartitionAssignor",
    "Partitions",
    "RangeAssignor",
    "UniformAssignor",
    "assignor_names",
]
