"""Converts the values of `metadata.control` to requests, and the responses back.

The versions are for brokers of Kafka 2.6 and later. The counterpart, which reads the requests, is
`handlers.control_values`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.replicas.control_values import NO_EPOCH, SECURITY_PROTOCOLS
from odradek.handlers.replicas.leader_and_isr import FULL
from odradek.metadata.control import (
    AlterPartition,
    ControlHeader,
    LeaderAndIsr,
    PartitionState,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.metadata.store import PartitionChange
from odradek.model import EndPoint, TopicPartition

LEADER_AND_ISR: Final = ClientApi(4, "LeaderAndIsr", 2, 7, 4)
STOP_REPLICA: Final = ClientApi(5, "StopReplica", 3, 4, 2)
UPDATE_METADATA: Final = ClientApi(6, "UpdateMetadata", 5, 8, 6)
CONTROLLED_SHUTDOWN: Final = ClientApi(7, "ControlledShutdown", 2, 3, 3)
ALTER_PARTITION: Final = ClientApi(56, "AlterPartition", 2, 3, 0)

Fields = dict[str, object]
INCREMENTAL: Final = 1


# --- LeaderAndIsr -------------------------------------------------------------------------------


def leader_and_isr_fields(request: LeaderAndIsr, listener_name: str) -> Fields:
    """A LeaderAndIsr; with the leaders' inter-broker end points."""
    return {
        **_header_fields(request.header),
        "type": FULL if request.is_full else INCREMENTAL,
        "topic_states": _topics(request.partitions, _replica_fields),
        "live_leaders": [_leader_fields(leader, listener_name) for leader in request.leaders],
    }


def _replica_fields(state: PartitionState) -> Fields:
    return {
        **_state_fields(state),
        "adding_replicas": state.partition.adding,
        "removing_replicas": state.partition.removing,
        "is_new": state.is_new,
    }


def _leader_fields(leader: BrokerRegistration, listener_name: str) -> Fields:
    endpoint = leader.endpoint(listener_name) or leader.endpoints[0]
    return {"broker_id": leader.id, "host_name": endpoint.host, "port": endpoint.port}


def leader_and_isr_outcome(request: LeaderAndIsr, answer: Any) -> ReplicaErrors | BrokerError:
    """The result for each replica."""
    refusal = _refusal(answer)
    if refusal is not None:
        return refusal
    if not hasattr(answer, "topics"):
        return _errors(answer.partition_errors)
    names = {state.topic_id: state.topic for state in request.partitions}
    return {
        TopicPartition(names[topic.topic_id], each.partition_index): ErrorCode(each.error_code)
        for topic in answer.topics
        for each in topic.partition_errors
        if topic.topic_id in names
    }


# --- UpdateMetadata -----------------------------------------------------------------------------


def update_metadata_fields(request: UpdateMetadata) -> Fields:
    """An UpdateMetadata."""
    return {
        **_header_fields(request.header),
        "topic_states": _topics(request.partitions, _shown_fields),
        "live_brokers": [
            {
                "id": broker.id,
                "endpoints": [_endpoint_fields(endpoint) for endpoint in broker.endpoints],
                "rack": broker.rack,
            }
            for broker in request.brokers
        ],
    }


def _shown_fields(state: PartitionState) -> Fields:
    return {**_state_fields(state), "offline_replicas": state.partition.offline}


def _endpoint_fields(endpoint: EndPoint) -> Fields:
    return {
        "port": endpoint.port,
        "host": endpoint.host,
        "listener": endpoint.listener_name,
        "security_protocol": SECURITY_PROTOCOLS.index(endpoint.security_protocol),
    }


def update_metadata_outcome(answer: Any) -> BrokerError | None:
    """The error for an UpdateMetadata that the broker did not take over; None if it did."""
    return _refusal(answer)


# --- StopReplica --------------------------------------------------------------------------------


def stop_replica_fields(request: StopReplica) -> Fields:
    """A StopReplica."""
    topics: dict[str, list[Fields]] = {}
    for (name, index), leader_epoch, delete in request.replicas:
        state: Fields = {
            "partition_index": index,
            "leader_epoch": leader_epoch,
            "delete_partition": delete,
        }
        topics.setdefault(name, []).append(state)
    return {
        **_header_fields(request.header),
        "topic_states": [
            {"topic_name": name, "partition_states": states} for name, states in topics.items()
        ],
    }


