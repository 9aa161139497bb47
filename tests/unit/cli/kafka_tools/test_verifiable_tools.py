"""The verifiable producer and consumer. If these fail, a system test that is written for Kafka's
reads another event than it waits for, or waits for ever."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.cli.main import AS_KAFKA, OF_SCRIPTS, build_parser, main
from odradek.cli.tools.verifiable import events, producer
from odradek.client.aio.consumer import Consumer
from odradek.client.errors import CommitFailed, FencedInstance, WokenUp
from odradek.model import TopicPartition

Event = dict[str, Any]
Run = Callable[..., list[Event]]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a tool on a broker; returns its events without their times."""

    def run(name: str, broker: odradek.Broker, *words: str, status: int = 0) -> list[Event]:
        capsys.readouterr()
        where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
        assert main([AS_KAFKA, f"verifiable-{name}", *where, *words]) == status
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert all(list(event)[:2] == ["timestamp", "name"] for event in told)
        assert all(event.pop("timestamp") > 0 for event in told)
        return told

    return run


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, int], None]:
    """Sends a signal when an event is told the so-manyth time."""

    def stop(name: str, times: int, number: int) -> None:
        told: list[str] = []
        print_json = events.print_json

        def tell(event: Event) -> None:
            print_json(event)
            told.append(event["name"])
            if event["name"] == name and told.count(name) == times:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(events, "print_json", tell)

    return stop


def names(told: list[Event]) -> list[str]:
    return [event["name"] for event in told]


# --- the producer ---------------------------------------------------------------------------


def test_what_was_sent_is_told_record_by_record(tool: Run) -> None:
    with odradek.Broker() as broker:
        broker.create_topic("t")
        words = ["--max-messages", "3", "--value-prefix", "7", "--repeating-keys", "2"]
        begun, *sent, ended, totals = tool("producer", broker, *words)
        records = broker.records("t")
    assert begun == {"name": "startup_complete"}
    assert [list(event.items()) for event in sent] == [
        [
            ("name", "producer_send_success"),
            ("key", str(number % 2)),
            ("value", f"7.{number}"),
            ("offset", number),
            ("topic", "t"),
            ("partition", 0),
        ]
        for number in range(3)
    ]
    assert ended == {"name": "shutdown_complete"}
    assert totals.pop("avg_throughput") > 0
    assert totals == {"name": "tool_data", "sent": 3, "acked": 3, "target_throughput": -1}
    assert [(each.key, each.value) for each in records] == [
        (b"0", b"7.0"),
        (b"1", b"7.1"),
        (b"0", b"7.2"),
    ]


def test_records_have_the_times_that_they_are_given(tool: Run) -> None:
    """A test of retention sends records that are old already."""
    with odradek.Broker() as broker:
        broker.create_topic("t", config={"retention.ms": "-1"})
        told = tool("producer", broker, "--max-messages", "2", "--message-create-time", "5000")
        records = broker.records("t")
    assert told[1]["key"] is None
    assert records[0].timestamp == 5000
    assert records[1].timestamp >= 5000


def test_what_was_not_sent_is_told_with_its_reason(tool: Run) -> None:
    """It would be looked for among the records, or nobody would know why it is not there."""
    with odradek.Broker() as broker:
        broker.create_topic("t", config={"max.message.bytes": "10"})
        _, failed, _, totals = tool("producer", broker, "--max-messages", "1")
    assert list(failed.items()) == [
        ("name", "producer_send_error"),
        ("topic", "t"),
        ("key", None),
        ("value", "0"),
        ("exception", "class org.apache.kafka.common.errors.RecordTooLargeException"),
        # As the broker gave it.
        ("message", "the record batch has 69 bytes, max.message.bytes is 10"),
    ]
    assert (totals["sent"], totals["acked"]) == (1, 0)


def test_without_acknowledgements_no_offset_is_known(tool: Run) -> None:
    with odradek.Broker() as broker:
        broker.create_topic("t")
        told = tool("producer", broker, "--max-messages", "1", "--acks", "0")
    assert told[1]["offset"] == -1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_producer_in_order(
    tool: Run, stop_at: Callable[[str, int, int], None], number: int
) -> None:
    """Kafka's system tests end it so, and read the last lines."""
    stop_at("producer_send_success", 2, number)
    with odradek.Broker() as broker:
        broker.create_topic("t")
        # Nothing leaves behind the second record: it waits when the signal comes.
        told = tool("producer", broker, "--throughput", "0", status=128 + number)
    sent = ["producer_send_success"] * 2
    assert names(told) == ["startup_complete", *sent, "shutdown_complete", "tool_data"]
    assert (told[-1]["sent"], told[-1]["target_throughput"]) == (2, 0)


