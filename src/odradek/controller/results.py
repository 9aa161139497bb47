"""The requests to the controller and its results, as values.

One result per topic or resource, with an error code where it was refused: the answer to one never
hides the others. Handlers turn these into messages of any version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from odradek.config import ConfigSource, SettingType
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import ZERO_UUID, ConfigResource
from odradek.model import TopicPartition

UNKNOWN_COUNT = -1


class ConfigSynonym(NamedTuple):
    """A place where a setting has a value; the first one decides."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting of a resource as DescribeConfigs shows it; sensitive values are None."""

    name: str
    value: str | None
    source: ConfigSource
    type: SettingType
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


class UpgradeType(IntEnum):
    """The directions in which a feature's level may change; the numbers are the protocol's."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level at which a feature is to be finalized."""

    name: str
    level: int
    upgrade_type: UpgradeType


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """A topic to create. -1 takes the broker's default; `assignments` (of partitions,
    with their replicas) go with both counts being -1."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreateTopicResult:
    """The outcome of a creation, with the counts of the topic; `describe` finds its settings."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID = ZERO_UUID
    num_partitions: int = UNKNOWN_COUNT
    replication_factor: int = UNKNOWN_COUNT
    describe: Callable[[], Sequence[ConfigEntry]] = tuple

    @property
    def configs(self) -> Sequence[ConfigEntry]:
        """The effective settings: looked up for each topic in its turn, because a request may have
        created thousands."""
        return self.describe()

    @classmethod
    def failed(cls, name: str, error: BrokerError) -> "CreateTopicResult":
        """The result of a topic that was refused."""
        return cls(name, error.code, error.message)


class TopicReference(NamedTuple):
    """A topic by name or, when the name is None, by id."""

    name: str | None
    topic_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeleteTopicResult:
    """The outcome of a deletion; the name is None when an unknown id was given."""

    name: str | None
    topic_id: UUID = ZERO_UUID
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionsRequest:
    """A topic that is to have `count` partitions; `assignments` are for the new ones."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


class NamedResult(NamedTuple):
    """The outcome for a topic of a name."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ResourceResult(NamedTuple):
    """The outcome for a resource with settings."""

    resource: ConfigResource
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None


class AlterOperation(IntEnum):
    """The operations of IncrementalAlterConfigs; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigAlteration(NamedTuple):
    """A step of IncrementalAlterConfigs; `operation` as it came from the wire."""

    name: str
    operation: int
    value: str | None


class ElectionType(IntEnum):
    """The kinds of election of ElectLeaders; the numbers are the protocol's."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The outcome of one partition's election."""

    topic_partition: TopicPartition
    error_code: ErrorCode = ErrorCode.NONE
    message: str | None = None
