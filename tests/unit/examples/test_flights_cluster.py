"""If these fail, `./run --cluster` kills nobody, or does not see what comes of it."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaException
from examples.flights import cluster
from examples.flights.replay import PARTITIONS

from odradek.testing.processes import ProcessFailed


def topics(leader: int, *names: str) -> SimpleNamespace:
    """The answer of a broker that knows these topics."""
    return SimpleNamespace(
        topics={
            name: SimpleNamespace(
                partitions={index: SimpleNamespace(leader=leader) for index in range(count)}
            )
            for name, count in PARTITIONS.items()
            if name in names
        }
    )


class FakeCluster:
    """A cluster whose metadata is what `answers` hold, one after the other."""

    bootstrap_servers = "nowhere:1"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: object) -> None:
        self.answers = list(answers)
        self.killed: list[int] = []
        self.returned: list[int] = []
        monkeypatch.setattr(cluster, "AdminClient", lambda _config: self)
        monkeypatch.setattr(cluster, "_LOOK_EVERY_S", 0)

    def list_topics(self, timeout: float) -> object:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill_broker(self, broker: int) -> None:
        self.killed.append(broker)

    def bring_back(self, broker: int) -> None:
        self.returned.append(broker)


def test_brokers_that_do_not_know_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has not heard of the topics, of a leader or of a death ends the run."""
    everything = tuple(PARTITIONS)
    fake = FakeCluster(
        monkeypatch,
        *(topics(2), topics(2, everything[0]), topics(-1, *everything), topics(2, *everything)),
        *(topics(2, *everything), KafkaException("gone"), topics(-1, *everything)),
        topics(3, *everything),
    )
    kill = cluster.Kill(fake)
    kill.strike(0.0)
    outcome = kill.outcome()
    assert (outcome.broker, outcome.led) == (2, sum(PARTITIONS.values()))
    assert outcome.killed_s <= outcome.elected_s <= outcome.returned_s
    assert (fake.killed, fake.returned, fake.answers) == ([2], [2], [])


def test_a_broker_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on with two brokers, and says that all is well."""
    fake = FakeCluster(monkeypatch, topics(2, *PARTITIONS), topics(3, *PARTITIONS))

    def bring_back(broker: int) -> None:
        raise ProcessFailed("no disk")

    fake.bring_back = bring_back
    kill = cluster.Kill(fake)
    kill.strike(0.0)
    with pytest.raises(ProcessFailed, match="no disk"):
        kill.outcome()
