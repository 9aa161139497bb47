"""`TopicOperations`: creates and deletes topics, and adds partitions.

Each is a straight walk: plan (`plans`), have the metadata store do it, wait until every partition
has a leader, answer in the order of the request. With `defer` that is done for some topics at a
time (`slices`). After the time-out the remaining topics are still begun, but not waited for.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias

from odradek.config import BrokerConfig
from odradek.controller.answers import (
    deleted,
    identity_of,
    in_request_order,
    late_topic,
    named_result,
    one_each,
    plan_each,
    time_left,
)
from odradek.controller.configs.entries import ConfigDescriber
from odradek.controller.delayed_operations import DelayedTopicChange, TopicKey
from odradek.controller.results import (
    CreatableTopic,
    CreateTopicResult,
    DeleteTopicResult,
    NamedResult,
    PartitionsRequest,
    TopicReference,
)
from odradek.controller.slices import Defer, OnSlice, distinct_by_slices
from odradek.controller.topics.internal import requested_topic
from odradek.controller.topics.names import collision_key, has_collision_chars
from odradek.controller.topics.plans import (
    MOST_PARTITIONS,
    TopicPlanner,
    check_size,
    partitions_of,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.changes import topic_exists
from odradek.metadata.image import MetadataDelta, TopicImage
from odradek.metadata.store import MetadataStore, NewPartitions, NewTopic, OnDone
from odradek.model import INTERNAL_TOPICS
from odradek.purgatory import DelayedOperationPurgatory

logger = logging.getLogger(__name__)

CreateTopicPolicy: TypeAlias = Callable[[CreatableTopic], None]
"""May refuse a topic by raising BrokerError(POLICY_VIOLATION)."""
Charge: TypeAlias = Callable[[int], None]
"""Charges the client for so many partitions, or raises BrokerError(THROTTLING_QUOTA_EXCEEDED)."""


def _free(_count: int) -> None:
    """Charges nobody."""


class TopicOperations:
    """Carried out by `store`; requests that wait for leaders are in `purgatory`."""

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        config: BrokerConfig,
        describer: ConfigDescriber,
        purgatory: DelayedOperationPurgatory,
        random_below: Callable[[int], int],
        policy: CreateTopicPolicy | None,
    ) -> None:
        self._store: Final = store
        self._cache: Final = cache
        self._config: Final = config
        self._describer: Final = describer
        self._purgatory: Final = purgatory
        self._planner: Final = TopicPlanner(config, random_below)
        self._policy: Final = policy
        # The names that metrics would confuse with others, by what metrics make of them; and the
        # same of the topics of each request that is being carried out.
        self._collisions: Final[dict[str, str]] = {}
        self._begun: Final[list[dict[str, str]]] = []
        # Why internal topics could not be created when they were last asked for.
        self._reasons: Final[dict[str, str]] = {}
        cache.on_published(self._on_published)
        self._note_topics(cache.image.topics.values())

    def create_topics(
        self,
        topics: Sequence[CreatableTopic],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
        *,
        validate_only: bool = False,
        defer: Defer | None = None,
        charge: Charge = _free,
    ) -> None:
        """Creates topics, and answers when their partitions have leaders, or at the time-out. A
        request that is too large is refused as a whole."""
        try:
            check_size(self._cache.image, topics, self._config.num_partitions)
        except BrokerError as error:
            on_done([CreateTopicResult.failed(each.name, error) for each in topics])
            return
        left_ms = time_left(self._purgatory.timer, timeout_ms)
        taken: dict[str, str] = {}

        def create(
            repeated: Collection[object],
            some: Sequence[CreatableTopic],
            on_some: OnSlice[CreateTopicResult],
        ) -> None:
            plans = self._plan_topics(some, repeated, taken, charge)
            if validate_only or not any(isinstance(plan, NewTopic) for plan in plans):
                on_some([self._planned(*pair) for pair in zip(some, plans, strict=True)])
            else:
                self._create(some, plans, left_ms(), on_some)

        name_of, sync = attrgetter("name"), self._store.sync
        distinct_by_slices(topics, name_of, create, on_done, defer, sync, self._partitions_of)

    def _partitions_of(self, topic: CreatableTopic) -> int:
        return partitions_of(topic, self._config.num_partitions)

    def _create(
        self,
        topics: Sequence[CreatableTopic],
        plans: Sequence[NewTopic | BrokerError],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
    ) -> None:
        accepted = [plan for plan in plans if isinstance(plan, NewTopic)]
        taken = {collision_key(plan.name): plan.name for plan in accepted}
        self._begun.append(taken)

        def store(on_stored: OnDone[list[TopicImage | BrokerError]]) -> None:
            def on_created(outcome: list[TopicImage | BrokerError] | BrokerError) -> None:
                self._begun.remove(taken)
                on_stored(outcome)

            self._store.create_topics(accepted, on_created)

        def on_changed(outcomes: list[TopicImage | BrokerError], late: frozenset[str]) -> None:
            results = [
                self._created(topic.name, plan, outcome)
                for topic, plan, outcome in zip(
                    topics, plans, in_request_order(plans, outcomes), strict=True
                )
            ]
            on_done([late_topic(each) if each.name in late else each for each in results])

        self._change([plan.name for plan in accepted], timeout_ms, store, on_changed)

    def auto_create_topics(
        self,
        names: Iterable[str],
        timeout_ms: int,
        on_done: Callable[[list[CreateTopicResult]], None],
    ) -> None:
        """Creates topics that a client asked for and that do not exist, with the broker's
        defaults, internal ones in their own shape. The caller checks the client's permission."""
        topics = [requested_topic(self._config, name) for name in dict.fromkeys(names)]

        def on_created(results: list[CreateTopicResult]) -> None:
            for result in results:
                if result.name in INTERNAL_TOPICS:
                    self._note_internal(result)
            on_done(results)

        self.create_topics(topics, timeout_ms, on_created)

    def _note_internal(self, result: CreateTopicResult) -> None:
        """Logs why an internal topic is not created: clients that wait for it are not told, and ask
        again and again."""
        code = result.error_code
        is_there = code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        reason = "" if is_there else str(BrokerError(code, result.message))
        if reason and self._reasons.get(result.name) != reason:
            logger.warning("%s cannot be created: %s", result.name, reason)
        self._reasons[result.name] = reason

    def delete_topics(
        self,
        topics: Sequence[TopicReference],
        timeout_ms: int,
        on_done: Callable[[list[DeleteTopicResult]], None],
        *,
        defer: Defer | None = None,
        charge: Charge = _free,
    ) -> None:
        """Deletes topics, given by name or id, and answers when they are gone, or at the
        time-out."""
        left_ms = time_left(self._purgatory.timer, timeout_ms)
        identity = partial(identity_of, self._cache.image)

        def find(reference: TopicReference) -> TopicImage:
            topic = self._find_topic(reference)
            charge(len(topic.partitions))
            return topic

        def delete(
            repeated: Collection[object],
            some: Sequence[TopicReference],
            on_some: OnSlice[DeleteTopicResult],
        ) -> None:
            found = plan_each(some, find, identity, repeated)
            self._delete(some, found, left_ms(), on_some)

        sync = self._store.sync
        distinct_by_slices(topics, identity, delete, on_done, defer, sync, self._size_of)

    def _size_of(self, reference: TopicReference) -> int:
        topic = self._topic_of(reference)
        return 0 if topic is None else len(topic.partitions)

    def _topic_of(self, reference: TopicReference) -> TopicImage | None:
        name = reference.name
        image = self._cache.image
        return image.topic_by_id(reference.topic_id) if name is None else image.topic(name)

    def _delete(
        self,
        topics: Sequence[TopicReference],
        found: Sequence[TopicImage | BrokerError],
        timeout_ms: int,
        on_done: Callable[[list[DeleteTopicResult]], None],
    ) -> None:
        accepted = [topic for topic in found if isinstance(topic, TopicImage)]

        def on_changed(outcomes: list[TopicImage | BrokerError], _late: frozenset[str]) -> None:
            rest = in_request_order(found, outcomes)
            on_done([deleted(*each) for each in zip(topics, found, rest, strict=True)])

        if accepted:
            store = partial(self._store.delete_topics, [topic.topic_id for topic in accepted])
            self._change([topic.name for topic in accepted], timeout_ms, store, on_changed)
        else:
            on_changed([], frozenset())

    def create_partitions(
        self,
        topics: Sequence[PartitionsRequest],
        timeout_ms: int,
        on_done: Callable[[list[NamedResult]], None],
        *,
        validate_only: bool = False,
        defer: Defer | None = None,
        charge: Charge = _free,
    ) -> None:
        """Adds partitions to topics, and answers when they have leaders, or at the time-out.
        A topic that takes the request beyond `MOST_PARTITIONS` is refused."""
        left_ms = time_left(self._purgatory.timer, timeout_ms)
        name_of = attrgetter("name")
        left = MOST_PARTITIONS

        def plan(requested: PartitionsRequest) -> NewPartitions:
            nonlocal left
            planned = self._planner.plan_partitions(self._cache.image, requested, left)
            charge(len(planned.assignment))
            left -= len(planned.assignment)
            return planned

        def grow(
            repeated: Collection[object],
            some: Sequence[PartitionsRequest],
            on_some: OnSlice[NamedResult],
        ) -> None:
            plans = plan_each(some, plan, name_of, repeated)
            names = [topic.name for topic in some]
            if validate_only or not any(isinstance(plan, NewPartitions) for plan in plans):
                on_some([named_result(*pair) for pair in zip(names, plans, strict=True)])
            else:
                self._grow(names, plans, left_ms(), on_some)

        sync = self._store.sync
        distinct_by_slices(topics, name_of, grow, on_done, defer, sync, self._growth_of)

    def _growth_of(self, requested: PartitionsRequest) -> int:
        topic = self._cache.image.topic(requested.name)
        return 0 if topic is None else requested.count - len(topic.partitions)

    def _grow(
        self,
        names: Sequence[str],
        plans: Sequence[NewPartitions | BrokerError],
        timeout_ms: int,
        on_done: Callable[[list[NamedResult]], None],
    ) -> None:
        accepted = [plan for plan in plans if isinstance(plan, NewPartitions)]
        timed_out = BrokerError(ErrorCode.REQUEST_TIMED_OUT)

        def on_changed(outcomes: list[TopicImage | BrokerError], late: frozenset[str]) -> None:
            results = zip(names, in_request_order(plans, outcomes), strict=True)
            on_done(
                [named_result(name, timed_out if name in late else each) for name, each in results]
            )

        store = partial(self._store.create_partitions, accepted)
        self._change([plan.name for plan in accepted], timeout_ms, store, on_changed)

    def _change(
        self,
        names: Sequence[str],
        timeout_ms: int,
        store: Callable[[OnDone[list[TopicImage | BrokerError]]], None],
        on_done: Callable[[list[TopicImage | BrokerError], frozenset[str]], None],
    ) -> None:
        """Changes the topics in `store`, and answers when the existing partitions have leaders: the
        outcome of each topic, REQUEST_TIMED_OUT if that is not known in time, and the names of
        those that still wait for leaders."""
        outcomes: list[TopicImage | BrokerError] = [BrokerError(ErrorCode.REQUEST_TIMED_OUT)] * len(
            names
        )
        operation = DelayedTopicChange(
            timeout_ms, self._cache, lambda late: on_done(outcomes, late)
        )

        def on_stored(outcome: list[TopicImage | BrokerError] | BrokerError) -> None:
            if not operation.is_completed:
                outcomes[:] = one_each(outcome, len(names))
                made = (each.name for each in outcomes if isinstance(each, TopicImage))
                image = self._cache.image
                operation.on_stored([name for name in made if image.topic(name) is not None])

        store(on_stored)
        self._purgatory.try_complete_else_watch(operation, [TopicKey(name) for name in names])

    def _plan_topics(
        self,
        topics: Sequence[CreatableTopic],
        repeated: Collection[object],
        taken: dict[str, str],
        charge: Charge,
    ) -> list[NewTopic | BrokerError]:
        """Plans topics; `taken` has the names that the request already creates."""
        image = self._cache.image

        def plan(topic: CreatableTopic) -> NewTopic:
            if image.topic(topic.name) is not None:
                raise topic_exists(topic.name)
            planned = self._planner.plan_topic(image, topic)
            self._check_collision(topic.name, taken)
            if self._policy is not None:
                self._policy(topic)
            charge(len(planned.assignment))
            taken[collision_key(topic.name)] = topic.name
            return planned

        return plan_each(topics, plan, attrgetter("name"), repeated)

    def _check_collision(self, name: str, taken: Mapping[str, str]) -> None:
        if not has_collision_chars(name):
            return
        key = collision_key(name)
        known = (self._collisions, taken, *self._begun)
        other = next((names[key] for names in known if key in names), name)
        if other != name:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def _planned(self, topic: CreatableTopic, plan: NewTopic | BrokerError) -> CreateTopicResult:
        """The answer to a validate-only request, or to one that was refused."""
        if isinstance(plan, BrokerError):
            return CreateTopicResult.failed(topic.name, plan)
        return CreateTopicResult(
            topic.name,
            num_partitions=len(plan.assignment),
            replication_factor=len(plan.assignment[0]),
            describe=partial(self._describer.created_entries, plan.configs),
        )

    def _created(
        self, name: str, plan: NewTopic | BrokerError, outcome: TopicImage | BrokerError
    ) -> CreateTopicResult:
        if isinstance(outcome, BrokerError) or isinstance(plan, BrokerError):
            assert isinstance(outcome, BrokerError), f"{name} was refused and yet created"
            return CreateTopicResult.failed(name, outcome)
        return CreateTopicResult(
            name,
            topic_id=outcome.topic_id,
            num_partitions=len(outcome.partitions),
            replication_factor=len(outcome.partitions[0].replicas),
            describe=partial(self._describer.created_entries, plan.configs),
        )

    def _find_topic(self, reference: TopicReference) -> TopicImage:
        if not self._config["delete.topic.enable"]:
            raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED)
        topic = self._topic_of(reference)
        if topic is None:
            is_named = reference.name is not None
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_named else ErrorCode.UNKNOWN_TOPIC_ID
            )
        return topic

    def _on_published(self, delta: MetadataDelta) -> None:
        """Wakes operations that wait for changed topics, and remembers the topics' names."""
        for topic in delta.topics_removed:
            self._collisions.pop(collision_key(topic.name), None)
        self._note_topics(delta.topics_added)
        for topic in (*delta.topics_added, *delta.topics_changed):
            self._purgatory.check_and_complete(TopicKey(topic.name))

    def _note_topics(self, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            if has_collision_chars(topic.name):
                self._collisions[collision_key(topic.name)] = topic.name
