"""If these fail, a topic as a table in Python is not the topic, or not the one of its moment."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import odradek
from odradek.cli.main import main
from odradek.tables.topic import Topic

FIRST_MS = 1_700_000_000_000


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(FIRST_MS / 1000 + seconds, UTC)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[odradek.Broker]:
    """Two partitions of ten records, a second between two of them; a third that is empty."""
    with odradek.Broker() as broker:
        broker.create_topic("orders", partitions=3, config={"retention.ms": "-1"})
        for number in range(20):
            broker.produce(
                "orders", f"v{number}", key=f"k{number}", headers={"n": str(number)},
                partition=number % 2, timestamp=FIRST_MS + number * 1000,
            )  # fmt: skip
        yield broker


def values(table: Any) -> list[str]:
    return [value.decode() for value in table.column("value").to_pylist()]


@pytest.fixture
def everywhere(broker: odradek.Broker) -> list[Any]:
    """The same calls to a topic behind its broker, and to the broker in this process."""

    class InProcess:
        def to_arrow(self, **wanted: Any) -> Any:
            return broker.to_arrow("orders", **wanted)

    return [Topic("orders", bootstrap_servers=broker.bootstrap_servers), InProcess()]


EVEN = [f"v{number}" for number in range(0, 20, 2)]
ODD = [f"v{number}" for number in range(1, 20, 2)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, EVEN + ODD),
        ({"start": {0: 8}}, EVEN[8:] + ODD),
        ({"end": {0: 2}}, EVEN[:2] + ODD),
        ({"as_of": {0: 2}}, EVEN[:2]),
        ({"start": at(16), "end": at(19)}, ["v16", "v18", "v17"]),
        ({"as_of": at(3)}, ["v0", "v2", "v1"]),
        ({"as_of": at(100)}, EVEN + ODD),
        ({"start": at(100)}, []),
        ({"start": "latest"}, []),
        ({"end": "earliest"}, []),
    ],
)
def test_a_stretch_of_a_topic(everywhere: list[Any], wanted: Any, expected: list[str]) -> None:
    for topic in everywhere:
        assert values(topic.to_arrow(**wanted)) == expected


def test_columns_in_the_order_they_are_asked_for(everywhere: list[Any]) -> None:
    for topic in everywhere:
        table = topic.to_arrow(columns=["offset", "key"], as_of={1: 1})
        assert table.to_pydict() == {"offset": [0], "key": [b"k1"]}


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"columns": ["values"]}, "no column 'values'"),
        ({"end": "latest", "as_of": "latest"}, "end or as_of"),
        ({"start": "yesterday"}, "neither earliest nor latest"),
        ({"as_of": {7: 1}}, "no partition 7"),
        ({"end": datetime(2026, 1, 1)}, "no time zone"),
    ],
)
def test_what_cannot_be_meant_is_refused(everywhere: list[Any], wanted: Any, reason: str) -> None:
    for topic in everywhere:
        with pytest.raises(ValueError, match=reason):
            topic.to_arrow(**wanted)


def test_a_moment_that_is_kept_gives_the_same_records_later() -> None:
    """A job could not be repeated on what it has read."""
    with odradek.Broker() as broker:
        broker.create_topic("grows")
        broker.produce_many("grows", ["a", "b"])
        topic = Topic("grows", bootstrap_servers=broker.bootstrap_servers)
        moment = topic.offsets()
        broker.produce("grows", "c")
        assert moment == {0: 2}
        assert values(topic.to_arrow(as_of=moment)) == ["a", "b"]
        assert values(topic.to_arrow(start=moment)) == ["c"]
        assert topic.offsets(datetime(2020, 1, 1, tzinfo=UTC)) == {0: 0}


def test_data_frames(broker: odradek.Broker) -> None:
    topic = Topic("orders", bootstrap_servers=broker.bootstrap_servers)
    assert list(topic.to_pandas(as_of={0: 2}, columns=["offset"]).offset) == [0, 1]
    polars = pytest.importorskip("polars", reason="PEER MISSING, NOT TESTED: polars")
    assert isinstance(topic.to_polars(columns=["value"]), polars.DataFrame)
    assert broker.to_polars("orders", as_of={0: 2})["value"].to_list() == [b"v0", b"v2"]


def test_without_polars_it_says_what_to_install(
    broker: odradek.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.delitem(sys.modules, "odradek.tables.polars_frames", raising=False)
    with pytest.raises(ImportError, match=r"odradek\[polars\]"):
        broker.to_polars("orders")


def export(broker: odradek.Broker, target: Path, *more: str) -> int:
    where = ["-b", broker.bootstrap_servers, "--topic", "orders", "--to", str(target)]
    return main(["export", *where, *more])


def test_a_topic_as_a_file(broker: odradek.Broker, tmp_path: Path) -> None:
    for ending in ("parquet", "arrow", "csv", "jsonl"):
        assert export(broker, tmp_path / f"orders.{ending}", "--as-of", "0:3,1:1") == 0
    parquet = pyarrow.parquet.read_table(tmp_path / "orders.parquet")
    assert parquet == broker.to_arrow("orders", as_of={0: 3, 1: 1})
    assert pyarrow.feather.read_table(tmp_path / "orders.arrow") == parquet
    csv = pyarrow.csv.read_csv(tmp_path / "orders.csv").to_pydict()
    assert csv["value"] == ["v0", "v2", "v4", "v1"]
    assert json.loads(csv["headers"][1]) == [{"name": "n", "value": "2"}]
    lines = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert lines[3]["value"] == "v1"
    assert lines[3]["timestamp"] == FIRST_MS + 1000
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix == ".partial"] == []


def test_lines_of_an_export_are_those_of_consume(
    broker: odradek.Broker, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`odradek produce --input json` would not take one of them."""
    assert export(broker, tmp_path / "orders.jsonl", "--end", "1:0", "--start", "0:9") == 0
    exported = json.loads((tmp_path / "orders.jsonl").read_text())
    assert b"orders.jsonl: 1 record, " in capfdbinary.readouterr().err
    words = ["-b", broker.bootstrap_servers, "-p", "0", "-o", "9", "--format", "json", "orders"]
    assert main(["consume", *words]) == 0
    del exported["timestampType"]
    assert exported == json.loads(capfdbinary.readouterr().out)


