"""Places, conditions, formats, tables and frames of the commands for people.

If these fail, somebody looks at other records, or at other numbers, than the flags say.
"""

import argparse
import asyncio
import copy
import json
import os
from dataclasses import replace
from datetime import datetime

import pytest

from odradek.cli.everyday import produce
from odradek.cli.everyday.conditions import parse_condition
from odradek.cli.everyday.flags import flags_first
from odradek.cli.everyday.group_lags import GroupLag, PartitionLag
from odradek.cli.everyday.groups import by_partition, overview
from odradek.cli.everyday.monitoring.cluster_view import Sample, View, view_of
from odradek.cli.everyday.monitoring.top import TopScreen, frame_lines
from odradek.cli.everyday.places import Base, Place, parse_place
from odradek.cli.everyday.record_formats import json_line, line_for_people, parse_format
from odradek.cli.everyday.words import duration_words, number_words, size_words
from odradek.cli.main import main
from odradek.cli.standard_input import read_lines
from odradek.cli.tools.client_properties import refuse_unknown
from odradek.client.core.admin_types import GroupDescription, TransactionDescription
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.core.metadata import Node, PartitionMetadata, TopicMetadata
from odradek.model import TopicPartition

NOW_MS = 1_700_000_000_000
ORDER = (
    b'{"user": {"id": 7, "name": "Josef K."}, "items": [{"price": 3}, {"price": 12}], "a b": 1, '
    b'"paid": true}'
)
RECORD = ConsumerRecord(
    "orders", 3, 42, NOW_MS, 0, b"k\x1b1", ORDER, [("trace", b"abc"), ("empty", None)], 5
)
ORDERS = TopicPartition("orders", 0)


def changed(**fields: object) -> ConsumerRecord:
    """The record with other contents."""
    record = copy.copy(RECORD)
    for name, content in fields.items():
        setattr(record, name, content)
    return record


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("start", Place(Base.START, 0)),
        ("end", Place(Base.END, 0)),
        ("42", Place(Base.ZERO, 42)),
        ("-10", Place(Base.END, -10)),
        ("+5", Place(Base.START, 5)),
        ("@1700000000000", Place(Base.TIME, NOW_MS)),
        ("@-1h30m", Place(Base.TIME, NOW_MS - 5_400_000)),
        ("@-99999999999999999999d", Place(Base.TIME, 0)),
        ("@2024-05-01T12:00:00+00:00", Place(Base.TIME, 1_714_564_800_000)),
        ("@2024-05-01", Place(Base.TIME, int(datetime(2024, 5, 1).timestamp() * 1000))),
    ],
)
def test_places_are_read(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["soon", "@", "@tomorrow", "@99999999999999999999", "--1", ""])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        parse_place(text, NOW_MS)


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ("offset=42", True),
        ("offset>=43", False),
        ("partition<4", True),
        (f"timestamp={NOW_MS}", True),
        ("key~^k", True),
        ("key!~^k", False),
        ("value~Josef", True),
        ("value.user.id=7", True),
        ('value.user.id="7"', False),
        ("value.user.name=Josef K.", True),
        ('value.user.name = "Josef K."', True),
        ("value.user.name!=Josef K.", False),
        ("value.user.name>Anna", True),
        ("value.items[*].price>10", True),
        ("value.items[0].price>10", False),
        ("value.items[-1].price>10", True),
        ("value.items[9].price", False),
        ('value["a b"]=1', True),
        ("value.paid=true", True),
        ("value.paid=1", False),
        ("value.user", True),
        ("value.nothing", False),
        ("value.nothing!=1", True),
        ("value.user>1", False),
        ("header.trace", True),
        ("header.trace=abc", True),
        ("header.empty", False),
        ("header.empty=null", True),
        ("header.absent=null", False),
    ],
)
def test_conditions(condition: str, is_met: bool) -> None:
    assert parse_condition(condition)(RECORD) is is_met


def test_what_is_no_json_meets_no_condition_about_json() -> None:
    broken = changed(value=b"{\xff")
    tombstone = changed(value=None)
    deep = changed(value=b"[" * 100_000)
    assert not parse_condition("value[0]=7")(deep)
    assert parse_format("%v{json}")(deep) == deep.value
    assert not parse_condition("value.user.id=7")(broken)
    assert not parse_condition("value.user.id=7")(tombstone)
    assert parse_condition("value=null")(tombstone)


@pytest.mark.parametrize("text", ["", "cost>3", "value..a=1", "offset.x=1", "header=1", "key~("])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|needs its name|has no path"):
        parse_condition(text)


