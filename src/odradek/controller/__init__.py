"""The controller: topics, partitions, settings, elections, producer ids."""

from odradek.controller.controller import Controller
from odradek.controller.producer_ids import ProducerIdManager
from odradek.controller.results import (
    AlterOperation,
    ConfigAlteration,
    ConfigEntry,
    ConfigSynonym,
    CreatableTopic,
    CreateTopicResult,
    DeleteTopicResult,
    ElectionResult,
    ElectionType,
    NamedResult,
    PartitionsRequest,
    ResourceResult,
    TopicReference,
)
from odradek.controller.topics.operations import CreateTopicPolicy

__all__ = [
    "AlterOperation",
    "ConfigAlteration",
    "ConfigEntry",
    "ConfigSynonym",
    "Controller",
    "CreatableTopic",
    "CreateTopicPolicy",
    "CreateTopicResult",
    "DeleteTopicResult",
    "ElectionResult",
    "ElectionType",
    "NamedResult",
    "PartitionsRequest",
    "ProducerIdManager",
    "ResourceResult",
    "TopicReference",
]
