"""Topics that pipelines write to. If these fail, a pipeline ends for a setting, or at a record that
its topic does not take."""

from typing import Any, cast

import pytest

import odradek
from odradek.client import Admin
from odradek.client.core.admin_types import ConfigChange, ConfigEntry, ConfigResource
from odradek.client.errors import error_for
from odradek.clock import SystemClock
from odradek.errors import ErrorCode
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, decode
from pyspark_odradek.pipelines.ends.batches import Output
from pyspark_odradek.pipelines.ends.topics import (
    LIMIT,
    admit_times,
    create_topic,
    raise_limit,
    setting_of,
    take_up_to,
)


def test_a_limit_is_raised_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.Broker() as broker:
        brokers = {"bootstrap.servers": broker.bootstrap_servers}
        assert create_topic(brokers, "letters", settings={LIMIT: "20000"}, may_be_there=True)
        assert not create_topic(brokers, "letters", settings={LIMIT: "5"}, may_be_there=True)
        with monkeypatch.context() as patch:
            patch.setattr(Admin, "alter_configs", refuse)
            assert take_up_to(brokers, "letters", 50_000) == 20_000
        assert take_up_to(brokers, "letters", 50_000) == 50_000
        assert take_up_to(brokers, "letters", 30_000) == 50_000


def test_segments_take_what_the_limit_lets_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter, or an archived record, that was larger than a segment ended the job at each
    start."""
    with odradek.Broker(config={"log.segment.bytes": "2000000"}) as broker:
        brokers = {"bootstrap.servers": broker.bootstrap_servers}
        create_topic(brokers, "letters", settings={LIMIT: "5000000"})
        with monkeypatch.context() as patch:
            patch.setattr(Admin, "alter_configs", refuse)
            assert take_up_to(brokers, "letters", 5_000_000) == 2_000_000
        assert take_up_to(brokers, "letters", 5_000_000) == 5_000_000
        create_topic(brokers, "restored", settings={"segment.bytes": "1500000"})
        raise_limit(brokers, "restored", 4_000_000)
        raise_limit(brokers, "restored", 3_000_000)
        for topic in ("letters", "restored"):
            record = bytes(3_900_000)
            broker.produce(topic, record)
            assert broker.records(topic)[0].value == record
        for name in (LIMIT, "segment.bytes"):
            assert setting_of(brokers, "restored", name) == "4000000"


def test_segments_of_a_new_topic_take_its_largest_letter() -> None:
    with odradek.Broker(config={"log.segment.bytes": "2000000"}) as broker:
        settings = PipelineSettings(broker.bootstrap_servers, "orders")
        decode._letters(settings, "letters", cast(Output, None))
        broker.produce("letters", bytes(3_900_000))
        assert len(broker.records("letters")) == 1


DAY_MS = 86_400_000
EITHER = "message.timestamp.difference.max.ms"


@pytest.mark.parametrize(
    ("days_ago", "days_ahead", "lifted"),
    [(2, 0, True), (-2, 3, True), (-0.5, 0.5, False)],
)
def test_a_bound_of_kafka_3_on_times_is_lifted(
    monkeypatch: pytest.MonkeyPatch, days_ago: float, days_ahead: float, lifted: bool
) -> None:
    """A restore to a topic that had it ended half way, at each attempt."""
    changed: list[str] = []

    async def describe(_: Admin, resources: list[ConfigResource]) -> dict[Any, Any]:
        return {each: {EITHER: ConfigEntry(EITHER, str(DAY_MS), 1)} for each in resources}

    async def alter(_: Admin, changes: dict[Any, list[ConfigChange]]) -> dict[Any, Any]:
        changed.extend(each.name for of_one in changes.values() for each in of_one)
        return dict.fromkeys(changes)

    monkeypatch.setattr(Admin, "describe_configs", describe)
    monkeypatch.setattr(Admin, "alter_configs", alter)
    now_ms = SystemClock().wall_ms()
    with odradek.Broker() as broker:
        brokers = {"bootstrap.servers": broker.bootstrap_servers}
        oldest, newest = (int(now_ms + days * DAY_MS) for days in (-days_ago, days_ahead))
        admit_times(brokers, "any", oldest, newest)
    assert changed == ([EITHER] if lifted else [])


async def refuse(_: Admin, changes: dict[Any, Any]) -> dict[Any, Any]:
    refused = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not yours")
    return dict.fromkeys(changes, refused)


def test_letters_do_not_go_where_one_without_a_key_is_refused() -> None:
    """The first of them ended the job, again at each start."""
    with odradek.Broker() as broker:
        broker.create_topic("letters", config={"cleanup.policy": "compact,delete"})
        with pytest.raises(PipelineError, match="letters is compacted"):
            take_up_to({"bootstrap.servers": broker.bootstrap_servers}, "letters", 50_000)


def test_a_new_topic_is_compacted_only_if_it_is_said() -> None:
    """Brokers may compact topics by default: the first letter without a key ended the job."""
    with odradek.Broker(config={"log.cleanup.policy": "compact"}) as broker:
        brokers = {"bootstrap.servers": broker.bootstrap_servers}
        create_topic(brokers, "letters", settings={LIMIT: "50000"})
        assert take_up_to(brokers, "letters", 50_000) == 50_000
        create_topic(brokers, "restored", settings={"cleanup.policy": "compact"})
        with pytest.raises(PipelineError, match="restored is compacted"):
            take_up_to(brokers, "restored", 50_000)


def test_a_new_topic_keeps_all_records() -> None:
    """A broker that keeps so many bytes by default removed what a restore had just written."""
    with odradek.Broker(config={"log.retention.bytes": "1000"}) as broker:
        brokers = {"bootstrap.servers": broker.bootstrap_servers}
        create_topic(brokers, "restored", settings={"retention.bytes": "5"})
        for name in ("retention.ms", "retention.bytes"):
            assert setting_of(brokers, "restored", name) == "-1"
