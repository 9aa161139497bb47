"""`Controller`: carries out requests of administrators and clients about topics, settings and
leaders.

Every operation is a straight walk: a pure module plans it, the metadata store does it, a purgatory
waits for it, and `on_done` is called exactly once with results in the order of the request. The
folders `topics`, `configs` and `replicas` have the operations; here they are put together.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.config import BrokerConfig
from odradek.controller import quota_control
from odradek.controller.configs.dynamic import DynamicBrokerConfig
from odradek.controller.configs.entries import ConfigDescriber
from odradek.controller.configs.operations import ConfigOperations
from odradek.controller.delayed_operations import BrokerKey, DelayedAnswer, DelayedMetadata
from odradek.controller.replicas.leader_elections import LeaderElections
from odradek.controller.replicas.reassigner import Reassigner
from odradek.controller.replicas.replication_control import ReplicationControl
from odradek.controller.topics.operations import CreateTopicPolicy, TopicOperations
from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataImage
from odradek.metadata.store import ListenerStage, MetadataStore
from odradek.purgatory import DelayedOperationPurgatory


class Controller:
    """Creates, deletes and grows topics, changes settings, elects leaders.

    `purgatory` holds the requests that wait for leaders; `random_below(n)` answers 0 <= r < n.
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
        self._cache: Final = cache
        self._config: Final = config
        self._key: Final = BrokerKey(broker_id)
        self._purgatory: Final = purgatory
        store.subscribe(ListenerStage.SETTINGS, DynamicBrokerConfig(config, broker_id).apply_delta)
        ReplicationControl(store, broker_id, self._may_elect_unclean)
        describer = ConfigDescriber(config, broker_id)
        topics = TopicOperations(
            store, cache, config, describer, purgatory, random_below, create_topic_policy
        )
        self.create_topics: Final = topics.create_topics
        self.auto_create_topics: Final = topics.auto_create_topics
        self.delete_topics: Final = topics.delete_topics
        self.create_partitions: Final = topics.create_partitions
        configs = ConfigOperations(store, cache, config, broker_id, describer)
        self.describe_configs: Final = configs.describe_configs
        self.alter_configs: Final = configs.alter_configs
        self.incremental_alter_configs: Final = configs.incremental_alter_configs
        self.update_features: Final = configs.update_features
        self.alter_users: Final = configs.alter_users
        self.alter_kept: Final = configs.alter_kept
        self.alter_client_quotas: Final = partial(quota_control.alter_client_quotas, store)
        leaders = LeaderElections(store, cache, config, broker_id, purgatory)
        self.elect_leaders: Final = leaders.elect_leaders
        self.hand_over: Final = leaders.hand_over
        self.balance_leaders: Final = leaders.balance_leaders
        self.reassigner: Final = Reassigner(store, cache)
        cache.on_told(self._on_told)

    def await_metadata(self, timeout_ms: int, on_done: Callable[[], None]) -> None:
        """Calls `on_done` once this broker has received the metadata, or at the time-out."""
        operation = DelayedMetadata(timeout_ms, self._cache, on_done)
        self._purgatory.try_complete_else_watch(operation, [self._key])

    def await_answer(self, timeout_ms: int, on_late: Callable[[], None]) -> DelayedAnswer:
        """Calls `on_late` at the time-out, unless the returned operation is completed before."""
        operation = DelayedAnswer(max(timeout_ms, 0), on_late)
        self._purgatory.try_complete_else_watch(operation, [self._key])
        return operation

    def _on_told(self) -> None:
        self._purgatory.check_and_complete(self._key)

    def _may_elect_unclean(self, image: MetadataImage, topic: str) -> bool:
        stored = image.topic_config(topic)
        config, _ = self._config.log_config(stored)
        return config.unclean_leader_election_enable
