"""Decides whether a topic may be created or grown, and plans it.

Pure: an image and a request in, a plan or a `BrokerError` out. Nothing is stored here.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.config import BrokerConfig, ConfigError, LogConfig
from odradek.controller.results import UNKNOWN_COUNT, CreatableTopic, PartitionsRequest
from odradek.controller.topics.names import check_topic_name
from odradek.controller.topics.placement import PlacementBroker, place_replicas
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.image import MetadataImage, TopicImage
from odradek.metadata.store import Assignment, NewPartitions, NewTopic
from odradek.model import CLUSTER_METADATA_TOPIC

MAX_PARTITIONS: Final = 100_000
"""The most partitions that one topic is given: a typing error must not exhaust the disk."""
MOST_PARTITIONS: Final = 10_000
"""How many partitions one request may create, as with Kafka's controller."""
MOST_RECORDS: Final = 10_000
"""How many records Kafka's controller writes for one request: each topic, each partition and each
setting is one."""


@dataclass(frozen=True, slots=True)
class TopicPlanner:
    """Plans topics for the brokers of an image. `random_below(n)` answers 0 <= r < n."""

    config: BrokerConfig
    random_below: Callable[[int], int]

    def plan_topic(self, image: MetadataImage, requested: CreatableTopic) -> NewTopic:
        """The topic with its replicas placed and its settings checked.

        Raises:
            BrokerError: the name, a count, the assignment or a setting is not acceptable.
        """
        check_topic_name(requested.name)
        if requested.name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {requested.name} is prohibited."
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        if requested.assignments:
            assignment = _manual_assignment(image, requested)
        else:
            assignment = self._place(image, requested)
        return NewTopic(requested.name, assignment, self.check_configs(requested.configs))

    def plan_partitions(
        self, image: MetadataImage, requested: PartitionsRequest, most: int
    ) -> NewPartitions:
        """The partitions that a topic lacks, at the `most` so many.

        Raises:
            BrokerError: the topic is unknown, would not grow, or by too many partitions, or the
                assignment is illegal.
        """
        topic = image.topic(requested.name)
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        existing = len(topic.partitions)
        _check_growth(existing, requested.count)
        added = requested.count - existing
        if added > most:
            raise too_many_partitions()
        if requested.assignments is None:
            assignment = self._place_more(image, topic, added)
        else:
            assignment = _given_assignment(image, topic, requested.assignments, added)
        return NewPartitions(topic.name, existing, assignment)

    def check_configs(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """The settings of a new topic.

        Raises:
            BrokerError: INVALID_CONFIG, one is unknown, null or has an illegal value.
        """
        settings: dict[str, str] = {}
        for name, value in configs.items():
            if value is None:
                message = f"Null value not supported for topic configs: {name}"
                raise BrokerError(ErrorCode.INVALID_CONFIG, message)
            settings[name] = value
        if settings:
            try:
                LogConfig.from_settings(settings, self.config.topic_defaults())
            except ConfigError as error:
                raise BrokerError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return settings

    def _place(self, image: MetadataImage, requested: CreatableTopic) -> Assignment:
        partitions = requested.num_partitions
        if partitions == -1:
            partitions = self.config.num_partitions
        if partitions < 1:
            message = "Number of partitions was set to an invalid non-positive value."
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, message)
        factor = requested.replication_factor
        if factor == -1:
            factor = self.config.default_replication_factor
        brokers = _placement_brokers(image)
        start, shift = self._two_random(len(brokers))
        return place_replicas(brokers, partitions, factor, start=start, shift=shift)

    def _place_more(self, image: MetadataImage, topic: TopicImage, added: int) -> Assignment:
        brokers = _placement_brokers(image)
        start, shift = self._two_random(len(brokers))
        return place_replicas(
            brokers,
            added,
            len(topic.partitions[0].replicas),
            start=start,
            shift=shift,
            first_partition=len(topic.partitions),
        )

    def _two_random(self, bound: int) -> tuple[int, int]:
        if bound == 0:
            return 0, 0
        return self.random_below(bound), self.random_below(bound)