def test_a_record_that_waits_when_the_producer_ends_is_told(
    tool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be counted, and nothing be known of it."""

    async def ended(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("odradek.client.aio.producer.Producer._wait_for_metadata", ended)
    with odradek.Broker() as broker:
        told = tool("producer", broker, status=128 + signal.SIGTERM)
    assert names(told)[1:] == ["producer_send_error", "shutdown_complete", "tool_data"]
    assert told[1]["message"] == "Producer closed while send in progress"
    assert (told[-1]["sent"], told[-1]["acked"]) == (1, 0)


def test_the_file_of_a_producer_wins_over_its_flags(
    tool: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in Kafka's tool: a system test gives acks and retries in the file."""
    file = tmp_path / "producer.properties"
    file.write_text("acks=0\n", encoding="utf-8")
    with odradek.Broker() as broker:
        broker.create_topic("t")
        told = tool("producer", broker, "--max-messages", "1", "--command-config", str(file))
        assert told[1]["offset"] == -1
        file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n", encoding="utf-8")
        words = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--max-messages", "1"]
        old = [AS_KAFKA, "verifiable-producer", *words, "--producer.config", str(file)]
        assert main(old) == 0
    warning, _, sent, *_ = capsys.readouterr().out.splitlines()
    assert warning == (
        "Option --producer.config has been deprecated and will be removed in a future version. "
        "Use --command-config instead."
    )
    assert json.loads(sent)["offset"] == 1


def test_a_producer_whose_reader_has_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would send for ever, and write a trace for each record."""

    def gone(event: Event) -> None:
        if event["name"] != "startup_complete":
            raise BrokenPipeError

    monkeypatch.setattr(events, "print_json", gone)
    with odradek.Broker() as broker:
        broker.create_topic("t")
        words = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
        words = ["verifiable-producer", *words, "--throughput", "0"]
        arguments = build_parser(words, OF_SCRIPTS).parse_args(words)
        with pytest.raises(BrokenPipeError):
            producer.run(arguments)


# --- the consumer ---------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_was_read_is_told(tool: Run, protocol: str) -> None:
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v", key=b"k")
        broker.produce("t", "\N{SNOWMAN}".encode() + b"\xff")
        broker.produce("t", b"beyond")
        words = ["--group-id", "g", "--max-messages", "2", "--verbose"]
        told = tool("consumer", broker, *words, "--group-protocol", protocol)
    place = {"topic": "t", "partition": 0}
    assert [list(event.items()) for event in told] == [
        [("name", "startup_complete")],
        [("name", "partitions_assigned"), ("partitions", [place])],
        [
            ("name", "record_data"),
            ("key", "k"),
            ("value", "v"),
            *place.items(),
            ("offset", 0),
        ],
        [
            ("name", "record_data"),
            ("key", None),
            ("value", "\N{SNOWMAN}\N{REPLACEMENT CHARACTER}"),
            *place.items(),
            ("offset", 1),
        ],
        # As many as there were, of which the rest is not wanted.
        [
            ("name", "records_consumed"),
            ("count", 3),
            ("partitions", [{**place, "count": 2, "minOffset": 0, "maxOffset": 1}]),
        ],
        [
            ("name", "offsets_committed"),
            ("offsets", [{**place, "offset": 2}]),
            ("success", True),
        ],
        [("name", "partitions_revoked"), ("partitions", [place])],
        [("name", "shutdown_complete")],
        [("name", "shutdown_requested")],
    ]


def test_with_auto_commit_no_commit_is_told(tool: Run) -> None:
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v")
        words = ["--group-id", "g", "--max-messages", "1", "--enable-autocommit"]
        told = tool("consumer", broker, *words)
        assert broker.lag("g") == {TopicPartition("t", 0): 0}
    assert names(told)[2:4] == ["records_consumed", "partitions_revoked"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_consumer_in_order(
    tool: Run, stop_at: Callable[[str, int, int], None], number: int
) -> None:
    """Its group would wait for the end of its session, and a system test for its last line."""
    stop_at("offsets_committed", 1, number)
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v")
        told = tool("consumer", broker, "--group-id", "g", status=128 + number)
    assert names(told)[-4:] == [
        "offsets_committed",
        "shutdown_requested",
        "partitions_revoked",
        "shutdown_complete",
    ]


def test_a_commit_that_is_interrupted_is_made_and_told(
    tool: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that were read and told would be read again."""
    commit = Consumer.commit
    failures: list[Exception] = [WokenUp("wakeup was called")]

    async def interrupted(self: Consumer, offsets: Any) -> None:
        if failures:
            raise failures.pop()
        await commit(self, offsets)

    monkeypatch.setattr(Consumer, "commit", interrupted)
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v")
        told = tool("consumer", broker, "--group-id", "g")
        assert broker.lag("g") == {TopicPartition("t", 0): 0}
    assert told[3]["success"] is True
    assert names(told)[4:] == ["partitions_revoked", "shutdown_complete", "shutdown_requested"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CommitFailed("the group went on"), ["offsets_committed"]),
        (FencedInstance("another has its name"), []),
    ],
)
def test_a_commit_that_fails_is_told_and_a_member_that_is_fenced_ends(
    tool: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, told: list[str]
) -> None:
    """A system test waits for the member that was fenced to end."""

    async def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(Consumer, "commit", failing)
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v")
        found = tool("consumer", broker, "--group-id", "g", "--max-messages", "1")
    assert names(found)[2:-3] == ["records_consumed", *told]
    if told:
        failed = {"error": "the group went on", "success": False}
        assert list(found[3].items())[2:] == list(failed.items())


