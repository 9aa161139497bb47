"""Schedule topics of a broker in this process, on a clock that the test moves."""

import asyncio
from itertools import pairwise

import pytest

import odradek
from odradek.client import Admin, ConfigChange, ConfigResource
from odradek.clock import ManualClock
from odradek.errors import BrokerError
from odradek.records.errors import InvalidRecords

HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def broker(clock):
    with odradek.Broker(clock=clock) as made:
        made.create_topic("orders", partitions=2)
        made.create_topic("later", config={"schedule.target.topic": "orders"})
        yield made


def schedule(broker, value, after, key=None, topic="later", **headers):
    pairs = [("deliver-after", after)] if after is not None else []
    pairs += [(name.replace("_", "-"), text) for name, text in headers.items()]
    return broker.produce(topic, value, key=key, headers=pairs)


def configure(broker, topic, settings):
    async def change():
        async with Admin(broker.bootstrap_servers) as admin:
            resource = ConfigResource.topic(topic)
            changes = [ConfigChange(name, value) for name, value in settings.items()]
            await admin.alter_configs({resource: changes})

    asyncio.run(change())


def delivered(broker, topic="orders"):
    return sorted(record.value for record in broker.records(topic))


def test_a_record_is_delivered_when_it_is_due(broker, clock):
    """Fails when it is early, late, or comes without its headers."""
    schedule(broker, "v", "1h", key="k", trace="7")
    due_ms = clock.wall_ms() + HOUR_MS
    clock.advance(HOUR_MS - 1)
    assert broker.records("orders") == []
    clock.advance(1)
    [record] = broker.records("orders")
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", due_ms)
    assert record.headers == [
        ("deliver-after", b"1h"),
        ("trace", b"7"),
        ("scheduled-topic", b"later"),
        ("scheduled-partition", b"0"),
        ("scheduled-offset", b"0"),
        ("scheduled-for", b"%d" % due_ms),
    ]


def test_what_fires_next_is_named(broker):
    """Fails when nobody can see what waits."""
    schedule(broker, "v", "90s", key="invoice-7")
    deadline = broker.next_deadline()
    assert deadline.in_ms == 90_000
    assert deadline.why == "the schedule invoice-7 at offset 0 of later-0"


def test_delays_count_from_the_append(broker, clock):
    """Fails when a client with another clock has its records delivered by that."""
    broker.produce("later", "v", headers=[("deliver-after", "1h")], timestamp=0)
    clock.advance(HOUR_MS - 1)
    assert broker.records("orders") == []
    clock.advance(1)
    assert delivered(broker) == [b"v"]


def test_they_come_in_due_order(broker, clock):
    """Fails when what is overdue comes in the order of the log."""
    for value, after in (("c", "3s"), ("a", "1s"), ("b", "2s")):
        schedule(broker, value, after, deliver_partition="1")
    clock.advance(HOUR_MS)
    assert [record.value for record in broker.records("orders", partition=1)] == [b"a", b"b", b"c"]


def test_a_newer_record_replaces_and_a_tombstone_cancels(broker, clock):
    """Fails when an id goes off twice, or what was taken back is delivered."""
    schedule(broker, "old", "1s", key="a")
    schedule(broker, "new", "2s", key="a")
    schedule(broker, "gone", "1s", key="b")
    schedule(broker, None, None, key="b")
    schedule(broker, "one", "1s")
    schedule(broker, "two", "1s")
    clock.advance(HOUR_MS)
    assert delivered(broker) == [b"new", b"one", b"two"]


def test_a_cancel_after_the_release_changes_nothing(broker, clock):
    """Fails when a cancel that is late takes the next schedule of its id with it."""
    schedule(broker, "first", "1s", key="a")
    clock.advance(1000)
    schedule(broker, None, None, key="a")
    schedule(broker, "second", "1s", key="a")
    clock.advance(1000)
    assert delivered(broker) == [b"first", b"second"]


def test_headers_for_key_partition_and_target(broker, clock):
    """Fails when a header is not followed."""
    broker.create_topic("other", partitions=3)
    broker.create_topic("any", config={"schedule.enable": "true"})
    schedule(broker, "v", "0", topic="any", key="id", deliver_to="other", deliver_partition="2")
    schedule(broker, "w", "0", topic="any", key="id2", deliver_to="other", deliver_key="k")
    records = {record.value: record for record in broker.records("other")}
    assert (records[b"v"].partition, records[b"v"].key) == (2, b"id")
    assert records[b"w"].key == b"k"
    # Where a producer of that key would put it.
    assert broker.produce("other", "x", key="k")[0] == records[b"w"].partition