def test_a_format_shows_what_its_fields_say() -> None:
    show = parse_format(r"%t %p %o %e %T %K %V %S %H %%|%k{hex}|%k|%h|%d{%Y}\t\x41\n")
    size = str(len(ORDER)).encode()
    assert show(RECORD) == (
        b"orders 3 42 5 1700000000000 3 " + size + b" " + size + b" 2 %|6b1b31|k\x1b1|"
        b"trace=abc,empty=|2023\tA\n"
    )
    null = changed(value=None)
    assert parse_format("%v{base64}%V")(null) == b"-1"
    assert parse_format("%k{int}")(changed(key=b"\xff\xfe")) == b"-2"
    assert parse_format("%v{json}")(RECORD) == json.dumps(json.loads(ORDER), indent=2).encode()


@pytest.mark.parametrize("text", ["%y", "%v{xml}", r"\q", "%", "end\\"])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"there is no|can be shown|ends within"):
        parse_format(text)


def test_a_line_for_people_gives_the_terminal_nothing_that_it_obeys() -> None:
    plain = line_for_people(shows_topic=True, colours=False)(RECORD).decode()
    assert plain.startswith("orders 3@42 2023-")
    assert "\x1b" not in plain
    assert r"k\x1b1" in plain
    coloured = line_for_people(shows_topic=False, colours=True)(changed(value=b"\xff"))
    assert b"\x1b[36m" in coloured
    assert coloured.endswith(b" 0xff\n")


def test_a_record_as_json_says_what_is_no_text() -> None:
    shown = json.loads(json_line(changed(value=b"\xff", key=None)))
    assert (shown["key"], shown["value_base64"]) == (None, "/w==")
    assert shown["headers"] == [{"name": "trace", "value": "abc"}, {"name": "empty", "value": None}]


def test_numbers_are_told_as_people_read_them() -> None:
    assert [number_words(each) for each in (None, 0, 1.25, 1234567)] == [
        "-",
        "0",
        "1.2",
        "1,234,567",
    ]
    assert [size_words(each) for each in (None, 12, 1500, 2.5e9)] == [
        "-",
        "12 B",
        "1.5 kB",
        "2.5 GB",
    ]
    durations = (None, 250, 12_000, 3_600_000, 185_000, 187_200_000)
    assert [duration_words(each) for each in durations] == [
        *("-", "250 ms", "12s", "1h", "3m 5s", "2d 4h")
    ]


def group(name: str, committed: int, end: int, next_ms: int | None = None) -> GroupLag:
    """A group in one partition."""
    description = GroupDescription(
        name, "Classic", "consumer", "Stable", "range", (), Node(1, "h", 9)
    )
    return GroupLag(description, (PartitionLag(ORDERS, committed, end, None, next_ms),))


def test_groups_tell_their_lag_in_records_and_in_time() -> None:
    behind = group("behind", 10, 25, NOW_MS - 65_000)
    head, row = overview([behind], NOW_MS, colours=False)
    assert head.split() == ["GROUP", "TYPE", "STATE", "MEMBERS", "TOPICS", "LAG", "TIME", "LAG"]
    assert row.split() == ["behind", "classic", "Stable", "0", "1", "15", "1m", "5s"]
    assert by_partition(behind, NOW_MS, colours=False)[2].split()[:6] == [
        *("orders", "0", "10", "25", "15", "1m")
    ]
    assert group("even", 25, 25).lag_ms(NOW_MS) == 0
    assert group("unseen", 10, 25).lag_ms(NOW_MS) is None


def sample(at_ms: int, end: int, committed: int) -> Sample:
    """A cluster of two brokers with a topic, one replica of which is missing."""
    partition = PartitionMetadata(1, 0, (1, 2), (1,))
    topic = TopicMetadata("orders", None, False, {0: partition})
    internal = TopicMetadata("__consumer_offsets", None, True, {0: PartitionMetadata(-1)})
    open_since = TransactionDescription(
        "payments", 1, "Ongoing", 60_000, NOW_MS - 5000, 7, 0, frozenset({ORDERS})
    )
    return Sample(
        at_ms,
        NOW_MS,
        "a-cluster",
        2,
        (Node(2, "b", 9092), Node(1, "a", 9092)),
        {"orders": topic, "__consumer_offsets": internal},
        {ORDERS: end},
        {(1, ORDERS): end * 100, (2, ORDERS): 50},
        (group("readers", committed, end),),
        (open_since,),
    )


