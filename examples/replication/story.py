"""The run: what is done at which time, and what can be seen of the partition after every step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Producer

import odradek
from odradek.model import TopicPartition
from odradek.server.in_process.cluster import ClusterBroker

TOPIC: Final = "orders"
BROKERS: Final = (1, 2, 3)
STEP_MS: Final = 500
END_MS: Final = 40_000
LAG_MS: Final = 10_000
SETTINGS: Final = {"replica.lag.time.max.ms": LAG_MS, "min.insync.replicas": 2}
_WAIT_S: Final = 60


@dataclass(frozen=True)
class Seen:
    """The partition at one moment; a broker that is away has no log end."""

    ms: int
    leader: int
    epoch: int
    in_sync: frozenset[int]
    log_ends: dict[int, int]
    high_watermark: int | None


@dataclass(frozen=True)
class Wait:
    """The life of a delayed produce: from when to when, and what the answer was."""

    began_ms: int
    ended_ms: int
    error: str | None


@dataclass
class Story:
    """All that was seen, and what was done."""

    seen: list[Seen] = field(default_factory=list)
    events: list[tuple[int, str]] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)


def tell() -> Story:
    """Runs it: the same every time."""
    clock = odradek.ManualClock()
    with odradek.Cluster(brokers=len(BROKERS), clock=clock, config=SETTINGS, seed=1) as cluster:
        # A broker is killed: librdkafka would write lines about that.
        address = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2}
        with Producer(address | {"acks": "all"}) as producer:
            return _Teller(cluster, clock, producer).tell()


class _Teller:
    def __init__(
        self, cluster: odradek.Cluster, clock: odradek.ManualClock, producer: Producer
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._story = Story()
        self._now_ms = 0
        self._sent = 0
        self._waiting: list[tuple[int, list[str | None]]] = []
        self._producer = producer

    def tell(self) -> Story:
        self._cluster.create_topic(TOPIC, replication_factor=len(BROKERS))
        self._cluster.move_leader(TOPIC, to=1)
        steps: dict[int, Callable[[], None]] = {
            2_000: lambda: self._produce(4, "4 records"),
            6_000: self._cut_off,
            8_000: lambda: self._produce(3, "3 records"),
            22_000: self._heal,
            26_000: self._kill,
            29_000: lambda: self._produce(2, "2 records"),
            34_000: self._start,
        }
        while self._now_ms <= END_MS:
            if step := steps.get(self._now_ms):
                step()
                self._advance(0)
            self._look()
            self._advance(STEP_MS)
        return self._story

    def _advance(self, ms: int) -> None:
        self._clock.advance(ms)
        self._now_ms += ms
        self._producer.poll(0)

    def _look(self) -> None:
        state = self._cluster.partition_state(TOPIC, 0)
        running = [broker for broker in self._cluster.brokers if broker.is_running]
        logs = {each.id: self._log_of(each) for each in running}
        leading = logs.get(state.leader)
        self._story.seen.append(
            Seen(
                self._now_ms,
                state.leader,
                state.leader_epoch,
                frozenset(state.isr),
                {broker_id: end for broker_id, (end, _) in logs.items()},
                None if leading is None else leading[1],
            )
        )
        # What is answered is so in the broker's time; the client may hear of it a moment later.
        for began_ms, outcome in self._waiting[:]:
            if not self._is_waiting():
                while not outcome:
                    self._producer.poll(_WAIT_S)
                self._story.waits.append(Wait(began_ms, self._now_ms, outcome[0]))
                self._waiting.remove((began_ms, outcome))

    def _log_of(self, broker: ClusterBroker) -> tuple[int, int]:
        partition = TopicPartition(TOPIC, 0)

        def look() -> tuple[int, int]:
            log = broker.server.replicas.partition(partition).log
            assert log is not None, "the disk works"
            return log.log_end_offset, log.high_watermark

        return self._cluster.call(look)

    def _is_waiting(self) -> bool:
        waiting = self._cluster.waiting().values()
        return any(one.kind == "DelayedProduce" for each in waiting for one in each)

    # --- what is done --------------------------------------------------------------------------

    def _note(self, what: str) -> None:
        self._story.events.append((self._now_ms, what))

    def _produce(self, count: int, what: str) -> None:
        self._note(f"produce {what}")
        outcome: list[str | None] = []
        for _ in range(count):
            self._producer.produce(
                TOPIC,
                b"record %d" % self._sent,
                on_delivery=lambda error, _: outcome.append(None if error is None else str(error)),
            )
            self._sent += 1
        self._waiting.append((self._now_ms, outcome))
        self._await_end(self._sent)

    def _await_end(self, end: int) -> None:
        """Returns when the leader has the records: the client sends them on a time of its own."""
        leader = self._cluster.leader(TOPIC)
        assert leader is not None, "somebody leads"
        while self._log_of(leader)[0] < end:
            self._producer.poll(0.01)

    def _cut_off(self) -> None:
        self._note("broker 3 is cut off")
        self._cluster.partition(1, 3)

    def _heal(self) -> None:
        self._note("and can be reached again")
        self._cluster.heal()

    def _kill(self) -> None:
        self._note("kill -9 of broker 1")
        self._cluster.kill(1)

    def _start(self) -> None:
        self._note("broker 1 is back")
        self._cluster.broker(1).start()
