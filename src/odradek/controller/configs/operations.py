"""`ConfigOperations`: describes and alters settings, and updates features.

Alterations run one after another: each is planned on the result of the one before.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from odradek.config import BrokerConfig
from odradek.controller.answers import plan_each, resource_result
from odradek.controller.configs.broker_loggers import alter_loggers
from odradek.controller.configs.changes import ConfigPlanner, check_steps
from odradek.controller.configs.entries import ConfigDescriber, check_broker
from odradek.controller.feature_plans import plan_features
from odradek.controller.results import (
    ConfigAlteration,
    ConfigEntry,
    FeatureUpdate,
    ResourceResult,
)
from odradek.controller.slices import Defer, OnSlice, distinct_by_slices
from odradek.errors import BrokerError
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import ConfigResource, MetadataImage
from odradek.metadata.serial_queue import Release, SerialQueue
from odradek.metadata.store import MetadataStore, OnDone
from odradek.model import ConfigResourceType

T = TypeVar("T")
ConfigChange: TypeAlias = dict[str, str | None]
ConfigChanges: TypeAlias = Mapping[str, str | None]
Replacement: TypeAlias = tuple[ConfigResource, Sequence[tuple[str, str | None]]]
Alteration: TypeAlias = tuple[ConfigResource, Sequence[ConfigAlteration]]
Altered = TypeVar("Altered", Replacement, Alteration)


class ConfigOperations:
    """Carried out by `store`, for the broker `broker_id`."""

    def __init__(
        self,
        store: MetadataStore,
        cache: MetadataCache,
        config: BrokerConfig,
        broker_id: int,
        describer: ConfigDescriber,
    ) -> None:
        self._store: Final = store
        self._cache: Final = cache
        self._broker_id: Final = broker_id
        self._describer: Final = describer
        self._planner: Final = ConfigPlanner(config, broker_id)
        self._queue: Final = SerialQueue()

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
        resources: Sequence[Replacement],
        on_done: Callable[[list[ResourceResult]], None],
        *,
        validate_only: bool = False,
        defer: Defer | None = None,
    ) -> None:
        """Replaces all settings of resources; settings that are left out go back to their
        defaults."""

        def plan(replacement: Replacement) -> ConfigChange:
            return self._planner.plan_replacement(self._cache.image, *replacement)

        alter = partial(self._alter, plan, validate_only)
        distinct_by_slices(resources, itemgetter(0), alter, on_done, defer)

    def incremental_alter_configs(
        self,
        resources: Sequence[Alteration],
        on_done: Callable[[list[ResourceResult]], None],
        *,
        validate_only: bool = False,
        defer: Defer | None = None,
    ) -> None:
        """Sets, deletes, and edits the lists of single settings."""

        def plan(alteration: Alteration) -> ConfigChange:
            image = self._cache.image
            return self._plan_alterations(image, *alteration, validate_only=validate_only)

        alter = partial(self._alter, plan, validate_only)
        distinct_by_slices(resources, itemgetter(0), alter, on_done, defer)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        on_done: OnDone[None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Finalizes features at other levels, all of them or none."""

        def begin(release: Release) -> None:
            on_stored = _then_release(on_done, release)
            try:
                levels = plan_features(self._cache.image, updates)
            except BrokerError as error:
                on_stored(error)
                return
            if validate_only or not levels:
                on_stored(None)
            else:
                self._store.update_features(levels, on_stored)

        self._queue.submit(begin)

    def alter_users(
        self,
        plan: Callable[[MetadataImage], Mapping[str, Mapping[str, str | None]]],
        on_done: OnDone[None],
    ) -> None:
        """Sets the stored values of users, by their names, as `alter_kept` does."""

        def plan_by_resource(image: MetadataImage) -> Mapping[ConfigResource, ConfigChanges]:
            return {
                ConfigResource(ConfigResourceType.USER, name): each
                for name, each in plan(image).items()
            }

        self.alter_kept(plan_by_resource, on_done)

    def alter_kept(
        self,
        plan: Callable[[MetadataImage], Mapping[ConfigResource, ConfigChanges]],
        on_done: OnDone[None],
    ) -> None:
        """Sets the stored values of internal resources, and deletes None ones; `plan` decides after
        all earlier changes."""

        def begin(release: Release) -> None:
            on_stored = _then_release(on_done, release)
            altered = plan(self._cache.image)
            if altered:
                self._store.alter_configs(altered, on_stored)
            else:
                on_stored(None)

        self._queue.submit(begin)

    def _plan_alterations(
        self,
        image: MetadataImage,
        resource: ConfigResource,
        steps: Sequence[ConfigAlteration],
        *,
        validate_only: bool,
    ) -> ConfigChange:
        """Plans alterations. Levels of loggers change at once: only the process has them."""
        if resource.type is not ConfigResourceType.BROKER_LOGGER:
            return self._planner.plan_alterations(image, resource, steps)
        check_steps(steps)
        check_broker(resource, self._broker_id)
        alter_loggers(steps, validate_only=validate_only)
        return {}

    def _alter(
        self,
        plan: Callable[[Altered], ConfigChange],
        validate_only: bool,
        repeated: Collection[object],
        altered: Sequence[Altered],
        on_done: OnSlice[ResourceResult],
    ) -> None:
        """Plans after the earlier alterations are published, and stores the change."""

        def begin(release: Release) -> None:
            plans = plan_each(altered, plan, itemgetter(0), repeated)
            resources = [resource for resource, _ in altered]
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
                _then_release(on_done, release)(results)

            if validate_only or not changes:
                on_stored(None)
            else:
                self._store.alter_configs(changes, on_stored)

        self._queue.submit(begin)


def _then_release(on_done: Callable[[T], None], release: Release) -> Callable[[T], None]:
    """Answers, and lets the next alteration begin even if the answer raises."""

    def answer(outcome: T) -> None:
        try:
            on_done(outcome)
        finally:
            release()

    return answer
