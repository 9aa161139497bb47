"""Headers of schedules: what is read, and what is refused with a sentence."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from odradek.replication.schedule.instructions import delivered_key, read_instructions
from odradek.replication.schedule.marks import Mark, MarkKind, Target, build_marks
from odradek.replication.schedule.state import ScheduleListener, ScheduleState
from odradek.replication.schedule.times import (
    LATEST_MS,
    Unreadable,
    parse_duration,
    parse_moment,
)

NOW_MS = int(datetime(2024, 2, 28, 12, tzinfo=UTC).timestamp()) * 1000
HOUR_MS = 3_600_000


def read(key=b"k", value=b"v", **headers):
    pairs = [(name.replace("_", "-"), text.encode()) for name, text in headers.items()]
    return read_instructions(key, value, pairs, NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (str(LATEST_MS), LATEST_MS),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00.5-05:00", 500),
        ("1970-01-01t00:00:00.0001z", 1),
        ("2024-02-29T00:00:00Z", NOW_MS + 12 * HOUR_MS),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_moments(text, expected):
    """Fails when a moment is read wrongly, or is rounded down and delivered early."""
    assert parse_moment(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tomorrow", "RFC 3339"),
        ("", "RFC 3339"),
        ("-1", "RFC 3339"),
        ("2030-01-31T09:00:00", "RFC 3339"),
        ("2030-01-31", "RFC 3339"),
        ("2023-02-29T00:00:00Z", "calendar"),
        ("2030-01-31T24:00:00Z", "calendar"),
        ("2030-01-31T09:00:00+24:00", "calendar"),
        ("2030-01-31T09:00:00+01:75", "calendar"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        (str(LATEST_MS + 1), "2^63"),
        ("9" * 31, "RFC 3339"),
    ],
)
def test_moments_that_are_none(text, why):
    """Fails when something unreadable gets a time, or is refused without a reason."""
    with pytest.raises(Unreadable, match=why.replace("^", r"\^")):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1500", 1500),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1500),
        ("0.0001s", 1),
        ("2w1d", 15 * 24 * HOUR_MS),
        ("PT1M30S", 90_000),
        ("P1DT0.5S", 24 * HOUR_MS + 500),
        ("p1w", 7 * 24 * HOUR_MS),
    ],
)
def test_durations(text, expected):
    """Fails when a duration is read wrongly."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-1s", "90 s", "1y", "P", "PT", "P1Y", "P1M", "PT5", "soon", "1e3", "٣s"]
)
def test_durations_that_are_none(text):
    """Fails when something unreadable counts as a delay."""
    with pytest.raises(Unreadable, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", [f"{LATEST_MS}s", "9" * 30 + "w", str(LATEST_MS + 1)])
def test_durations_without_end(text):
    """Fails when a delay overflows, which is how others deliver at once what is due in 25 days."""
    with pytest.raises(Unreadable, match="2\\^63"):
        parse_duration(text)


def test_what_a_record_asks_for():
    """Fails when a header is overlooked."""
    found = read(deliver_after="90s", deliver_to="t", deliver_partition="2", expire_after="2m")
    assert found[:4] == (NOW_MS + 90_000, "t", 2, NOW_MS + 120_000)
    assert found.repeat is None


def test_the_last_of_several_headers_counts():
    """Fails when one who sends a record again cannot put it off by another header behind."""
    headers = [("deliver-after", b"1s"), ("deliver-after", b"2s"), ("deliver-key", b"a")]
    assert read_instructions(b"k", b"v", headers, NOW_MS).due_ms == NOW_MS + 2000
    assert delivered_key(b"k", [*headers, ("deliver-key", None)]) is None
    assert delivered_key(b"k", headers) == b"a"
    assert delivered_key(b"k", []) == b"k"


def test_a_record_without_a_value_cancels():
    """Fails when a tombstone schedules something, or one that cancels nothing is taken."""
    assert read(value=None) is None
    with pytest.raises(Unreadable, match="neither key nor value"):
        read(key=None, value=None)
    with pytest.raises(Unreadable, match="cancels the schedule of its key; not deliver-after"):
        read(value=None, deliver_after="1s")


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({}, "none of the headers"),
        ({"deliver_at": "1", "deliver_after": "1s"}, "only one can count"),
        ({"deliver_at": "soon"}, "deliver-at: 'soon'"),
        ({"deliver_after": str(LATEST_MS)}, "deliver-after: .* 2\\^63"),
        ({"deliver_after": "1s", "expire_at": "1"}, "expire at 1, before it is due"),
        ({"deliver_after": "1s", "expire_after": "never"}, "expire-after: 'never'"),
        ({"deliver_after": "1s", "deliver_partition": "-1"}, "deliver-partition"),
        ({"deliver_after": "1s", "deliver_partition": "4294967296"}, "deliver-partition"),
        ({"deliver_after": "1s", "repeat_zone": "UTC"}, "needs a repeat"),
        ({"repeat": "@every 0"}, "never end"),
        ({"repeat": "@every 5m", "repeat_zone": "UTC"}, "says nothing"),
    ],
)
def test_what_cannot_be_done(headers, why):
    """Fails when a record is taken that would wait for ever, or go off at once."""
    with pytest.raises(Unreadable, match=why):
        read(**headers)


