"""`SocketControlPlane`: the way of a controller to its brokers, and of brokers to their controller.

One connection to each broker and one request on it at a time, so that commands arrive in the order
in which they were given. The controller's requests must not be lost while the broker lives: a
request without a response is sent again, before all later ones, until the broker's session is over.
A broker's requests to a controller are not: the caller repeats them, perhaps to another controller.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from odradek.background import do_each
from odradek.client.apis import ClientApi
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.control import (
    AlterPartition,
    ControlPlane,
    LeaderAndIsr,
    ReplicaErrors,
    StopReplica,
    UpdateMetadata,
)
from odradek.metadata.image import BrokerRegistration, PartitionImage
from odradek.metadata.store import OnDone
from odradek.model import TopicPartition
from odradek.server.peers import control_requests as requests
from odradek.server.peers.broker_channel import BrokerChannel
from odradek.timer import Timer, TimerTask

T = TypeVar("T")
RETRY_BACKOFF_MS: Final = 100


class _Command(NamedTuple):
    """A request on its way; `read` makes of the answer what `on_done` wants to hear."""

    api: ClientApi
    fields: requests.Fields
    read: Callable[[Any], Any]
    on_done: Callable[[Any], None]
    must_arrive: bool


class _Way:
    """The connection to one registration of a broker, and what is to be sent over it in order."""

    def __init__(
        self,
        channel: BrokerChannel,
        timer: Timer,
        is_alive: Callable[[], bool],
    ) -> None:
        self._channel: Final = channel
        self._is_alive: Final = is_alive
        self._timer: Final = timer
        self._waiting: Final[deque[_Command]] = deque()
        self._retry: Final = TimerTask(RETRY_BACKOFF_MS, self._send_first)
        self._closed = False

    def send(self, command: _Command) -> None:
        self._waiting.append(command)
        if len(self._waiting) == 1:
            self._send_first()

    def close(self) -> None:
        """Closes the channel; every caller is answered."""
        self._closed = True
        self._retry.cancel()
        self._channel.close()
        waiting = list(self._waiting)
        self._waiting.clear()
        do_each(waiting, lambda each: each.on_done(BrokerError(ErrorCode.NETWORK_EXCEPTION)))

    def _send_first(self) -> None:
        command = self._waiting[0]
        self._channel.ask(command.api, command.fields, self._on_answered)

    def _on_answered(self, answer: Any) -> None:
        if self._closed:
            return
        command = self._waiting[0]
        if not isinstance(answer, BrokerError):
            outcome = command.read(answer)
        elif command.must_arrive and self._is_alive():
            self._timer.add(self._retry)
            return
        else:
            outcome = answer
        self._waiting.popleft()
        # Its consequences may be sent over the same channel, behind waiting requests.
        if self._waiting:
            self._send_first()
        command.on_done(outcome)


class SocketControlPlane(ControlPlane):
    """Sends over channels that `open_channel` makes; `metadata` says which brokers live."""

    def __init__(
        self,
        metadata: MetadataCache,
        timer: Timer,
        listener_name: str,
        open_channel: Callable[[BrokerRegistration], BrokerChannel],
    ) -> None:
        """`listener_name` is the listener that brokers use among themselves."""
        self._metadata: Final = metadata
        self._timer: Final = timer
        self._listener_name: Final = listener_name
        self._open_channel: Final = open_channel
        self._ways: Final[dict[int, tuple[BrokerRegistration, _Way]]] = {}

    def leader_and_isr(
        self, broker: BrokerRegistration, request: LeaderAndIsr, on_done: OnDone[ReplicaErrors]
    ) -> None:
        """See `ControlPlane`."""
        fields = requests.leader_and_isr_fields(request, self._listener_name)
        read = partial(requests.leader_and_isr_outcome, request)
        self._command(broker, requests.LEADER_AND_ISR, fields, read, on_done)

    def update_metadata(
        self, broker: BrokerRegistration, request: UpdateMetadata, on_done: OnDone[None]
    ) -> None:
        """See `ControlPlane`."""
        fields = requests.update_metadata_fields(request)
        read = requests.update_metadata_outcome
        self._command(broker, requests.UPDATE_METADATA, fields, read, on_done)

    def stop_replica(
        self, broker: BrokerRegistration, request: StopReplica, on_done: OnDone[ReplicaErrors]
    ) -> None:
        """See `ControlPlane`."""
        fields = requests.stop_replica_fields(request)
        read = requests.stop_replica_outcome
        self._command(broker, requests.STOP_REPLICA, fields, read, on_done)

    def alter_partition(
        self,
        controller: BrokerRegistration,
        request: AlterPartition,
        on_done: OnDone[list[PartitionImage | BrokerError]],
    ) -> None:
        """See `ControlPlane`."""
        known = self._metadata.image.topics
        names = {change.topic_partition.topic for change in request.changes}
        topic_ids = {name: known[name].topic_id for name in names if name in known}
        fields = requests.alter_partition_fields(request, topic_ids)
        read = partial(requests.alter_partition_outcome, request, topic_ids)
        self._ask(controller, requests.ALTER_PARTITION, fields, read, on_done)

    def controlled_shutdown(
        self,
        controller: BrokerRegistration,
        broker_id: int,
        broker_epoch: int,
        on_done: OnDone[Sequence[TopicPartition]],
    ) -> None:
        """See `ControlPlane`."""
        fields = requests.controlled_shutdown_fields(broker_id, broker_epoch)
        read = requests.controlled_shutdown_outcome
        self._ask(controller, requests.CONTROLLED_SHUTDOWN, fields, read, on_done)

    def close(self) -> None:
        """See `ControlPlane`."""
        ways = [way for _, way in self._ways.values()]
        self._ways.clear()
        do_each(ways, lambda way: way.close())

    def _command(
        self,
        broker: BrokerRegistration,
        api: ClientApi,
        fields: requests.Fields,
        read: Callable[[Any], T | BrokerError],
        on_done: OnDone[T],
    ) -> None:
        self._way_to(broker).send(_Command(api, fields, read, on_done, must_arrive=True))

    def _ask(
        self,
        controller: BrokerRegistration,
        api: ClientApi,
        fields: requests.Fields,
        read: Callable[[Any], T | BrokerError],
        on_done: OnDone[T],
    ) -> None:
        self._way_to(controller).send(_Command(api, fields, read, on_done, must_arrive=False))

    def _way_to(self, broker: BrokerRegistration) -> _Way:
        """A broker that has registered again gets a new channel."""
        known = self._ways.get(broker.id)
        if known is not None:
            registration, way = known
            if (registration.epoch, registration.endpoints) == (broker.epoch, broker.endpoints):
                return way
        fresh = _Way(self._open_channel(broker), self._timer, lambda: self._is_alive(broker))
        self._ways[broker.id] = broker, fresh
        if known is not None:
            known[1].close()
        return fresh

    def _is_alive(self, broker: BrokerRegistration) -> bool:
        """Whether the session in which the broker got a request still exists."""
        living = self._metadata.image.brokers.get(broker.id)
        return living is not None and living.epoch == broker.epoch
