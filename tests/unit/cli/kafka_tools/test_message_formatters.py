"""How console consumers print records. If these fail, a script is shown more, less or something
else than Apache Kafka's tools show."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import odradek
from odradek.cli.main import main
from odradek.client import ConfigChange, ConfigResource
from odradek.client.sync import Admin, Producer

FLAG = "--formatter-property"
Shown = Callable[..., str]


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def shown(broker: odradek.Broker, capfd: pytest.CaptureFixture[str]) -> Shown:
    """The console consumer's output for the first records of a topic."""

    def call(topic: str, count: int, *words: str) -> str:
        where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
        begin = ["--from-beginning", "--max-messages", str(count)]
        capfd.readouterr()
        assert main(["console-consumer", *where, *begin, *words]) == 0
        return capfd.readouterr().out

    return call


@pytest.mark.parametrize(
    ("more", "expected"),
    [((), ""), (("line.separator=;",), ""), (("print.key=true",), "k\nk\n")],
)
def test_a_record_of_which_nothing_is_shown_has_no_line(
    broker: odradek.Broker, shown: Shown, more: tuple[str, ...], expected: str
) -> None:
    """Counting records without their values would give no lines."""
    for _ in range(2):
        broker.produce("t", b"v", key=b"k")
    words = [word for each in ("print.value=false", *more) for word in (FLAG, each)]
    assert shown("t", 2, *words) == expected


def shown_objects(broker: odradek.Broker, shown: Shown, topic: str, formatter: str) -> list[dict]:
    """The output for all records that a topic holds now, one partition after the other: reading
    without naming one joins a group, which is a record of `__consumer_offsets` itself."""
    counts = Counter(record.partition for record in broker.records(topic))
    words = "--formatter", formatter, "--partition"
    texts = [shown(topic, counts[each], *words, str(each)) for each in sorted(counts)]
    return objects("".join(texts))


def objects(text: str) -> list[dict]:
    """The JSON objects that stand one behind the other."""
    decoder, found, position = json.JSONDecoder(), [], 0
    while position < len(text):
        value, position = decoder.raw_decode(text, position)
        found.append(value)
    return found


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
    ],
)
def test_committed_offsets_are_shown(broker: odradek.Broker, shown: Shown, name: str) -> None:
    broker.produce("t", b"v")
    broker.reset("g", "earliest", ["t"])
    (found,) = shown_objects(broker, shown, "__consumer_offsets", name)
    assert found["key"] == {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
    assert found["value"]["version"] == 4
    assert found["value"]["data"] | {"commitTimestamp": 0, "topicId": ""} == {
        "offset": 0,
        "leaderEpoch": -1,
        "metadata": "",
        "commitTimestamp": 0,
        "topicId": "",
    }


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter",
        "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter",
    ],
)
def test_groups_are_shown(broker: odradek.Broker, shown: Shown, name: str) -> None:
    broker.produce("t", b"v")
    shown("t", 1, "--group", "g")
    found = shown_objects(broker, shown, "__consumer_offsets", name)
    assert {each["key"]["type"] for each in found} == {2}
    of_it = [each["value"]["data"] for each in found if each["key"]["data"] == {"group": "g"}]
    assert [member["clientId"] for each in of_it for member in each["members"]]


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
        "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter",
    ],
)
def test_transactions_are_shown(broker: odradek.Broker, shown: Shown, name: str) -> None:
    where = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "id"}
    broker.create_topic("t")
    with Producer(where) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"v")
    found = shown_objects(broker, shown, "__transaction_state", name)
    assert all(each["key"] == {"type": 0, "data": {"transactionalId": "id"}} for each in found)
    states = [each["value"]["data"]["transactionStatus"] for each in found]
    assert states[0] == 0, "empty at first"
    assert states[-1] == 4, "committed in the end"


