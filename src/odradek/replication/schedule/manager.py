"""`ScheduleManager`: the releasers of the schedule partitions that are led here.

It follows the metadata: a releaser begins when this broker is elected, or a topic becomes one of
schedules, and ends with the leadership. It also knows which topics are schedule topics, for
producers.
"""

from collections.abc import Callable
from typing import Final

from odradek.background import do_each, run_each
from odradek.clock import Clock
from odradek.errors import BrokerError
from odradek.metadata.image import MetadataDelta, TopicImage
from odradek.model import ConfigResourceType, TopicPartition
from odradek.records.batch import Buffer
from odradek.replication.replica_manager import ReplicaManager
from odradek.replication.schedule.admission import Admission, is_schedule_topic
from odradek.replication.schedule.releaser import Releaser
from odradek.replication.schedule.services import ReleaseServices
from odradek.storage.log.log import Log
from odradek.timer import PeriodicTask, TimerTask

CLOCK_CHECK_MS: Final = 60_000
"""How often it is looked whether the wall clock was set."""
_JUMP_MS: Final = 20
RESTART_MS: Final = 10_000
"""After what time releasing starts again after a failure."""


class ScheduleManager:
    """See the module. Called on the broker's loop only."""

    def __init__(self, services: ReleaseServices) -> None:
        self._services: Final = services
        self._replicas: Final[ReplicaManager] = services.replicas
        self.releasers: dict[TopicPartition, Releaser] = {}
        self.topics: frozenset[str] = frozenset()
        self._drift_ms = _drift(services.clock)
        self._clock_check: PeriodicTask | None = None
        self._replicas.on_moved(self._on_moved)

    def _on_moved(self, where: TopicPartition) -> None:
        """Begins a releaser anew, which would go by the log that was left."""
        if where in self.releasers:
            self._services.timer.call_threadsafe(self._follow)

    def apply_delta(self, delta: MetadataDelta) -> tuple[()]:
        """Follows a change of the metadata, after the replica manager."""
        # Existing topics come with the partitions that this broker is to lead.
        changed = {topic.name for topic, _ in delta.partitions()}
        changed |= {topic.name for topic in delta.topics_removed}
        changed |= {
            resource.name
            for resource in delta.configs_changed
            if resource.type is ConfigResourceType.TOPIC
        }
        if changed:
            self.topics = self.topics - changed | {
                name for name in changed if is_schedule_topic(delta.image, name)
            }
        if changed & self.topics or any(each.topic in changed for each in self.releasers):
            # After the change is applied: an append in the middle of it would be too early.
            self._services.timer.call_threadsafe(self._follow)
        if changed:
            for releaser in self.releasers.values():
                self._services.timer.call_threadsafe(releaser.on_topics_changed)
        return ()

    def refusal(
        self,
        where: TopicPartition,
        source: Buffer,
        is_denied: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> BrokerError | None:
        """The error that refuses batches for a partition of a schedule topic, or None; `is_denied`
        says which topics the producer may not write."""
        if where.topic not in self.topics:
            return None
        partition = self._replicas.partitions.find(where)
        if partition is None or partition.log is None:
            return None  # the append has the right error
        image = self._replicas.partitions.image
        now_ms = self._services.clock.wall_ms()
        admission = Admission(partition.log.config, image, is_denied, now_ms)
        return admission.refusal(bytes(source))

    def _follow(self) -> None:
        """Starts and stops releasers, so there is one for each schedule partition led here. A
        releaser that raises does not affect the others, and is tried again."""
        try:
            run_each([self._end_others, self._begin_own, self._watch_clock])
        except Exception:  # of any kind: the releasers are still due
            self._follow_later()
            raise

    def _follow_later(self) -> None:
        self._services.timer.add(TimerTask(RESTART_MS, self._follow))

    def _end_others(self) -> None:
        do_each(list(self.releasers.items()), lambda each: self._end_if_not_led(*each))

    def _end_if_not_led(self, where: TopicPartition, releaser: Releaser) -> None:
        if self._led_log(where) is not releaser.log or not self._is_current(releaser):
            del self.releasers[where]
            releaser.stop()

    def _begin_own(self) -> None:
        do_each(
            [
                TopicPartition(topic.name, image.partition)
                for topic in self._topic_images()
                for image in topic.partitions
            ],
            self._begin,
        )

    def _topic_images(self) -> list[TopicImage]:
        image = self._replicas.partitions.image
        found = (image.topic(name) for name in sorted(self.topics))
        return [topic for topic in found if topic is not None]

    def _begin(self, where: TopicPartition) -> None:
        log = self._led_log(where)
        if log is None or where in self.releasers:
            return
        partition = self._replicas.partition(where)
        releaser = Releaser(partition, log, self._services, self._on_failed)
        releaser.start()
        self.releasers[where] = releaser

    def _on_failed(self, releaser: Releaser) -> None:
        if self.releasers.get(releaser.topic_partition) is releaser:
            del self.releasers[releaser.topic_partition]
        self._follow_later()

    def _led_log(self, where: TopicPartition) -> Log | None:
        partition = self._replicas.partitions.find(where)
        if partition is None or not partition.is_leader or partition.log is None:
            return None
        return partition.log if partition.log.config.is_schedule else None

    def _is_current(self, releaser: Releaser) -> bool:
        partition = self._replicas.partitions.find(releaser.topic_partition)
        return partition is not None and partition.leader_epoch == releaser.leader_epoch

    def _watch_clock(self) -> None:
        if self.releasers and self._clock_check is None:
            timer = self._services.timer
            self._clock_check = PeriodicTask(timer, lambda: CLOCK_CHECK_MS, self.check_clock)
        elif not self.releasers and self._clock_check is not None:
            self._clock_check.cancel()
            self._clock_check = None

    def check_clock(self) -> None:
        """Checks all schedules again if the wall clock was set: they are due by it, and timers
        follow the monotonic clock."""
        drift_ms = _drift(self._services.clock)
        if abs(drift_ms - self._drift_ms) > _JUMP_MS:
            # Only now: smaller drifts add up, and count together.
            self._drift_ms = drift_ms
            for releaser in list(self.releasers.values()):
                releaser.place_again()

    def shutdown(self) -> None:
        """Ends all releasers."""
        releasers, self.releasers = self.releasers, {}
        for releaser in releasers.values():
            releaser.stop()
        self.topics = frozenset()
        self._watch_clock()


def _drift(clock: Clock) -> int:
    return clock.wall_ms() - clock.monotonic_ms()
