"""Changes the kind of a group with members, as `group.consumer.migration.policy` allows (KIP-848).

Upgrade: a member of the consumer protocol joins a classic group of consumers. The generation
becomes the epoch, assignments are taken over, and the members keep their protocol in a consumer
group (`classic_members`). Downgrade: the last member of the consumer protocol goes, or a classic
process takes its place; the remaining members become a classic group, whose generation is the
group's epoch, and rebalance.
"""

from odradek.config.broker import BrokerConfig
from odradek.coordinator.classic.group import ClassicGroup
from odradek.coordinator.classic.member import ClassicMember
from odradek.coordinator.consumer.embedded_protocol import (
    by_topic_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
from odradek.coordinator.consumer.group import ConsumerGroup
from odradek.coordinator.consumer.member import (
    ConsumerMember,
    to_topic_partitions,
)
from odradek.coordinator.group import CONSUMER_PROTOCOL_TYPE
from odradek.coordinator.modern.member_state import MemberState
from odradek.coordinator.modern.partitions import NO_PARTITIONS
from odradek.coordinator.modern.topic_metadata import topics_hash
from odradek.coordinator.records.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.coordinator.records.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadataValue,
)
from odradek.coordinator.records.record import CoordinatorRecord
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage


def may_upgrade(group: ClassicGroup, config: BrokerConfig) -> bool:
    """Whether a member of the consumer protocol may join the classic group."""
    return (
        config["group.consumer.migration.policy"].lower() in ("upgrade", "bidirectional")
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.members) < config["group.consumer.max.size"]
    )


def may_downgrade(members: list[ConsumerMember], config: BrokerConfig) -> bool:
    """Whether a group with only these members left becomes a classic one."""
    return (
        config["group.consumer.migration.policy"].lower() in ("downgrade", "bidirectional")
        and bool(members)
        and all(member.is_classic for member in members)
        and len(members) <= config["group.max.size"]
    )


def upgrade_records(group: ClassicGroup, image: MetadataImage) -> list[CoordinatorRecord]:
    """The records that turn a classic group into a consumer group.

    Raises:
        BrokerError: INCONSISTENT_GROUP_PROTOCOL, a subscription or assignment is malformed, or
            an assignor is in use whose own data would be lost.
    """
    group_id, epoch = group.group_id, group.generation_id
    members = [_consumer_member(group, each, image) for each in group.members.values()]
    names = {name for member in members for name in member.subscribed_topic_names}
    pairs: list[tuple[object, object]] = [
        (ConsumerGroupMemberMetadataKey(group_id, each.member_id), each.metadata_value())
        for each in members
    ]
    group_value = ConsumerGroupMetadataValue(epoch, topics_hash(names, image))
    pairs.append((ConsumerGroupMetadataKey(group_id), group_value))
    for member in members:
        target = ConsumerGroupTargetAssignmentMemberValue(to_topic_partitions(member.assigned))
        key = ConsumerGroupTargetAssignmentMemberKey(group_id, member.member_id)
        pairs.append((key, target))
    target_epoch = ConsumerGroupTargetAssignmentMetadataValue(epoch)
    pairs.append((ConsumerGroupTargetAssignmentMetadataKey(group_id), target_epoch))
    pairs += [
        (ConsumerGroupCurrentMemberAssignmentKey(group_id, each.member_id), each.assignment_value())
        for each in members
    ]
    records = [CoordinatorRecord(key, value) for key, value in pairs]
    return [*group.tombstones(), *records]


def _consumer_member(
    group: ClassicGroup, member: ClassicMember, image: MetadataImage
) -> ConsumerMember:
    protocol_name = group.protocol_name or member.protocols[0][0]
    subscription = read_subscription(member.metadata(protocol_name))
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise BrokerError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The assignor {protocol_name} of group {group.group_id} keeps data of its own in "
            "assignments, which a consumer group would lose; use one that does not, then upgrade.",
        )
    assigned = by_topic_id(assignment.partitions, image)
    upgraded = ConsumerMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        "",
        member.rebalance_timeout_ms,
        None,
        ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        group.generation_id,
        group.generation_id,
    )
    return upgraded.at_epoch(group.generation_id, MemberState.STABLE, assigned, NO_PARTITIONS)


def downgrade_records(
    group: ConsumerGroup, members: list[ConsumerMember], image: MetadataImage, now_ms: int
) -> list[CoordinatorRecord]:
    """The records that turn a consumer group into a classic one with these members."""
    name = common_protocol(members)
    value = GroupMetadataValue(
        CONSUMER_PROTOCOL_TYPE,
        group.epoch,
        name,
        members[0].member_id,
        now_ms,
        tuple(_classic_value(member, name, image) for member in members),
    )
    return [*group.tombstones(), CoordinatorRecord(GroupMetadataKey(group.group_id), value)]


def common_protocol(members: list[ConsumerMember]) -> str:
    """Returns a protocol that all members support; joins ensure that there is one."""
    spoken = [dict(each.classic.supported_protocols) for each in members if each.classic]
    return next(name for name in spoken[0] if all(name in each for each in spoken))


def _classic_value(
    member: ConsumerMember, protocol_name: str, image: MetadataImage
) -> MemberMetadataValue:
    assert member.classic is not None, f"{member.member_id} speaks the consumer protocol"
    subscription = dict(member.classic.supported_protocols)[protocol_name]
    version = read_subscription(subscription).version
    return MemberMetadataValue(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        subscription,
        write_assignment(version, member.assigned, image),
    )