def test_what_is_held_of_share_groups_is_shown(broker: odradek.Broker, shown: Shown) -> None:
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
    broker.produce("t", b"v")
    early = ConfigChange("share.auto.offset.reset", "earliest")
    with Admin(broker.bootstrap_servers) as admin:
        admin.alter_configs({ConfigResource.group("g"): [early]})
    assert main(["console-share-consumer", *where, "--max-messages", "1", "--group", "g"]) == 0
    package = "org.apache.kafka.tools.consumer"
    for topic, name in (
        ("__share_group_state", f"{package}.group.share.ShareGroupStateMessageFormatter"),
        ("__consumer_offsets", f"{package}.ShareGroupMessageFormatter"),
    ):
        found = shown_objects(broker, shown, topic, name)
        assert found
        assert {each["key"]["data"]["groupId"] for each in found} == {"g"}


def test_what_is_no_such_record_is_passed_over_or_named(
    broker: odradek.Broker, shown: Shown, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stack trace, or the end of the output, would stand where the next record should."""
    group = ["--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"]
    for key in (None, b"\x00\x03\x00\x01g", b"\x00\x63"):
        broker.produce("t", b"v", key=key)
    assert shown("t", 3, *group) == ""
    broker.produce("t", b"v", key=b"\x00")
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--from-beginning"]
    assert main(["console-consumer", *where, "--max-messages", "4", *group]) == 1
    assert "Could not read record at offset 3 due to: " in capfd.readouterr().err
    assert shown("t", 4, *group, "--skip-message-on-error") == ""


STRING = "org.apache.kafka.common.serialization.StringDeserializer"


@pytest.mark.parametrize(
    ("option", "data", "expected"),
    [
        ("value.deserializer.encoding=ISO-8859-1", b"Z\xfcrich", "Zürich\n"),
        ("deserializer.encoding=windows-1252", b"\x80 5", "€ 5\n"),
        ("deserializer.encoding=UTF-16", b"\x20\xac", "€\n"),
        ("deserializer.encoding=UTF-16", b"\xff\xfe\xac\x20", "€\n"),
        ("value.deserializer.encoding=UTF-16LE", b"\xac\x20", "€\n"),
        ("key.deserializer.encoding=UTF-16", "€".encode(), "€\n"),
    ],
)
def test_text_is_shown_in_its_encoding(
    broker: odradek.Broker, shown: Shown, option: str, data: bytes, expected: str
) -> None:
    """Other letters would be shown than were written, without a word."""
    broker.produce("t", data)
    words = [FLAG, f"value.deserializer={STRING}", FLAG, f"value.deserializer.{option}"]
    assert shown("t", 1, *words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["--key-deserializer", "com.example.LongDeserializer"],
        ["--value-deserializer", "com.example.Mine"],
        [FLAG, f"headers.deserializer={STRING}x"],
        [
            *("--value-deserializer", STRING),
            *(FLAG, "value.deserializer.deserializer.encoding=EBCDIC-9"),
        ],
    ],
)
def test_a_deserializer_that_is_not_here_is_told(
    broker: odradek.Broker, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Bytes are shown as they are, as by Kafka's tool: nobody would know why."""
    broker.produce("t", b"v", key=b"k")
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--from-beginning"]
    more = ["--max-messages", "1", FLAG, "print.key=true"]
    assert main(["console-consumer", *where, *more, *words]) == 0
    said = capfd.readouterr()
    assert said.out == "k\tv\n"
    assert said.err.startswith("Unable to instantiate a deserializer from ")


@pytest.mark.parametrize("tool", ["console-consumer", "console-share-consumer"])
def test_a_consumer_that_has_not_begun_tells_no_count(
    broker: odradek.Broker, capfd: pytest.CaptureFixture[str], tool: str
) -> None:
    """A setting that it cannot have would look like a topic in which nothing is."""
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
    assert main([tool, *where, "--command-property", "max.poll.records=x"]) == 1
    assert capfd.readouterr().err == (
        "Invalid value x for configuration max.poll.records: Not a number of type INT\n"
    )


@pytest.mark.parametrize("tool", ["console-consumer", "console-share-consumer"])
def test_a_formatter_of_somebody_elses_is_not_taken_for_kafkas(
    broker: odradek.Broker, capfd: pytest.CaptureFixture[str], tool: str
) -> None:
    where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", "t"]
    with pytest.raises(SystemExit):
        main(
            [
                tool,
                *where,
                "--timeout-ms",
                "1",
                "--formatter",
                "com.example.DefaultMessageFormatter",
            ]
        )
    assert "there are no Java classes here" in capfd.readouterr().err
