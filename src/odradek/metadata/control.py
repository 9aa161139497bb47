"""The requests between a controller and its brokers, and the port that carries them.

With ZooKeeper only the controller knows all metadata and decides; it sends the others LeaderAndIsr,
UpdateMetadata and StopReplica, and they send it AlterPartition and ControlledShutdown. These are
the values of those requests; the floors above encode them and choose connections. Each has the
epoch of the controller, and of the broker that it is sent to or comes from: a receiver that knows a
later one refuses it (STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH), so a controller after a long
pause has no effect.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.metadata.store import OnDone, PartitionChange
from odradek.model import TopicPartition


class PartitionState(NamedTuple):
    """A partition's state by the decision of the controller of `controller_epoch`;
    `partition.partition_epoch` is the version of the state's znode. A new one has never had a
    leader."""

    topic: str
    topic_id: UUID
    controller_epoch: int
    partition: PartitionImage
    is_new: bool = False

    @property
    def replica(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition.partition)


class ControlHeader(NamedTuple):
    """The controller, its epoch, and the epoch of the broker that a request is for."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int


class LeaderAndIsr(NamedTuple):
    """The replicas that the broker is to lead or to follow from here on. A full request names all
    of them: other logs of the broker are no replicas of this cluster any more."""

    header: ControlHeader
    is_full: bool
    partitions: Sequence[PartitionState]
    leaders: Sequence[BrokerRegistration]


class UpdateMetadata(NamedTuple):
    """The metadata for clients: all live brokers, and the partitions that have changed. A leader
    of -2 says that the topic is being deleted."""

    header: ControlHeader
    partitions: Sequence[PartitionState]
    brokers: Sequence[BrokerRegistration]


class StoppedReplica(NamedTuple):
    """A replica that the broker is to give up, under a leader epoch (-1 unknown, -2 the topic is
    deleted); with `delete` its log is deleted too."""

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


class StopReplica(NamedTuple):
    """The replicas that the broker is to give up."""

    header: ControlHeader
    replicas: Sequence[StoppedReplica]


class AlterPartition(NamedTuple):
    """New in-sync replicas, which a leader asks the controller to store."""

    broker_id: int
    broker_epoch: int
    changes: Sequence[PartitionChange]
    leader_epochs: Sequence[int]


ReplicaErrors = Mapping[TopicPartition, ErrorCode]
"""The outcome for each replica; NONE where it was done."""


class ControlPlane(ABC):
    """The port to the `ControlledBroker` of other brokers and of the controller. Each call is
    answered exactly once, on the loop, never before it has returned; with NETWORK_EXCEPTION if
    there is no response. Requests to one broker arrive in the order of the calls; each waits for
    the answer to the one before."""

    @abstractmethod
    def leader_and_isr(
        self, broker: BrokerRegistration, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]
    ) -> None:
        """Sends a broker the partitions that it leads and follows."""

    @abstractmethod
    def update_metadata(
        self, broker: BrokerRegistration, request: UpdateMetadata, on_done: OnDone[None]
    ) -> None:
        """Sends a broker the metadata."""

    @abstractmethod
    def stop_replica(
        self, broker: BrokerRegistration, request: StopReplica, on_done: OnDone[ReplicaErrors]
    ) -> None:
        """Sends a broker the replicas that it has to give up."""

    @abstractmethod
    def alter_partition(
        self,
        controller: BrokerRegistration,
        request: AlterPartition,
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """Asks the controller for other in-sync replicas; of the returned images only leader, ISR
        and the epochs are valid."""

    @abstractmethod
    def controlled_shutdown(
        self,
        controller: BrokerRegistration,
        broker_id: int,
        broker_epoch: int,
        on_done: OnDone[Sequence[TopicPartition]],
    ) -> None:
        """Asks the controller to move this broker's leaderships to others; the answer has the
        partitions that it still leads."""

    @abstractmethod
    def close(self) -> None:
        """Closes all connections; waiting calls are answered with NETWORK_EXCEPTION."""


class ControlledBroker(ABC):
    """A broker's handling of these requests. Implemented by the store in ZooKeeper, called by the
    handlers of the requests, on the loop."""

    @abstractmethod
    def on_leader_and_isr(self, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]) -> None:
        """Takes up the roles; a stale request as a whole is answered STALE_CONTROLLER_EPOCH or
        STALE_BROKER_EPOCH."""

    @abstractmethod
    def on_update_metadata(self, request: UpdateMetadata, on_done: OnDone[None]) -> None:
        """Shows the metadata to its clients; refuses as `on_leader_and_isr`."""

    @abstractmethod
    def on_stop_replica(self, request: StopReplica, on_done: OnDone[ReplicaErrors]) -> None:
        """Gives replicas up; refuses as `on_leader_and_isr`."""

    @abstractmethod
    def on_alter_partition(
        self, request: AlterPartition, on_done: OnDone[list[PartitionImage | BrokerError]]
    ) -> None:
        """Stores new in-sync replicas; answers NOT_CONTROLLER or STALE_BROKER_EPOCH for the whole
        request, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA and others for a
        partition."""

    @abstractmethod
    def on_controlled_shutdown(
        self, broker_id: int, broker_epoch: int, on_done: OnDone[Sequence[TopicPartition]]
    ) -> None:
        """Moves leaderships away from a stopping broker; answers the partitions that it still
        leads."""