@pytest.mark.parametrize(
    ("topic", "headers", "why"),
    [
        ("later", {"deliver-after": "soon"}, "not a duration"),
        ("later", {}, "none of the headers"),
        ("later", {"deliver-after": "1s", "deliver-to": "other"}, "into orders alone"),
        ("later", {"deliver-after": "1s", "deliver-partition": "2"}, "has 2 partitions"),
        ("any", {"deliver-after": "1s"}, "no header deliver-to"),
        ("any", {"deliver-after": "1s", "deliver-to": "nowhere"}, "no topic 'nowhere'"),
        ("any", {"deliver-after": "1s", "deliver-to": "later"}, "make no chains"),
        ("any", {"deliver-after": "1s", "deliver-to": "any"}, "make no chains"),
        ("any", {"deliver-after": "1s", "deliver-to": "__consumer_offsets"}, "may not be"),
        ("near", {"deliver-after": "2s"}, "schedule.max.delay.ms is 1000"),
    ],
)
def test_what_cannot_be_done_is_refused(broker, topic, headers, why):
    """Fails when a record is taken that will never be delivered, or delivered at once."""
    broker.create_topic("any", config={"schedule.enable": "true"})
    settings = {"schedule.target.topic": "orders", "schedule.max.delay.ms": "1000"}
    broker.create_topic("near", config=settings)
    with pytest.raises(BrokerError, match=why) as raised:
        broker.produce(topic, "v", key="k", headers=headers)
    assert isinstance(raised.value, InvalidRecords)
    assert [index for index, _ in raised.value.record_errors] == [0]
    assert broker.records(topic) == []


def test_repetition_is_caught_up_with_once(broker, clock):
    """Fails when a clock that jumps over many occurrences has all of them delivered."""
    schedule(broker, "tick", None, key="k", repeat="@every 1h")
    start_ms = clock.wall_ms()
    for _ in range(3):
        clock.advance(HOUR_MS)
    clock.advance(10 * HOUR_MS)
    clock.advance(HOUR_MS - 1)
    times = [record.timestamp - start_ms for record in broker.records("orders")]
    assert times == [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS, 4 * HOUR_MS]
    clock.advance(1)
    assert broker.records("orders")[-1].timestamp - start_ms == 14 * HOUR_MS
    schedule(broker, None, None, key="k")
    clock.advance(10 * HOUR_MS)
    assert len(broker.records("orders")) == 5


def test_what_has_expired_is_not_delivered(broker, clock):
    """Fails when a pause brings what nobody wants any more."""
    schedule(broker, "short", "1s", expire_after="5s")
    schedule(broker, "long", "1s", expire_after="1h")
    clock.advance(6000)
    assert delivered(broker) == [b"long"]


def test_a_broker_that_was_down(tmp_path, clock):
    """Fails when a restart forgets schedules, or delivers them again."""
    with odradek.Broker(data_dir=str(tmp_path), clock=clock) as broker:
        broker.create_topic("orders")
        broker.create_topic("later", config={"schedule.target.topic": "orders"})
        schedule(broker, "before", "1s")
        schedule(broker, "gone", "2h", key="a")
        schedule(broker, None, None, key="a")
        clock.advance(1000)
        schedule(broker, "down", "1h")
        schedule(broker, "after", "48h", key="b")
        schedule(broker, "tick", None, key="c", repeat="@every 20h")
    clock.advance(24 * HOUR_MS)
    with odradek.Broker(data_dir=str(tmp_path), clock=clock) as broker:
        assert delivered(broker) == [b"before", b"down", b"tick"]
        broker.restart()
        clock.advance(24 * HOUR_MS)
        assert delivered(broker) == [b"after", b"before", b"down", b"tick", b"tick"]


def test_a_rate_bounds_what_comes_at_once(broker, clock):
    """Fails when a flood of overdue records comes faster than its topic allows, or never ends."""
    configure(broker, "later", {"schedule.release.max.rate": "20"})
    for number in range(60):
        schedule(broker, str(number), "1s")
    clock.advance(1000)
    seen = []
    for _ in range(40):
        seen.append(len(broker.records("orders")))
        clock.advance(100)
    assert seen[0] <= 2
    assert all(later - earlier <= 2 for earlier, later in pairwise(seen))
    assert seen[-1] == 60


def test_a_rate_of_nothing_pauses(broker, clock):
    """Fails when a paused topic delivers, or is not taken up again."""
    configure(broker, "later", {"schedule.release.max.rate": "0"})
    schedule(broker, "v", "1s")
    clock.advance(HOUR_MS)
    assert delivered(broker) == []
    configure(broker, "later", {"schedule.release.max.rate": "-1"})
    clock.advance(1)
    assert delivered(broker) == [b"v"]


def test_a_target_that_refuses_holds_up_nobody(broker, clock):
    """Fails when one record that a target does not take keeps others from theirs."""
    broker.create_topic("small", config={"max.message.bytes": "500"})
    broker.create_topic("any", config={"schedule.enable": "true"})
    schedule(broker, "x" * 1000, "1s", topic="any", deliver_to="small")
    for number in range(3):
        schedule(broker, f"small {number}", "1s", topic="any", deliver_to="small")
    schedule(broker, "elsewhere", "2s", topic="any", deliver_to="orders")
    clock.advance(2000)
    assert delivered(broker, "small") == [b"small 0", b"small 1", b"small 2"]
    assert delivered(broker) == [b"elsewhere"]
    configure(broker, "small", {"max.message.bytes": "5000"})
    clock.advance(60_000)
    assert len(delivered(broker, "small")) == 4