def test_csv_does_not_make_text_of_bytes(
    broker: odradek.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.create_topic("bytes")
    broker.produce("bytes", b"\xff\xfe")
    target = tmp_path / "bytes.csv"
    where = ["-b", broker.bootstrap_servers, "--topic", "bytes", "--to", str(target)]
    assert main(["export", *where]) == 1
    assert "value that is no text" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "status", "reason"),
    [
        (["--columns", "values"], 2, "no column 'values'"),
        (["--start", "0:1", "--as-of", "5:1"], 2, "no partition 5"),
    ],
)
def test_a_wrong_export_is_refused_in_a_line(
    broker: odradek.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    flags: list[str], status: int, reason: str,
) -> None:  # fmt: skip
    assert export(broker, tmp_path / "orders.csv", *flags) == status
    assert reason in capsys.readouterr().err


def test_a_mistyped_topic_of_a_directory_is_answered_with_the_one_that_was_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of a broker's files would have to list them to see the name."""
    with odradek.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders")
    where = ["--data-dir", str(tmp_path / "data"), "--to", str(tmp_path / "orders.csv")]
    assert main(["export", "--topic", "oders", *where]) == 1
    told = "there is no topic 'oders' in the path (did you mean orders?)"
    assert capsys.readouterr().err == f"odradek export: {told}\n"


@pytest.mark.parametrize("flags", [["--to", "x.txt"], ["--to", "x.csv", "--start", "0"]])
def test_wrong_flags_end_with_2(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["export", "-b", "h:1", "--topic", "t", *flags])
    assert caught.value.code == 2
