"""The services that every releaser of a broker works with."""

from collections.abc import Callable
from dataclasses import dataclass

from odradek.clock import Clock
from odradek.errors import BrokerError
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.schedule.sender import RecordSender
from odradek.timer import Timer

NextProducerId = Callable[[Callable[[int | BrokerError], None]], None]


@dataclass(frozen=True, slots=True)
class ReleaseServices:
    """See the module."""

    clock: Clock
    timer: Timer
    replicas: ReplicaManager
    sender: RecordSender
    next_producer_id: NextProducerId
    partition_for_key: Callable[[bytes, int], int]