def test_the_flags_of_a_consumer_win_over_its_file(tool: Run, tmp_path: Path) -> None:
    """As in Kafka's tool, those that were not given among them: this one begins at the start."""
    file = tmp_path / "consumer.properties"
    file.write_text("group.id=other\nauto.offset.reset=latest\nenable.auto.commit=true\n")
    with odradek.Broker() as broker:
        broker.create_topic("t")
        broker.produce("t", b"v")
        words = ["--group-id", "g", "--max-messages", "1", "--command-config", str(file)]
        assert "offsets_committed" in names(tool("consumer", broker, *words))
        assert broker.lag("g") == {TopicPartition("t", 0): 0}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--group-protocol", "foo"], "foo"),
        (["--reset-policy", "foo"], "foo"),
        (["--assignment-strategy", "com.example.Assignor"], "com.example.Assignor"),
        (
            ["--group-protocol", "consumer", "--session-timeout", "9000"],
            "session.timeout.ms cannot be set when group.protocol=CONSUMER",
        ),
        (["--consumer.config", "/nothing"], "/nothing"),
    ],
)
def test_settings_that_a_consumer_cannot_have_are_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    where = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--group-id", "g"]
    assert main([AS_KAFKA, "verifiable-consumer", *where, *words]) == 1
    said = capsys.readouterr()
    assert reason in said.err
    assert "startup_complete" not in said.out


# --- both -----------------------------------------------------------------------------------

SERVER = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["verifiable-producer", *SERVER], "argument --topic is required"),
        (
            ["verifiable-producer", "--topic", "t"],
            "one of the arguments --bootstrap-server is required",
        ),
        (
            ["verifiable-producer", *SERVER, "--topic", "t", "--acks", "5"],
            "argument --acks: invalid choice: '5' (choose from {0,1,-1})",
        ),
        (
            ["verifiable-producer", *SERVER, "--topic", "t", "--max-messages", "abc"],
            "argument --max-messages: could not convert 'abc' to Integer "
            '(For input string: "abc")',
        ),
        (
            [
                *("verifiable-producer", *SERVER, "--topic", "t"),
                *("--command-config", "a", "--producer.config", "b"),
            ],
            "Options --producer.config and --command-config are mutually exclusive.",
        ),
        (["verifiable-consumer", *SERVER, "--topic", "t"], "argument --group-id is required"),
    ],
)
def test_wrong_usage_is_refused_in_kafkas_words(
    capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    assert main([AS_KAFKA, *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(f": error: {reason}")


@pytest.mark.parametrize("name", ["VerifiableProducer", "VerifiableConsumer"])
def test_a_class_without_a_word_prints_its_help(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([AS_KAFKA, "run-class", f"org.apache.kafka.tools.{name}"])
    assert not ended.value.code
    assert "--max-messages" in capsys.readouterr().out
