"""`Painter`: looks at the brokers that run, and says what it has seen as a `Picture`.

On their loop, without waiting: all of a picture is of one moment. A group is seen by the broker
that coordinates it, a partition by the one that leads it; where that is another process, what is
known here must do.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.group import Group
from odradek.coordinator.records.transaction_records import TransactionValue
from odradek.errors import BrokerError
from odradek.metadata.image import MetadataImage, PartitionImage
from odradek.model import NO_TIMESTAMP, TopicPartition
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.protocol.primitives import ProtocolError
from odradek.replication.fetch import ISOLATION_TXN_COMMITTED
from odradek.server.explain.picture import (
    GroupPicture,
    MemberPicture,
    OpenTransaction,
    PartitionPicture,
    Picture,
    Question,
    Reading,
    TransactionPicture,
)
from odradek.suggestions import did_you_mean

if TYPE_CHECKING:
    from odradek.coordinator.group_shard import GroupShard
    from odradek.replication.partition import Partition
    from odradek.server.broker import BrokerServer

_PREPARING: Final = "PreparingRebalance"
_COMPLETING: Final = "CompletingRebalance"


class Painter:
    """Looks at `servers`; `faults` and `errors` are what else is known of them, in words."""

    def __init__(
        self,
        servers: "Sequence[BrokerServer]",
        faults: Sequence[str] = (),
        errors: Sequence[str] = (),
    ) -> None:
        self._servers: Final = servers
        self._faults: Final = tuple(faults)
        self._errors: Final = tuple(errors)
        self._image: Final[MetadataImage] = servers[0].metadata.image
        self._readings: Final = self._find_readings()

    def paint(self, question: Question) -> Picture:
        """The picture that a question is about."""
        of_kind = {
            "group": self._of_group,
            "topic": self._of_topic,
            "client": self._of_client,
            "transaction": self._of_transaction,
        }
        return of_kind[question.kind](
            Picture(
                question,
                is_paused=any(each.sockets.is_paused for each in self._servers),
                faults=self._faults,
                errors=tuple(each for each in self._errors if question.name in each),
            )
        )

    # --- the four kinds -------------------------------------------------------------------------

    def _of_group(self, picture: Picture) -> Picture:
        name = picture.question.name
        for shard, group in self._groups():
            if group.group_id == name:
                painted = self._group(shard, group)
                clients = {each.client_id for each in painted.members}
                return picture._replace(groups=(painted,), throttled=self._throttled(clients))
        for shard in self._group_shards():
            if shard.offset_store.has_group(name):
                painted = GroupPicture(
                    name, "", "Empty", None, (), (), self._committed(shard, name)
                )
                return picture._replace(groups=(painted,))
        known = [group.group_id for _, group in self._groups()]
        missing = f"there is no group {name}{did_you_mean(name, known)}"
        return picture._replace(missing=missing)

    def _of_topic(self, picture: Picture) -> Picture:
        name = picture.question.name
        topic = self._image.topic(name)
        if topic is None:
            missing = f"there is no topic {name}{did_you_mean(name, self._image.topics)}"
            return picture._replace(missing=missing)
        partitions = tuple(
            self._partition(TopicPartition(name, each.partition), each, None)
            for each in topic.partitions
        )
        groups = []
        for shard, group in self._groups():
            if group.is_subscribed_to(name) or name in shard.offset_store.of_group(group.group_id):
                painted = self._group(shard, group)
                own = tuple(each for each in painted.partitions if each.where.topic == name)
                groups.append(painted._replace(partitions=own))
        return picture._replace(partitions=partitions, groups=tuple(groups))

    def _of_client(self, picture: Picture) -> Picture:
        name = picture.question.name
        groups = []
        for shard, group in self._groups():
            painted = self._group(shard, group)
            if any(each.client_id == name for each in painted.members):
                groups.append(painted)
        readings = tuple(
            (where, reading)
            for where, found in self._readings.items()
            for reading in found
            if reading.client_id == name
        )
        missing = ""
        throttled = self._throttled({name})
        if not groups and not readings and not throttled and not picture.errors:
            missing = (
                f"no fetch of a client {name} waits, and it is in no group: it is not connected, "
                "or busy with something else"
            )
        return picture._replace(
            groups=tuple(groups), readings=readings, throttled=throttled, missing=missing
        )

    def _of_transaction(self, picture: Picture) -> Picture:
        name = picture.question.name
        known = dict(self._transactions())
        value = known.get(name)
        if value is None:
            missing = f"there is no transactional id {name}{did_you_mean(name, known)}"
            return picture._replace(missing=missing)
        partitions = tuple(sorted(value.partitions or ()))
        leaderless = tuple(
            where
            for where in partitions
            if (found := self._image.partition(where)) is None or found.leader < 0
        )
        painted = TransactionPicture(
            name,
            value.state.name,
            value.producer_id,
            value.producer_epoch,
            value.timeout_ms,
            self._since_wall(value),
            partitions,
            leaderless,
        )
        return picture._replace(transaction=painted)

    # --- groups ---------------------------------------------------------------------------------

    def _group_shards(self) -> "Iterator[GroupShard]":
        for server in self._servers:
            yield from server.coordinators.groups.coordinator.runtime.shards()

    def _groups(self) -> "Iterator[tuple[GroupShard, Group]]":
        for shard in self._group_shards():
            for group in shard.registry:
                yield shard, group

    def _group(self, shard: "GroupShard", group: Group) -> GroupPicture:
        members: tuple[MemberPicture, ...] = ()
        since_ms: int | None = None
        if isinstance(group, ClassicGroup):
            members = tuple(_classic_members(group))
            if group.state_timestamp_ms != NO_TIMESTAMP:
                since_ms = self._servers[0].clock.wall_ms() - group.state_timestamp_ms
        elif isinstance(group, ConsumerGroup):
            members = tuple(self._consumer_members(shard, group))
        return GroupPicture(
            group.group_id,
            str(group.type),
            group.state_name,
            since_ms,
            members,
            tuple(
                sorted(each for each in group.subscribed_topics if self._image.topic(each) is None)
            ),
            self._committed(shard, group.group_id, group),
        )

    def _committed(
        self, shard: "GroupShard", group_id: str, group: Group | None = None
    ) -> tuple[PartitionPicture, ...]:
        """The partitions that a group has committed, or subscribes to."""
        found = []
        committed = shard.offset_store.of_group(group_id)
        for name, topic in sorted(self._image.topics.items()):
            offsets = committed.get(name, {})
            is_read = group is not None and not topic.is_internal and group.is_subscribed_to(name)
            for image in topic.partitions:
                offset = offsets.get(image.partition)
                if is_read or offset is not None:
                    where = TopicPartition(name, image.partition)
                    at = None if offset is None else offset.offset
                    found.append(self._partition(where, image, at))
        return tuple(found)

    def _consumer_members(
        self, shard: "GroupShard", group: ConsumerGroup
    ) -> Iterator[MemberPicture]:
        described = shard.consumer.describe(group.group_id)
        for each in described.members:
            assigned = set(self._named(each.assignment))
            target = set(self._named(each.target_assignment))
            yield MemberPicture(
                each.member_id,
                each.client_id,
                each.client_host,
                tuple(sorted(assigned)),
                tuple(sorted(assigned - target)),
                False,
            )

    def _named(self, partitions: Mapping[UUID, Iterable[int]]) -> Iterator[TopicPartition]:
        for topic_id, indexes in partitions.items():
            topic = self._image.topic_by_id(topic_id)
            if topic is not None:
                for index in indexes:
                    yield TopicPartition(topic.name, index)

    # --- partitions -----------------------------------------------------------------------------

    def _partition(
        self, where: TopicPartition, image: PartitionImage, committed: int | None
    ) -> PartitionPicture:
        readings = tuple(self._readings.get(where, ()))
        replicas, isr = len(image.replicas), len(image.isr)
        found = self._leader(where)
        if found is None or found.log is None or found.in_sync_replicas is None:
            # Led elsewhere: as in the metadata.
            leader = image.leader
            return PartitionPicture(
                where, leader, replicas, isr, 0, 0, 0, 0, 0, committed, (), readings
            )
        log = found.log
        least = found.in_sync_replicas.effective_min_in_sync(log.config.min_insync_replicas)
        return PartitionPicture(
            where,
            found.leader_id,
            replicas,
            found.isr_size,
            least,
            log.log_start_offset,
            log.high_watermark,
            log.log_end_offset,
            log.last_stable_offset,
            committed,
            tuple(self._open_transactions(found)),
            readings,
        )

    def _leader(self, where: TopicPartition) -> "Partition | None":
        for server in self._servers:
            found = server.replicas.partitions.find(where)
            if found is not None and found.is_leader:
                return found
        return None

    def _open_transactions(self, partition: "Partition") -> Iterator[OpenTransaction]:
        """The open transactions of a partition, the one that began first before the others."""
        assert partition.log is not None, f"{partition.topic_partition} is led here"
        open_here = [
            each for each in partition.log.producers.active() if each.txn_first_offset >= 0
        ]
        if not open_here:
            return
        ids = {value.producer_id: (name, value) for name, value in self._transactions()}
        for each in sorted(open_here, key=lambda one: one.txn_first_offset):
            name, value = ids.get(each.producer_id, ("", None))
            open_ms = self._servers[0].clock.wall_ms() - each.last_timestamp
            if value is not None:
                open_ms = self._since_wall(value)
            yield OpenTransaction(each.producer_id, name, each.txn_first_offset, max(open_ms, 0))

    def _find_readings(self) -> dict[TopicPartition, list[Reading]]:
        found: dict[TopicPartition, list[Reading]] = {}
        for server in self._servers:
            now_ms = server.timer.now_ms
            for client_id, fetch in server.parked_fetches.waiting():
                if fetch.params.is_from_follower:
                    continue
                waited_ms = now_ms - (fetch.expiration_ms - fetch.delay_ms)
                for info in fetch.infos:
                    reading = Reading(
                        client_id,
                        info.fetch_offset,
                        fetch.params.min_bytes,
                        fetch.missing(),
                        waited_ms,
                        fetch.params.isolation == ISOLATION_TXN_COMMITTED,
                    )
                    found.setdefault(info.topic_partition, []).append(reading)
        return found

    # --- the rest -------------------------------------------------------------------------------

    def _transactions(self) -> Iterator[tuple[str, TransactionValue]]:
        for server in self._servers:
            for shard in server.coordinators.transactions.coordinator.shards():
                yield from shard.transactions.items()

    def _since_wall(self, value: TransactionValue) -> int:
        since_ms = value.start_timestamp_ms
        if since_ms == NO_TIMESTAMP:
            since_ms = value.last_update_timestamp_ms
        return max(self._servers[0].clock.wall_ms() - since_ms, 0)

    def _throttled(self, clients: set[str]) -> tuple[tuple[str, int], ...]:
        return tuple(
            (client_id, left_ms)
            for server in self._servers
            for client_id, left_ms in server.throttled_clients()
            if client_id in clients
        )


def _classic_members(group: ClassicGroup) -> Iterator[MemberPicture]:
    for each in group.members.values():
        is_awaited = (group.state_name == _PREPARING and each.awaiting_join is None) or (
            group.state_name == _COMPLETING and each.member_id in group.pending_sync
        )
        try:
            partitions = tuple(sorted(decode_assignment(each.assignment).partitions))
        except (ProtocolError, BrokerError):
            partitions = ()  # of another kind of client, or not assigned yet
        yield MemberPicture(
            each.member_id, each.client_id, each.client_host, partitions, (), is_awaited
        )
