"""`odradek console-share-consumer`: what it prints, and what becomes of the records. If these fail,
a look into a queue loses records, or takes them without a word."""

from collections.abc import Callable, Iterator

import pytest

import odradek
from odradek.cli.main import main
from odradek.client import ConfigChange, ConfigResource
from odradek.client.sync import Admin
from odradek.model import TopicPartition

WHERE = TopicPartition("jobs", 0)
GROUPS = ("console-share-consumer", "others")
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        broker.create_topic("jobs", partitions=1)
        early = ConfigChange("share.auto.offset.reset", "earliest")
        with Admin(broker.bootstrap_servers) as admin:
            for group in GROUPS:
                admin.alter_configs({ConfigResource.group(group): [early]})
        for value in (b"one", b"two", b"three"):
            broker.produce("jobs", value, key=b"k")
        yield broker


@pytest.fixture
def ask(broker: odradek.Broker, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Runs the command; returns its status, what it printed and what it complained of."""

    def call(*words: str) -> tuple[int, str, str]:
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        try:
            status = main(["console-share-consumer", *servers, *words])
        except SystemExit as ended:
            status = int(ended.code or 0)
        told = capfd.readouterr()
        return status, told.out, told.err

    return call


def test_records_are_accepted_as_they_are_printed(broker: odradek.Broker, ask: Ask) -> None:
    shown = (
        "--formatter-property",
        "print.delivery=true",
        "--formatter-property",
        "print.offset=true",
    )
    status, out, err = ask("--topic", "jobs", "--max-messages", "2", *shown)
    assert (status, out) == (0, "Offset:0\tDelivery:1\tone\nOffset:1\tDelivery:1\ttwo\n")
    assert err.endswith("Processed a total of 2 messages\n")
    assert broker.lag("console-share-consumer") == {WHERE: 1}


def test_the_group_may_be_a_property(broker: odradek.Broker, ask: Ask) -> None:
    """Another group would be handed the records, and this one keep them."""
    of_group = ("--command-property", "group.id=others")
    assert ask("--topic", "jobs", "--max-messages", "1", *of_group)[1] == "one\n"
    assert broker.lag("others") == {WHERE: 2}
    status, _, err = ask("--topic", "jobs", "--group", "mine", *of_group)
    assert status == 1
    assert "via '--consumer-config') do not match. Detected group ids: 'mine', 'others'" in err


@pytest.mark.parametrize("tool", ["console-consumer", "console-share-consumer"])
def test_the_end_is_told_to_who_asks_for_it(
    broker: odradek.Broker, tool: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kafka's system tests would wait for the end of a consumer that has ended."""
    words = ["--topic", "jobs", "--max-messages", "1", "--enable-systest-events"]
    words += ["--from-beginning"] if tool == "console-consumer" else []
    assert main([tool, "--bootstrap-server", broker.bootstrap_servers, *words]) == 0
    assert capfd.readouterr().out == "one\nshutdown_complete\n"


def test_records_are_released_or_rejected_instead(broker: odradek.Broker, ask: Ask) -> None:
    others = ("--topic", "jobs", "--group", "others", "--max-messages", "3")
    delivery = ("--formatter-property", "print.delivery=true")
    assert ask(*others, "--release")[:2] == (0, "one\ntwo\nthree\n")
    assert broker.lag("others") == {WHERE: 3}
    status, out, _ = ask(*others, "--reject", *delivery)
    assert (status, out.splitlines()[0]) == (0, "Delivery:2\tone")
    assert broker.lag("others") == {WHERE: 0}
    assert ask("--topic", "jobs", "--group", "others", "--timeout-ms", "1")[1] == ""


def test_a_record_that_cannot_be_printed_is_rejected_if_one_wants(
    broker: odradek.Broker, ask: Ask
) -> None:
    numbers = ("--topic", "jobs", "--group", "others", "--max-messages", "3")
    numbers += ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    status, out, err = ask(*numbers)
    assert (status, out) == (1, "")
    assert "Processed a total of 1 messages" in err
    assert broker.lag("others") == {WHERE: 3}, "what was not printed is gone"
    status, out, err = ask(*numbers, "--reject-message-on-error")
    assert (status, out) == (0, "")
    assert "Processed a total of 3 messages" in err
    assert broker.lag("others") == {WHERE: 0}


def test_wrong_usage_is_told_in_kafkas_words(ask: Ask) -> None:
    assert 'Missing required argument "[topic]"' in ask()[2]
    both = ask("--topic", "jobs", "--reject", "--release")
    assert both[0] != 0
    assert "At most one of --reject and --release may be specified." in both[2]
    assert "there are no Java classes here" in ask("--topic", "jobs", "--formatter", "Mine")[2]