def test_rates_are_those_between_two_samples() -> None:
    first = view_of(sample(1000, 100, 0), None)
    assert first.topics[1].records_per_s is None
    view = view_of(sample(3000, 300, 50), sample(1000, 100, 0))
    orders = view.topics[0]
    assert (orders.name, orders.records_per_s, orders.bytes_per_s) == ("orders", 100, 10_000)
    assert [(each.node.id, each.is_controller, each.leads) for each in view.brokers] == [
        (1, False, 1),
        (2, True, 0),
    ]
    assert (view.groups[0].lag, view.groups[0].records_per_s) == (250, 25)
    assert view.waiting == (
        "transaction payments is Ongoing since 5s: readers of 1 partition wait",
        "orders-0 waits for the replicas on 2",
        "__consumer_offsets-0 waits for a leader",
    )
    made_anew = view_of(sample(3000, 10, 0), sample(1000, 100, 0))
    assert made_anew.topics[0].records_per_s == 0


@pytest.fixture
def busy() -> View:
    """More topics and groups than any terminal has rows."""
    view = view_of(sample(3000, 300, 50), sample(1000, 100, 0))
    topics = tuple(replace(view.topics[0], name=f"topic-{each}") for each in range(200))
    groups = tuple(replace(view.groups[0], name=f"group-{each}") for each in range(200))
    return replace(view, topics=topics + view.topics, groups=groups)


@pytest.mark.parametrize(("columns", "rows"), [(200, 60), (80, 24), (40, 24)])
def test_a_frame_fits_its_terminal(busy: View, columns: int, rows: int) -> None:
    """Lines that wrap, or are scrolled off, are a picture that nobody can read."""
    screen = TopScreen()
    screen.show(busy)
    lines = screen.frame(columns, rows, colours=False)
    assert len(lines) < rows
    assert max(map(len, lines)) <= columns
    assert lines[-1].startswith("q quit")
    for title in ("BROKER", "TOPIC", "GROUP", "WAITING"):
        assert any(line.startswith(title) for line in lines), title
    assert any(line.startswith("and ") for line in lines)


def test_colours_are_asked_for(busy: View) -> None:
    assert "\x1b[" not in "".join(frame_lines(busy))
    assert "\x1b[1m" in frame_lines(busy, colours=True)[0]


def test_keys_of_the_screen(busy: View) -> None:
    async def press() -> None:
        screen = TopScreen()
        screen.show(busy)
        assert not any("__consumer_offsets " in line for line in screen.frame(80, 1000))
        screen.press("i")
        screen.press("?")
        assert any("__consumer_offsets " in line for line in screen.frame(80, 1000))
        screen.press(" ")
        assert screen.frame(80, 30)[-1].endswith("(paused)")

    asyncio.run(press())


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "-o", "soon"],
        ["consume", "t", "-w", "cost>3"],
        ["consume", "t", "-f", "%y"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "-o", "42"],
        ["consume", "t", "-f", "%v", "--format", "json"],
        ["produce", "t", "-H", "none"],
        ["produce", "t", "-i", "json", "-K", ":"],
        ["produce", "t", "--key-from", "user"],
        ["top", "--every", "0"],
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"odradek {words[0]}: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "read"),
    [
        ("orders -p 7 a b", {"topic": "orders", "partition": 7, "file": ["a", "b"]}),
        ("-p 7 orders a -Z b -", {"topic": "orders", "file": ["a", "b", "-"], "null": True}),
        ("orders --key=-k -- -odd", {"topic": "orders", "key": "-k", "file": ["-odd"]}),
        ("orders", {"topic": "orders", "file": ["-"]}),
    ],
)
def test_flags_may_stand_anywhere(words: str, read: dict[str, object]) -> None:
    """A file behind a flag would be refused, or taken for the topic."""
    parser = argparse.ArgumentParser()
    produce.add_arguments(parser)
    arguments = vars(parser.parse_args(flags_first(parser, words.split())))
    assert {name: arguments[name] for name in read} == read


def test_lines_come_from_a_pipe() -> None:
    """Wherever the pipe is cut, the lines are whole."""

    async def through_a_pipe() -> list[bytes]:
        reading, writing = os.pipe()
        found: list[bytes] = []

        async def read() -> None:
            found.extend([line async for line in read_lines(reading)])

        task = asyncio.create_task(read())
        for data in (b"one\ntw", b"o\n\nlast"):
            await asyncio.sleep(0)
            os.write(writing, data)
        os.close(writing)
        await task
        os.close(reading)
        return found

    assert asyncio.run(through_a_pipe()) == [b"one", b"two", b"", b"last"]


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd", "ssl.keymanager.algorithm"),
        *("ssl.trustmanager.algorithm", "ssl.secure.random.implementation"),
        *("sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.expected.audience"),
        *("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.scope.claim.name"),
        *("metrics.context.team", "config.providers.file.class", "key.serializer"),
    ],
)
def test_a_setting_of_kafkas_clients_is_not_taken_for_a_mistyped_one(name: str) -> None:
    refuse_unknown([name])