def stop_replica_outcome(answer: Any) -> ReplicaErrors | BrokerError:
    """The result for each replica."""
    return _refusal(answer) or _errors(answer.partition_errors)


# --- ControlledShutdown -------------------------------------------------------------------------


def controlled_shutdown_fields(broker_id: int, broker_epoch: int) -> Fields:
    """A ControlledShutdown."""
    return {"broker_id": broker_id, "broker_epoch": broker_epoch}


def controlled_shutdown_outcome(answer: Any) -> Sequence[TopicPartition] | BrokerError:
    """The partitions the broker still leads."""
    refusal = _refusal(answer)
    if refusal is not None:
        return refusal
    remaining = answer.remaining_partitions
    return [TopicPartition(each.topic_name, each.partition_index) for each in remaining]


# --- AlterPartition -----------------------------------------------------------------------------


def alter_partition_fields(request: AlterPartition, topic_ids: Mapping[str, UUID]) -> Fields:
    """An AlterPartition for the topics whose ids are known."""
    topics: dict[str, list[Fields]] = {}
    for change, leader_epoch in zip(request.changes, request.leader_epochs, strict=True):
        if change.topic_partition.topic in topic_ids:
            fields = _change_fields(change, leader_epoch)
            topics.setdefault(change.topic_partition.topic, []).append(fields)
    return {
        "broker_id": request.broker_id,
        "broker_epoch": request.broker_epoch,
        "topics": [
            {"topic_id": topic_ids[name], "partitions": partitions}
            for name, partitions in topics.items()
        ],
    }


def _change_fields(change: PartitionChange, leader_epoch: int) -> Fields:
    return {
        "partition_index": change.topic_partition.partition,
        "leader_epoch": leader_epoch,
        "new_isr": change.isr,
        "new_isr_with_epochs": [
            {"broker_id": replica, "broker_epoch": NO_EPOCH} for replica in change.isr
        ],
        "partition_epoch": change.partition_epoch,
    }


def alter_partition_outcome(
    request: AlterPartition, topic_ids: Mapping[str, UUID], answer: Any
) -> list[PartitionImage | BrokerError] | BrokerError:
    """The result of each change, in their order."""
    refusal = _refusal(answer)
    if refusal is not None:
        return refusal
    answers = {
        (topic.topic_id, each.partition_index): each
        for topic in answer.topics
        for each in topic.partitions
    }
    return [
        _changed(change, answers.get((topic_ids.get(topic), index)))
        for change in request.changes
        for topic, index in (change.topic_partition,)
    ]


def _changed(change: PartitionChange, answer: Any) -> PartitionImage | BrokerError:
    """The state that the controller has written; without an answer its topic is not known."""
    if answer is None:
        return BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
    refusal = _refusal(answer)
    if refusal is not None:
        return refusal
    return PartitionImage(
        change.topic_partition.partition,
        answer.leader_id,
        answer.leader_epoch,
        answer.partition_epoch,
        (),
        answer.isr,
    )


# --- what several of them have --------------------------------------------------------------------


def _header_fields(header: ControlHeader) -> Fields:
    return {
        "controller_id": header.controller_id,
        "controller_epoch": header.controller_epoch,
        "broker_epoch": header.broker_epoch,
    }


def _topics(
    partitions: Iterable[PartitionState], fields: Callable[[PartitionState], Fields]
) -> list[Fields]:
    topics: dict[tuple[str, UUID], list[Fields]] = {}
    for state in partitions:
        topics.setdefault((state.topic, state.topic_id), []).append(fields(state))
    return [
        {"topic_name": name, "topic_id": topic_id, "partition_states": states}
        for (name, topic_id), states in topics.items()
    ]


def _state_fields(state: PartitionState) -> Fields:
    partition = state.partition
    return {
        "partition_index": partition.partition,
        "controller_epoch": state.controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
    }


def _errors(partition_errors: Iterable[Any]) -> ReplicaErrors:
    return {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode(each.error_code)
        for each in partition_errors
    }


def _refusal(answer: Any) -> BrokerError | None:
    code = ErrorCode(answer.error_code)
    return None if code is ErrorCode.NONE else BrokerError(code)