def test_a_header_that_is_no_text():
    """Fails when bytes that nobody can read end in an exception of ours."""
    with pytest.raises(Unreadable, match="no text in UTF-8"):
        read_instructions(b"k", b"v", [("deliver-at", b"\xff")], NOW_MS)


def test_every_is_caught_up_with_once():
    """Fails when a broker that was down for a day delivers what is missing one by one."""
    repeat = read(repeat="@every 1h").repeat
    assert repeat(NOW_MS, NOW_MS) == NOW_MS + HOUR_MS
    assert repeat(NOW_MS, NOW_MS + 24 * HOUR_MS + 5) == NOW_MS + 25 * HOUR_MS
    assert repeat(LATEST_MS - 1, NOW_MS) == -1


class TestCron:
    pytestmark = pytest.mark.usefixtures("cronsim")

    @pytest.fixture
    def cronsim(self):
        return pytest.importorskip("cronsim")

    def at(self, text, zone, *start):
        repeat = read(repeat=text, **({"repeat_zone": zone} if zone else {})).repeat
        start_ms = int(datetime(*start, tzinfo=UTC).timestamp()) * 1000
        found = repeat(start_ms, start_ms)
        return datetime.fromtimestamp(found / 1000, UTC).strftime("%m-%d %H:%M:%S")

    def test_occurrences(self):
        """Fails when fields are misread, seconds or leap days among them."""
        assert self.at("*/5 * * * *", None, 2024, 3, 1) == "03-01 00:05:00"
        assert self.at("*/10 * * * * *", None, 2024, 3, 1) == "03-01 00:00:10"
        assert self.at("0 0 29 2 *", None, 2024, 3, 1) == "02-29 00:00:00"

    def test_days_on_which_clocks_are_changed(self):
        """Fails when an occurrence is skipped or doubled in spring and autumn."""
        assert self.at("30 2 * * *", "Europe/Berlin", 2024, 3, 30, 12) == "03-31 01:00:00"
        assert self.at("30 2 * * *", "Europe/Berlin", 2024, 10, 26, 12) == "10-27 00:30:00"
        assert self.at("30 2 * * *", "Europe/Berlin", 2024, 10, 27, 0, 30) == "10-28 01:30:00"

    @pytest.mark.parametrize("text", ["x", "* * * *", "61 * * * *", "0 0 30 2 *", ""])
    def test_what_is_no_cron(self, text):
        """Fails when nonsense is taken."""
        with pytest.raises(Unreadable, match="neither @every"):
            read(repeat=text)

    def test_a_zone_that_is_none(self):
        """Fails when a misspelt zone counts as UTC."""
        for zone in ("Mars/Olympus", "../../etc/passwd", "/etc/localtime"):
            with pytest.raises(Unreadable, match="no zone"):
                read(repeat="* * * * *", repeat_zone=zone)


@pytest.mark.parametrize("header", ["deliver-after", "deliver-to", "repeat", "repeat-zone"])
def test_long_headers_are_not_read(header):
    """Fails when a header of megabytes is taken apart, or told again in the complaint about it."""
    headers = {"repeat": "@every 1h", header: "1s" * 513}
    with pytest.raises(Unreadable, match=f"{header} has 1026 bytes") as raised:
        read(**{name.replace("-", "_"): text for name, text in headers.items()})
    assert len(str(raised.value)) < 100


def test_a_number_of_cron_without_end(monkeypatch):
    """Fails when a number that is too long to be read is no complaint about its record."""
    monkeypatch.setattr("odradek.replication.schedule.instructions._MOST_BYTES", 10_000)
    with pytest.raises(Unreadable, match="nor cron"):
        read(repeat=f"1-{'9' * 5000} * * * *")


def test_sequences_of_a_producer_that_went_are_forgotten():
    """Fails when a target that refuses for years leaves behind a number for each refusal."""
    target = Target("t", UUID(int=1), 0)
    state = ScheduleState(ScheduleListener())
    release = Mark(MarkKind.RELEASE, target, producer_id=7, sequence=5)
    state.replay(build_marks([release], NOW_MS))
    assert state.next_sequence(7, target) == 5
    state.position = 0
    state.replay(build_marks([release, Mark(MarkKind.RETURNED, target, 7)], NOW_MS))
    assert state.next_sequence(7, target) == 0
