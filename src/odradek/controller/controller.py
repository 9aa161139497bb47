"""`Controller`: carries out what administrators and clients ask of topics and settings.

A thin delegate. Plans are made by pure modules (`topics.plans`, `configs.changes`,
`replicas.elections`), kept by the metadata store, waited for in a purgatory; what stands here is
the order of these, and the answer per topic or resource. Every operation answers by `on_done`
exactly once, with results in the order of the request.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from odradek.config import BrokerConfig
from odradek.config.topic import LogConfig
from odradek.controller.answers import (
    all_partitions,
    deleted,
    election_result,
    identity_of,
    late_topic,
    named_result,
    not_deleted,
    one_each,
    plan_each,
    resource_result,
    was_needed,
)
from odradek.controller.change_queue import ChangeQueue, Release
from odradek.controller.configs.broker_loggers import alter_loggers
from odradek.controller.configs.changes import ConfigPlanner, check_steps
from odradek.controller.configs.dynamic import DynamicBrokerConfig
from odradek.controller.configs.entries import ConfigDescriber, check_broker
from odradek.controller.delayed_operations import (
    BrokerKey,
    DelayedCreateTopics,
    DelayedElectLeader,
    DelayedMetadata,
    TopicKey,
)
from odradek.controller.feature_plans import plan_features
from odradek.controller.replicas.elections import (
    plan_balance,
    plan_controlled_shutdown,
    plan_election,
)
from odradek.controller.replicas.reassigner import Reassigner
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.controller.results import (
    ConfigAlteration,
    ConfigEntry,
    CreatableTopic,
    CreateTopicResult,
    DeleteTopicResult,
    ElectionResult,
    ElectionType,
    FeatureUpdate,
    NamedResult,
    PartitionsRequest,
    ResourceResult,
    TopicReference,
)
from odradek.controller.topics.internal import wished_topic
from odradek.controller.topics.names import collision_key, has_collision_chars
from odradek.controller.topics.plans import TopicPlanner
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import (
    ConfigResource,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from odradek.metadata.store import (
    ListenerStage,
    MetadataStore,
    NewPartitions,
    NewTopic,
    OnDone,
    PartitionChange,
)
from odradek.model import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory

logger = logging.getLogger(__name__)

ConfigChange: TypeAlias = dict[str, str | None]
CreateTopicPolicy: TypeAlias = Callable[[CreatableTopic], None]
"""May refuse a topic by raising BrokerError(POLICY_VIOLATION)."""


class Controller:
    """Creates, deletes and grows topics, changes settings, elects leaders.

    `purgatory` holds what waits for leaders; `random_below(n)` answers 0 <= r < n.
    """

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        config: BrokerConfig,
        broker_id: int,
        purgatory: DelayedOperationPurgatory,
        random_below: Callable[[int], int],
        create_topic_policy: CreateTopicPolicy | None = None,
    ) -> None:
        self._store: Final = store
        self._broker_id: Final = broker_id
        self._cache: Final = cache
        self._config: Final = config
        self._describer: Final = ConfigDescriber(config, broker_id)
        self._purgatory: Final = purgatory
        self._topics: Final = TopicPlanner(config, random_below)
        self._configs: Final = ConfigPlanner(config, broker_id)
        self._create_topic_policy: Final = create_topic_policy
        self._changes: Final = ChangeQueue()
        self.reassigner: Final = Reassigner(store, cache)
        self._collisions: dict[str, str] = {}
        store.subscribe(ListenerStage.SETTINGS, DynamicBrokerConfig(config, broker_id).apply_delta)
        ReplicationControl(store, broker_id, self._may_elect_unclean)
        cache.on_published(self._on_published)
        cache.on_told(self._on_told)
        self._note_topics(cache.image.topics.values())

    def create_topics(
        self,
        topics: Sequence[CreatableTopic],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Creates topics, and answers when their partitions have leaders or time is over."""

        def begin(release: Release) -> None:
            plans = self._plan_topics(topics)
            if validate_only or not any(isinstance(plan, NewTopic) for plan in plans):
                on_done([self._planned(*pair) for pair in zip(topics, plans, strict=True)])
                release()
            else:
                self._create_planned(topics, plans, timeout_ms, on_done, release)

        self._changes.submit(begin)

    def _create_planned(
        self,
        topics: Sequence[CreatableTopic],
        plans: Sequence[NewTopic | BrokerError],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
        release: Release,
    ) -> None:
        accepted = [plan for plan in plans if isinstance(plan, NewTopic)]

        def on_created(outcome: list[TopicImage | BrokerError] | BrokerError) -> None:
            outcomes = iter(one_each(outcome, len(accepted)))
            results = [
                self._created(wish, plan, next(outcomes) if isinstance(plan, NewTopic) else plan)
                for wish, plan in zip(topics, plans, strict=True)
            ]
            try:
                self._await_leaders(results, timeout_ms, on_done)
            finally:
                release()

        self._store.create_topics(accepted, on_created)

    def await_metadata(self, timeout_ms: int, on_done: Callable[[], None]) -> None:
        """Calls `on_done` once this broker was told what there is, or when the time is over."""
        operation = DelayedMetadata(timeout_ms, self._cache, on_done)
        self._purgatory.try_complete_else_watch(operation, [BrokerKey(self._broker_id)])

    def auto_create_topics(
        self,
        names: Iterable[str],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
    ) -> None:
        """Creates topics that a client asked for and that do not exist, with the broker's
        defaults, internal ones in their own shape. Whether it may is the caller's check."""
        wishes = [wished_topic(self._config, name) for name in dict.fromkeys(names)]
        self.create_topics(wishes, timeout_ms, on_done)

    def delete_topics(
        self,
        topics: Sequence[TopicReference],
        on_done: Callable[[list[DeleteTopicResult]], None],
    ) -> None:
        """Deletes topics, given by name or id."""
        found = self._find_topics(topics)
        accepted = [topic for topic in found if isinstance(topic, TopicImage)]

        def on_deleted(outcome: list[TopicImage | BrokerError] | BrokerError) -> None:
            outcomes = iter(one_each(outcome, len(accepted)))
            on_done(
                [
                    deleted(reference, topic, next(outcomes))
                    if isinstance(topic, TopicImage)
                    else not_deleted(reference, topic)
                    for reference, topic in zip(topics, found, strict=True)
                ]
            )

        if accepted:
            self._store.delete_topics([topic.topic_id for topic in accepted], on_deleted)
        else:
            on_deleted([])

    def create_partitions(
        self,
        topics: Sequence[PartitionsRequest],
        timeout_ms: int,
        on_done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Adds partitions to topics, and answers when they have leaders or time is over."""
        plans = self._plan_partitions(topics)
        accepted = [plan for plan in plans if isinstance(plan, NewPartitions)]
        names = [topic.name for topic in topics]
        if validate_only or not accepted:
            on_done([named_result(name, plan) for name, plan in zip(names, plans, strict=True)])
            return

        def on_created(outcome: list[TopicImage | BrokerError] | BrokerError) -> None:
            outcomes = iter(one_each(outcome, len(accepted)))
            results = [
                named_result(name, next(outcomes) if isinstance(plan, NewPartitions) else plan)
                for name, plan in zip(names, plans, strict=True)
            ]
            self._await_partitions(results, timeout_ms, on_done)

        self._store.create_partitions(accepted, on_created)

    def describe_configs(
        self, resource: ConfigResource, names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """The settings of a resource; all of them without `names`.

        Raises:
            BrokerError: there is no such resource, or this broker cannot answer for it.
        """
        return self._describer.describe(self._cache.image, resource, names)

    def alter_configs(
        self,
        resources: Sequence[tuple[ConfigResource, Sequence[tuple[str, str | None]]]],
        on_done: Callable[[list[ResourceResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replaces all settings of resources; what is left out goes back to its default."""
        named = [resource for resource, _ in resources]

        def plan() -> list[ConfigChange | BrokerError]:
            image = self._cache.image
            return plan_each(
                resources,
                lambda item: self._configs.plan_replacement(image, *item),
                lambda item: item[0],
            )

        self._changes.submit(partial(self._store_configs, named, plan, on_done, validate_only))

    def incremental_alter_configs(
        self,
        resources: Sequence[tuple[ConfigResource, Sequence[ConfigAlteration]]],
        on_done: Callable[[list[ResourceResult]], None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets, deletes, and edits the lists of single settings."""
        named = [resource for resource, _ in resources]

        def plan() -> list[ConfigChange | BrokerError]:
            image = self._cache.image
            return plan_each(
                resources,
                lambda item: self._plan_alterations(image, *item, validate_only=validate_only),
                lambda item: item[0],
            )

        self._changes.submit(partial(self._store_configs, named, plan, on_done, validate_only))

    def _plan_alterations(
        self,
        image: MetadataImage,
        resource: ConfigResource,
        steps: Sequence[ConfigAlteration],
        *,
        validate_only: bool,
    ) -> ConfigChange:
        """Levels of loggers are changed on the way: they live in the process, nowhere else."""
        if resource.type is not ResourceType.BROKER_LOGGER:
            return self._configs.plan_alterations(image, resource, steps)
        check_steps(steps)
        check_broker(resource, self._broker_id)
        alter_loggers(steps, validate_only=validate_only)
        return {}

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        on_done: OnDone[None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Finalizes features at other levels, all of them or none."""

        def begin(release: Release) -> None:
            def on_stored(outcome: BrokerError | None) -> None:
                try:
                    on_done(outcome)
                finally:
                    release()

            try:
                levels = plan_features(self._cache.image, updates)
            except BrokerError as error:
                on_stored(error)
                return
            if validate_only or not levels:
                on_stored(None)
            else:
                self._store.update_features(levels, on_stored)

        self._changes.submit(begin)

    def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        timeout_ms: int,
        on_done: Callable[[list[ElectionResult]], None],
    ) -> None:
        """Elects leaders; of all partitions (None) only those that needed it are answered."""
        image = self._cache.image
        asked = all_partitions(image) if partitions is None else list(dict.fromkeys(partitions))
        plans = plan_each(asked, lambda tp: plan_election(image, tp, election_type), lambda tp: tp)
        accepted = [plan for plan in plans if isinstance(plan, PartitionChange)]

        def on_changed(outcome: list[PartitionImage | BrokerError] | BrokerError) -> None:
            outcomes = iter(one_each(outcome, len(accepted)))
            results = [
                election_result(tp, next(outcomes) if isinstance(plan, PartitionChange) else plan)
                for tp, plan in zip(asked, plans, strict=True)
            ]
            if partitions is None:
                results = [result for result in results if was_needed(result)]
            self._await_elected(accepted, results, timeout_ms, on_done)

        if accepted:
            self._store.change_partitions(accepted, on_changed)
        else:
            on_changed([])

    def hand_over(self, on_done: OnDone[None]) -> None:
        """Gives away what this broker leads, to replicas in sync, and leaves every ISR that has
        another member: the broker is about to stop."""
        changes = plan_controlled_shutdown(self._cache.image, self._broker_id)
        if changes:
            self._store.change_partitions(changes, lambda _: on_done(None))
        else:
            on_done(None)

    def balance_leaders(self) -> None:
        """Gives leaderships back to preferred replicas, while this broker is the controller and
        where the imbalance is larger than `leader.imbalance.per.broker.percentage`."""
        image = self._cache.image
        if image.controller_id == self._broker_id:
            allowed: int = self._config["leader.imbalance.per.broker.percentage"]
            changes = plan_balance(image, allowed)
            if changes:
                logger.info("leaderships go back to preferred replicas: %d", len(changes))
                self._store.change_partitions(changes, lambda _: None)

    def _may_elect_unclean(self, image: MetadataImage, topic: str) -> bool:
        config = LogConfig.from_settings(image.topic_config(topic), self._config.topic_defaults())
        return config.unclean_leader_election_enable

    def _plan_topics(self, topics: Sequence[CreatableTopic]) -> list[NewTopic | BrokerError]:
        image = self._cache.image
        taken: dict[str, str] = {}

        def plan(wish: CreatableTopic) -> NewTopic:
            if image.topic(wish.name) is not None:
                message = f"Topic '{wish.name}' already exists."
                raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
            planned = self._topics.plan_topic(image, wish)
            self._check_collision(wish.name, taken)
            if self._create_topic_policy is not None:
                self._create_topic_policy(wish)
            taken[collision_key(wish.name)] = wish.name
            return planned

        return plan_each(topics, plan, lambda wish: wish.name)

    def _check_collision(self, name: str, taken: Mapping[str, str]) -> None:
        if not has_collision_chars(name):
            return
        key = collision_key(name)
        other = self._collisions.get(key) or taken.get(key)
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def _planned(self, wish: CreatableTopic, plan: NewTopic | BrokerError) -> CreateTopicResult:
        """The answer to a validate-only request, or to one that was refused."""
        if isinstance(plan, BrokerError):
            return CreateTopicResult.failed(wish.name, plan)
        return CreateTopicResult(
            wish.name,
            num_partitions=len(plan.assignment),
            replication_factor=len(plan.assignment[0]),
            configs=self._describer.created_entries(plan.configs),
        )

    def _created(
        self,
        wish: CreatableTopic,
        plan: NewTopic | BrokerError,
        outcome: TopicImage | BrokerError,
    ) -> CreateTopicResult:
        if isinstance(outcome, BrokerError) or isinstance(plan, BrokerError):
            assert isinstance(outcome, BrokerError), f"{wish.name} was refused and yet created"
            return CreateTopicResult.failed(wish.name, outcome)
        return CreateTopicResult(
            wish.name,
            topic_id=outcome.topic_id,
            num_partitions=len(outcome.partitions),
            replication_factor=len(outcome.partitions[0].replicas),
            configs=self._describer.created_entries(plan.configs),
        )

    def _await_leaders(
        self,
        results: list[CreateTopicResult],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
    ) -> None:
        names = [result.name for result in results if result.error_code is ErrorCode.NONE]

        def on_ready(late: frozenset[str]) -> None:
            on_done([late_topic(each) if each.name in late else each for each in results])

        self._await_topics(names, timeout_ms, on_ready)

    def _await_partitions(
        self,
        results: list[NamedResult],
        timeout_ms: int,
        on_done: Callable[[list[NamedResult]], None],
    ) -> None:
        names = [result.name for result in results if result.error_code is ErrorCode.NONE]

        def on_ready(late: frozenset[str]) -> None:
            timed_out = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
            on_done(
                [
                    named_result(each.name, timed_out) if each.name in late else each
                    for each in results
                ]
            )

        self._await_topics(names, timeout_ms, on_ready)

    def _await_topics(
        self, names: list[str], timeout_ms: int, on_ready: Callable[[frozenset[str]], None]
    ) -> None:
        if not names:
            on_ready(frozenset())
            return
        operation = DelayedCreateTopics(max(timeout_ms, 0), names, self._cache, on_ready)
        self._purgatory.try_complete_else_watch(operation, [TopicKey(name) for name in names])

    def _find_topics(self, topics: Sequence[TopicReference]) -> list[TopicImage | BrokerError]:
        image = self._cache.image

        def find(reference: TopicReference) -> TopicImage:
            if not self._config["delete.topic.enable"]:
                raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED)
            if reference.name is not None:
                topic = image.topic(reference.name)
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                topic = image.topic_by_id(reference.topic_id)
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            if topic is None:
                raise BrokerError(unknown)
            return topic

        return plan_each(topics, find, lambda reference: identity_of(image, reference))

    def _plan_partitions(
        self, topics: Sequence[PartitionsRequest]
    ) -> list[NewPartitions | BrokerError]:
        image = self._cache.image
        return plan_each(
            topics,
            lambda wish: self._topics.plan_partitions(image, wish),
            lambda wish: wish.name,
        )

    def _store_configs(
        self,
        resources: Sequence[ConfigResource],
        plan: Callable[[], Sequence[ConfigChange | BrokerError]],
        on_done: Callable[[list[ResourceResult]], None],
        validate_only: bool,
        release: Release,
    ) -> None:
        plans = plan()
        changes = {
            resource: planned
            for resource, planned in zip(resources, plans, strict=True)
            if not isinstance(planned, BrokerError) and planned
        }

        def on_stored(outcome: BrokerError | None) -> None:
            results = [
                resource_result(resource, outcome if resource in changes else planned)
                for resource, planned in zip(resources, plans, strict=True)
            ]
            try:
                on_done(results)
            finally:
                release()

        if validate_only or not changes:
            on_stored(None)
        else:
            self._store.alter_configs(changes, on_stored)

    def _await_elected(
        self,
        accepted: Sequence[PartitionChange],
        results: list[ElectionResult],
        timeout_ms: int,
        on_done: Callable[[list[ElectionResult]], None],
    ) -> None:
        chosen = {result.topic_partition for result in results if not result.error_code}
        expected = {
            change.topic_partition: change.leader
            for change in accepted
            if change.topic_partition in chosen
        }
        if not expected:
            on_done(results)
            return

        def on_ready(late: frozenset[TopicPartition]) -> None:
            timed_out = BrokerError(ErrorCode.REQUEST_TIMED_OUT)
            on_done(
                [
                    election_result(each.topic_partition, timed_out)
                    if each.topic_partition in late
                    else each
                    for each in results
                ]
            )

        operation = DelayedElectLeader(max(timeout_ms, 0), expected, self._cache, on_ready)
        keys = [TopicKey(name) for name in dict.fromkeys(tp.topic for tp in expected)]
        self._purgatory.try_complete_else_watch(operation, keys)

    def _on_told(self) -> None:
        self._purgatory.check_and_complete(BrokerKey(self._broker_id))

    def _on_published(self, delta: MetadataDelta) -> None:
        """Wakes who waits for the topics that changed, and keeps the names in mind."""
        for topic in delta.topics_removed:
            self._collisions.pop(collision_key(topic.name), None)
        self._note_topics(delta.topics_added)
        for topic in (*delta.topics_added, *delta.topics_changed):
            self._purgatory.check_and_complete(TopicKey(topic.name))

    def _note_topics(self, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            if has_collision_chars(topic.name):
                self._collisions[collision_key(topic.name)] = topic.name
