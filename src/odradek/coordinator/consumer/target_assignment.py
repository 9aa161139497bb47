"""The target assignment of a group: the partitions that the assignor gives each member."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from odradek.coordinator.assignors import ASSIGNORS, AssignmentSpec, MemberSpec, Partitions
from odradek.coordinator.consumer.member import ConsumerMember
from odradek.coordinator.consumer.subscriptions import Expressions, topic_names_of
from odradek.metadata.image import MetadataImage, TopicImage


def compute_target(
    assignor_name: str,
    members: Iterable[ConsumerMember],
    expressions: Expressions,
    targets: Mapping[str, Partitions],
    image: MetadataImage,
) -> dict[str, Partitions]:
    """The partitions of each member. Topics that do not exist have none."""
    specs: dict[str, MemberSpec] = {}
    counts: dict[UUID, int] = {}
    known: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
    for member in members:
        subscription = member.subscription
        topic_ids = known.get(subscription)
        if topic_ids is None:
            found = readable_topics(member, expressions, image)
            counts.update({topic.topic_id: len(topic.partitions) for topic in found})
            topic_ids = known[subscription] = frozenset([topic.topic_id for topic in found])
        before = targets.get(member.member_id, {})
        specs[member.member_id] = MemberSpec(member.instance_id, topic_ids, before)
    return ASSIGNORS[assignor_name].assign(AssignmentSpec(specs, counts))


def readable_topics(
    member: ConsumerMember, expressions: Expressions, image: MetadataImage
) -> list[TopicImage]:
    """The topics that a member reads and that exist."""
    topics = [image.topic(name) for name in topic_names_of(member, expressions)]
    return [topic for topic in topics if topic is not None]