def test_a_target_that_is_made_anew(broker, clock):
    """Fails when what waits for a deleted topic is lost, or its successor is refused for ever."""
    schedule(broker, "first", "1s")
    clock.advance(1000)
    assert delivered(broker) == [b"first"]
    schedule(broker, "second", "1s")
    broker.delete_topic("orders")
    clock.advance(HOUR_MS)
    broker.create_topic("orders")
    clock.advance(10_000)
    assert delivered(broker) == [b"second"]
    schedule(broker, "third", "1s")
    clock.advance(1000)
    assert delivered(broker) == [b"second", b"third"]


def test_a_schedule_topic_that_is_deleted(broker, clock):
    """Fails when something is delivered of a topic that is gone."""
    schedule(broker, "v", "1s")
    broker.delete_topic("later")
    clock.advance(HOUR_MS)
    assert delivered(broker) == []
    broker.create_topic("later", config={"schedule.target.topic": "orders"})
    schedule(broker, "w", "1s")
    clock.advance(HOUR_MS)
    assert delivered(broker) == [b"w"]


def test_a_topic_that_becomes_one_of_schedules(broker, clock):
    """Fails when a setting counts only for topics that are new."""
    broker.create_topic("plain")
    broker.produce("plain", "no schedule")
    configure(broker, "plain", {"schedule.target.topic": "orders"})
    schedule(broker, "v", "1s", topic="plain")
    clock.advance(1000)
    assert delivered(broker) == [b"v"]


def test_retention_keeps_what_is_pending(clock):
    """Fails when old schedules go with their segments, or delivered ones never do."""
    with odradek.Broker(clock=clock) as broker:
        broker.create_topic("orders", config={"retention.ms": "-1"})
        settings = {
            "schedule.target.topic": "orders",
            "retention.ms": "60000",
            "segment.ms": "60000",
            "file.delete.delay.ms": "0",
        }
        broker.create_topic("later", config=settings)
        schedule(broker, "short", "1s")
        clock.advance(120_000)
        schedule(broker, "long", "10h")
        for _ in range(6):
            clock.advance(HOUR_MS)
            schedule(broker, "filler", "1s")
        first = broker.records("later")[0].value
        assert first == b"long"
        clock.advance(10 * HOUR_MS)
        clock.advance(HOUR_MS)
        assert sorted(set(delivered(broker))) == [b"filler", b"long", b"short"]
        assert broker.records("later") == []


def test_marks_fit_into_their_topic(broker, clock):
    """Fails when much that is due at once makes a mark that its own topic is too small for."""
    broker.create_topic("wide", partitions=30)
    settings = {"schedule.target.topic": "wide", "max.message.bytes": "900"}
    broker.create_topic("narrow", config=settings)
    for number in range(120):
        schedule(broker, str(number), "1s", topic="narrow", expire_after=f"{1 + number % 2}s")
    clock.advance(1500)
    assert len(delivered(broker, "wide")) == 60


def test_a_target_that_becomes_a_schedule_topic(broker, clock):
    """Fails when a record goes round and round between schedule topics, or into itself."""
    broker.create_topic("any", config={"schedule.enable": "true"})
    broker.create_topic("plain")
    schedule(broker, "v", "1s", topic="any", deliver_to="plain")
    configure(broker, "plain", {"schedule.enable": "true"})
    clock.advance(1000)
    clock.advance(1000)
    assert broker.records("plain") == []
    configure(broker, "plain", {"schedule.enable": "false"})
    clock.advance(1000)
    assert delivered(broker, "plain") == [b"v"]


def test_a_target_that_is_made_anew_with_fewer_partitions(broker, clock):
    """Fails when what was due waits for a partition that its target will never have again."""
    broker.create_topic("wide", partitions=8)
    settings = {"schedule.target.topic": "wide", "schedule.release.max.rate": "0"}
    broker.create_topic("narrow", config=settings)
    for number in range(8):
        schedule(broker, str(number), "1s", topic="narrow")
    clock.advance(1000)
    broker.delete_topic("wide")
    broker.create_topic("wide", partitions=1)
    configure(broker, "narrow", {"schedule.release.max.rate": "-1"})
    clock.advance(1000)
    assert len(delivered(broker, "wide")) == 8


def test_an_old_record_with_hostile_headers(broker, clock):
    """Fails when what a topic took before it was one of schedules ends the releases of it."""
    broker.create_topic("plain")
    broker.produce("plain", "old", headers={"repeat": f"1-{'9' * 5000} * * * *"})
    configure(broker, "plain", {"schedule.target.topic": "orders"})
    schedule(broker, "v", "1s", topic="plain")
    clock.advance(1000)
    assert delivered(broker) == [b"v"]
