"""`odradek schedules` and `broker.schedules`: what is pending, and what can be done about it."""

import json
from datetime import UTC, datetime, timedelta

import pytest

import odradek
from odradek.cli.main import main
from odradek.client.core.producing.delivery_time import with_delivery_time
from odradek.client.sync import Producer
from odradek.clock import ManualClock

HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    return ManualClock(wall_ms=1_700_000_000_000)


@pytest.fixture
def broker(clock):
    with odradek.Broker(clock=clock) as made:
        made.create_topic("orders")
        made.create_topic("others")
        made.create_topic("later", config={"schedule.target.topic": "orders"})
        yield made


@pytest.fixture
def ask(broker, capsys):
    """Runs the command; returns its status and what it printed, errors last."""

    def call(*words):
        status = main(["schedules", *words, "-b", broker.bootstrap_servers])
        return status, "".join(capsys.readouterr())

    return call


def schedule(broker, key, value="v", **headers):
    pairs = [(name.replace("_", "-"), text) for name, text in headers.items()]
    broker.produce("later", value, key=key, headers=pairs)


def test_what_is_pending_is_listed(broker, ask, clock):
    """Fails when the command and the broker disagree about what is to come, or when."""
    schedule(broker, "b", deliver_after="2h")
    schedule(broker, "a", deliver_after="1h", expire_after="3h")
    schedule(broker, "gone", deliver_after="1h")
    schedule(broker, "gone", value=None)
    schedule(broker, "past", deliver_after="0")
    schedule(broker, "c", repeat="@every 3h")
    found = broker.schedules("later")
    assert [(each.key, each.due_ms - clock.wall_ms(), each.repeats) for each in found] == [
        (b"a", HOUR_MS, False),
        (b"b", 2 * HOUR_MS, False),
        (b"c", 3 * HOUR_MS, True),
    ]
    status, out = ask("list", "later", "--format", "json")
    rows = json.loads(out)
    assert (status, [row["id"] for row in rows]) == (0, ["a", "b", "c"])
    assert rows[0]["due"] == "2023-11-14T23:13:20.000Z"
    assert [row["expires_ms"] for row in rows] == [clock.wall_ms() + 3 * HOUR_MS, None, None]
    status, out = ask("list", "later")
    assert out.splitlines()[1].split() == [
        *("a", "0", "1", "2023-11-14T23:13:20.000Z", "0", "ms", "orders", "pending")
    ]
    assert ask("list", "later", "--to", "others", "--format", "json")[1] == "[]\n"


def test_one_is_described(broker, ask):
    """Fails when somebody cannot see what will be delivered."""
    schedule(broker, "a", value="tea", deliver_after="1h")
    status, out = ask("describe", "later", "a", "--format", "json")
    facts = json.loads(out)
    assert (status, facts["value"], facts["headers"]) == (0, "tea", {"deliver-after": "1h"})
    assert "value: tea" in ask("describe", "later", "a")[1].splitlines()


def test_one_is_cancelled(broker, ask, clock):
    """Fails when what was cancelled is delivered, or nobody is told that it was too late."""
    schedule(broker, "a", deliver_after="1h")
    assert ask("cancel", "later", "a") == (0, "")
    assert broker.schedules("later") == []
    assert ask("cancel", "later", "a") == (1, "odradek: no schedule 'a' is pending\n")
    clock.advance(HOUR_MS)
    assert broker.records("orders") == []


def test_one_is_run_now(broker, ask, clock):
    """Fails when it is not delivered at once, or its repetition ends with that."""
    schedule(broker, "a", deliver_at="2040-01-01T00:00:00Z")
    schedule(broker, "b", repeat="@every 1h")
    for name in ("a", "b"):
        assert ask("run-now", "later", name) == (0, "")
    clock.advance(1)
    assert [record.key for record in broker.wait_for("orders", 2)] == [b"a", b"b"]
    clock.advance(2 * HOUR_MS)
    assert [record.key for record in broker.records("orders")] == [b"a", b"b", b"b"]


def test_a_topic_is_paused_and_resumed(broker, ask, clock):
    """Fails when a paused topic delivers, or does not go on."""
    assert ask("pause", "later") == (0, "")
    schedule(broker, "a", deliver_after="1h")
    clock.advance(HOUR_MS)
    assert broker.records("orders") == []
    assert len(broker.schedules("later")) == 1
    assert ask("resume", "later", "--rate", "5") == (0, "")
    clock.advance(1000)
    assert len(broker.records("orders")) == 1


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("list", "orders"), 1, "orders is no schedule topic"),
        (("list", "zzz"), 1, "there is no topic 'zzz'\n"),
        (("describe", "latr", "x"), 1, "there is no topic 'latr' (did you mean later?)\n"),
        (("pause", "latr"), 1, "there is no topic 'latr' (did you mean later?)\n"),
        (("pause", "orders"), 1, "orders is no schedule topic"),
        (("describe", "later", "x"), 1, "no schedule 'x' is pending"),
        (("resume", "later", "--rate", "fast"), 1, "Not a number"),
    ],
)
def test_what_cannot_be_done(ask, words, status, told):
    """Fails when a mistake goes unnoticed."""
    found, out = ask(*words)
    assert (found, told in out) == (status, True), out


@pytest.mark.parametrize(
    "words", [("describe", "later"), ("list", "later", "x"), ("look", "later")]
)
def test_wrong_usage(ask, words):
    """Fails when a command that names too little or too much does something."""
    with pytest.raises(SystemExit) as raised:
        ask(*words)
    assert raised.value.code == 2


def test_our_producer_puts_off(broker, clock):
    """Fails when a delay of our producer is not the one that was asked for."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_and_wait("later", b"v", key=b"a", deliver_after="90s")
        producer.send_and_wait("later", b"v", key=b"b", deliver_after=timedelta(microseconds=1))
        moment = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC) + timedelta(hours=1)
        producer.send_and_wait("later", b"v", key=b"c", deliver_at=moment)
    delays = {each.key: each.due_ms - clock.wall_ms() for each in broker.schedules("later")}
    assert delays == {b"a": 90_000, b"b": 1, b"c": HOUR_MS}


def test_headers_that_put_off():
    """Fails when given headers are lost, or two times are taken for one."""
    assert with_delivery_time({"a": b"b"}, 5, None) == [("a", b"b"), ("deliver-after", b"5")]
    assert with_delivery_time(None, None, 7) == [("deliver-at", b"7")]
    with pytest.raises(ValueError, match="only one"):
        with_delivery_time((), 5, 7)
    with pytest.raises(ValueError, match="no zone"):
        with_delivery_time((), None, datetime(2030, 1, 1))


def test_other_topics_are_none_of_schedules(broker):
    """Fails when an ordinary topic has schedules."""
    with pytest.raises(ValueError, match="orders is no schedule topic"):
        broker.schedules("orders")
