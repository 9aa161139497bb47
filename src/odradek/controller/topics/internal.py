"""The broker's own topics, as its settings shape them."""

from odradek.config import BrokerConfig
from odradek.controller.results import CreatableTopic
from odradek.model import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)


def requested_topic(config: BrokerConfig, name: str) -> CreatableTopic:
    """The topic that is created when `name` is asked for and does not exist."""
    if name == GROUP_METADATA_TOPIC:
        return _offsets_topic(config)
    if name == TRANSACTION_STATE_TOPIC:
        return _transaction_topic(config)
    if name == SHARE_GROUP_STATE_TOPIC:
        return _share_state_topic(config)
    return CreatableTopic(name)


def _offsets_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        GROUP_METADATA_TOPIC,
        config["offsets.topic.num.partitions"],
        config["offsets.topic.replication.factor"],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


def _transaction_topic(config: BrokerConfig) -> CreatableTopic:
    return CreatableTopic(
        TRANSACTION_STATE_TOPIC,
        config["transaction.state.log.num.partitions"],
        config["transaction.state.log.replication.factor"],
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )


def _share_state_topic(config: BrokerConfig) -> CreatableTopic:
    # Only its coordinator deletes records, since it knows which are still needed.
    return CreatableTopic(
        SHARE_GROUP_STATE_TOPIC,
        config["share.coordinator.state.topic.num.partitions"],
        config["share.coordinator.state.topic.replication.factor"],
        configs={
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
            "retention.ms": "-1",
            "segment.bytes": str(config["share.coordinator.state.topic.segment.bytes"]),
        },
    )
