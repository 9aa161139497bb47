"""Converts the messages of a controller to the values of `metadata.control`.

Versions differ in how they group partitions: the first name the topic with every partition, the
later ones have partitions under topics. Here they are one list.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.control import ControlHeader, ControlledBroker, PartitionState, ReplicaErrors
from odradek.metadata.image import ZERO_UUID, BrokerRegistration, PartitionImage
from odradek.model import EndPoint, TopicPartition

NO_EPOCH: Final = -1
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def controlled(context: HandlerContext) -> ControlledBroker:
    """The part of this broker that carries out a controller's requests."""
    broker = context.controlled
    assert broker is not None, "only a broker of a ZooKeeper cluster has these APIs in its table"
    return broker


def is_late(context: HandlerContext, request: Request) -> bool:
    """Whether a command comes over a connection that its controller has given up, which is closed
    then: a controller that still waits for the answer repeats the command over another."""
    number = int(request.exchange.connection_id.rpartition("-")[2])
    epoch = request.body().controller_epoch
    if not context.control_connections.is_earlier(epoch, number):
        return False
    request.close()
    return True


def control_header(body: Any) -> ControlHeader:
    """Reads the controller's identity and epoch."""
    epoch = getattr(body, "broker_epoch", NO_EPOCH)
    return ControlHeader(body.controller_id, body.controller_epoch, epoch)


def partition_states(body: Any) -> list[PartitionState]:
    """The partitions of a LeaderAndIsr or an UpdateMetadata of any version."""
    return [_state(name, topic_id, state) for name, topic_id, state in _states(body)]


def _states(body: Any) -> Iterator[tuple[str, UUID, Any]]:
    for state in getattr(body, "ungrouped_partition_states", ()):
        yield state.topic_name, ZERO_UUID, state
    for topic in getattr(body, "topic_states", ()):
        topic_id = getattr(topic, "topic_id", None) or ZERO_UUID
        for state in topic.partition_states:
            yield topic.topic_name, topic_id, state


def _state(name: str, topic_id: UUID, state: Any) -> PartitionState:
    image = PartitionImage(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        state.replicas,
        state.isr,
        getattr(state, "offline_replicas", ()),
        getattr(state, "adding_replicas", ()),
        getattr(state, "removing_replicas", ()),
    )
    is_new = getattr(state, "is_new", False)
    return PartitionState(name, topic_id, state.controller_epoch, image, is_new)


def live_brokers(body: Any) -> list[BrokerRegistration]:
    """The brokers of an UpdateMetadata, which does not tell their epochs."""
    return [
        BrokerRegistration(
            broker.id, tuple(_endpoints(broker)), getattr(broker, "rack", None), NO_EPOCH
        )
        for broker in body.live_brokers
    ]


def _endpoints(broker: Any) -> Iterator[EndPoint]:
    if not hasattr(broker, "endpoints"):
        plain = SECURITY_PROTOCOLS[0]
        yield EndPoint(plain, plain, broker.v0_host, broker.v0_port)
        return
    for endpoint in broker.endpoints:
        number = endpoint.security_protocol
        known = 0 <= number < len(SECURITY_PROTOCOLS)
        protocol = SECURITY_PROTOCOLS[number] if known else str(number)
        name = getattr(endpoint, "listener", protocol)
        yield EndPoint(name, protocol, endpoint.host, endpoint.port)


def same_for_all(replicas: Iterable[TopicPartition], code: ErrorCode) -> ReplicaErrors:
    """Gives all replicas the same outcome."""
    return dict.fromkeys(replicas, code)


def error_fields(errors: ReplicaErrors) -> Iterator[dict[str, object]]:
    """The error of each replica, with the name of its topic; made in slices with the answer."""
    return (
        {"topic_name": name, "partition_index": index, "error_code": code}
        for (name, index), code in errors.items()
    )
