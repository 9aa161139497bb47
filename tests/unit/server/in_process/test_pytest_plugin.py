"""The fixtures that come with the package."""

from collections.abc import Mapping

import pytest

from odradek import Broker, ManualClock
from odradek.client.errors import AuthorizationError
from odradek.client.sync import Producer


class TestSettings:
    """A file or class that overrides the settings."""

    @pytest.fixture
    def odradek_config(self) -> Mapping[str, object]:
        return {"num.partitions": 3}

    def test_the_settings_are_the_brokers(self, odradek_broker: Broker) -> None:
        """`odradek_config` would be asked for and have no effect."""
        odradek_broker.produce("orders", "spool", partition=2)
        assert odradek_broker.topics() == {"orders": 3}


def test_the_clock_is_the_brokers(odradek_clock: ManualClock, odradek_broker: Broker) -> None:
    """A test that moves the clock would move nothing."""
    odradek_clock.advance(60_000)
    odradek_broker.produce("orders", "spool")
    [record] = odradek_broker.records("orders")
    assert record.timestamp == odradek_clock.wall_ms()


@pytest.mark.parametrize("text", ["a/b", "a_b"])
def test_a_topic_of_ones_own(text: str, odradek_topic: str, odradek_session_broker: Broker) -> None:
    """Two tests would meet in one topic, or a test's name would be no topic's."""
    assert odradek_session_broker.records(odradek_topic) == []
    odradek_session_broker.produce(odradek_topic, text)
    assert len(odradek_session_broker.wait_for(odradek_topic, 1)) == 1


@pytest.mark.odradek(acls=["User:ANONYMOUS read topic:orders"], quotas={"client-id:*": {}})
def test_the_mark_gives_acls(odradek_broker: Broker) -> None:
    """A test of who may do what would be one of a broker that lets everybody do all."""
    odradek_broker.create_topic("orders")
    with Producer(odradek_broker.bootstrap_servers) as producer, pytest.raises(AuthorizationError):
        producer.send_and_wait("orders", b"spool")