def check_size(image: MetadataImage, topics: Sequence[CreatableTopic], default: int) -> None:
    """Checks a request to create topics as a whole; `default` is the number of partitions of a
    topic that leaves it to the broker. Topics that are named more than once are refused anyway.

    Raises:
        BrokerError: POLICY_VIOLATION, it names too many partitions, or needs too many records.
    """
    times = Counter(topic.name for topic in topics)
    counts = {
        topic.name: partitions_of(topic, default) for topic in topics if times[topic.name] == 1
    }
    if sum(counts.values()) > MOST_PARTITIONS:
        raise too_many_partitions()
    if sum(_records_of(image, topic, counts.get(topic.name, 0)) for topic in topics) > MOST_RECORDS:
        message = "Unable to perform excessively large batch operation."
        raise BrokerError(ErrorCode.POLICY_VIOLATION, message)


def _records_of(image: MetadataImage, topic: CreatableTopic, partitions: int) -> int:
    """How many records a new topic needs; 0 for one that is refused."""
    is_new = partitions > 0 and image.topic(topic.name) is None
    return 1 + len(topic.configs) + partitions if is_new else 0


def partitions_of(topic: CreatableTopic, default: int) -> int:
    """How many partitions a topic is to have; 0 if none can have so few."""
    count = len(topic.assignments) or topic.num_partitions
    return default if count == UNKNOWN_COUNT else max(count, 0)


def too_many_partitions() -> BrokerError:
    """The error of a request for more than `MOST_PARTITIONS`."""
    message = "Excessively large number of partitions per request."
    return BrokerError(ErrorCode.POLICY_VIOLATION, message)


def _manual_assignment(image: MetadataImage, requested: CreatableTopic) -> Assignment:
    if requested.num_partitions != -1 or requested.replication_factor != -1:
        message = (
            "Both the partition count and replication factor must be -1 (or unset) "
            "when replicas are assigned by hand."
        )
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    ordered = sorted(requested.assignments, key=lambda each: each[0])
    if [index for index, _ in ordered] != list(range(len(ordered))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assignment = tuple(tuple(replicas) for _, replicas in ordered)
    _check_replicas(image, assignment, len(assignment[0]))
    return assignment


def _given_assignment(
    image: MetadataImage, topic: TopicImage, assignments: Sequence[Sequence[int]], added: int
) -> Assignment:
    if len(assignments) != added:
        message = f"Increasing the number of partitions by {added} but {len(assignments)} "
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message + "assignments provided.")
    assignment = tuple(tuple(replicas) for replicas in assignments)
    _check_replicas(image, assignment, len(topic.partitions[0].replicas))
    return assignment


def _check_replicas(image: MetadataImage, assignment: Assignment, factor: int) -> None:
    for partition, replicas in enumerate(assignment):
        reason = _fault(image, replicas, factor)
        if reason is not None:
            message = f"Inconsistent replica assignment of partition {partition}: {reason}"
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _fault(image: MetadataImage, replicas: Sequence[int], factor: int) -> str | None:
    if not replicas:
        return "it has no replicas"
    if len(set(replicas)) != len(replicas):
        return "a broker is named twice"
    if len(replicas) != factor:
        return f"it has {len(replicas)} replica(s), others have {factor}"
    unknown = [replica for replica in replicas if replica not in image.brokers]
    return f"broker {unknown[0]} is not registered" if unknown else None


def _check_growth(existing: int, count: int) -> None:
    if count == existing:
        reason = f"Topic already has {existing} partition(s)."
    elif count < existing:
        reason = (
            f"The topic currently has {existing} partition(s); {count} would not be an increase."
        )
    elif count > MAX_PARTITIONS:
        reason = f"A topic cannot have more than {MAX_PARTITIONS} partitions."
    else:
        return
    raise BrokerError(ErrorCode.INVALID_PARTITIONS, reason)


def _placement_brokers(image: MetadataImage) -> list[PlacementBroker]:
    return [PlacementBroker(broker.id, broker.rack) for broker in image.brokers.values()]
