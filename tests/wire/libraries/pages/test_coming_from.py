"""The page for those who come from other libraries, held by what is installed of these.

If these fail, somebody looks for a call or a setting and does not find it, or finds a replacement
that is not there.
"""

import inspect
import re
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import aio as confluent_aio
from confluent_kafka.admin import AdminClient

from odradek.client import Admin, Consumer, ConsumerRecord, Producer, settings, sync

PAGE = Path(__file__).parents[4].joinpath("docs/client/coming-from.md").read_text(encoding="utf-8")
# Whose calls, under which head of a table, and what takes its place.
CALLS: list[tuple[type, str, type]] = [
    (AIOKafkaConsumer, "AIOKafkaConsumer", Consumer),
    (AIOKafkaProducer, "AIOKafkaProducer", Producer),
    (AIOKafkaAdminClient, "AIOKafkaAdminClient", Admin),
    (confluent_kafka.Producer, "confluent_kafka.Producer", sync.Producer),
    (confluent_kafka.SerializingProducer, "confluent_kafka.Producer", sync.Producer),
    (confluent_aio.AIOProducer, "confluent_kafka.Producer", Producer),
    (confluent_kafka.Consumer, "confluent_kafka.Consumer", sync.Consumer),
    (confluent_kafka.DeserializingConsumer, "confluent_kafka.Consumer", sync.Consumer),
    (confluent_aio.AIOConsumer, "confluent_kafka.Consumer", Consumer),
    (confluent_kafka.ShareConsumer, "confluent_kafka.ShareConsumer", sync.ShareConsumer),
    (AdminClient, "confluent_kafka.admin.AdminClient", sync.Admin),
    (confluent_kafka.Message, "confluent_kafka.Message", ConsumerRecord),
    (kafka.KafkaConsumer, "KafkaConsumer", sync.Consumer),
    (kafka.KafkaProducer, "KafkaProducer", sync.Producer),
    (kafka.KafkaAdminClient, "KafkaAdminClient", sync.Admin),
]
TABLES = {
    Consumer: settings.CONSUMER_SETTINGS,
    Producer: settings.PRODUCER_SETTINGS,
    Admin: settings.ADMIN_SETTINGS,
}
# Whose settings, what is asked for them, their table, ours.
SETTINGS: list[tuple[str, list[str], str, type]] = [
    *(
        (kind.__name__, [*inspect.signature(kind).parameters], "settings of all three", ours)
        for kind, ours in (
            (AIOKafkaConsumer, Consumer),
            (AIOKafkaProducer, Producer),
            (AIOKafkaAdminClient, Admin),
        )
    ),
    *(
        (kind.__name__, [*kind.DEFAULT_CONFIG], "settings of kafka-python's", ours)
        for kind, ours in (
            (kafka.KafkaConsumer, Consumer),
            (kafka.KafkaProducer, Producer),
            (kafka.KafkaAdminClient, Admin),
        )
    ),
]


def table_of(head: str) -> str:
    """The table of the page whose first column is called that."""
    [table] = [each for each in PAGE.split("\n\n") if each.startswith(f"| {head} |")]
    return table


def has(ours: type, name: str) -> bool:
    """Whether ours have a method of that name, or an attribute."""
    return hasattr(ours, name) or name in inspect.signature(ours).parameters


@pytest.mark.parametrize(("theirs", "head", "ours"), CALLS)
def test_every_call_is_on_the_page(theirs: type, head: str, ours: type) -> None:
    """And what is said to be the same is there."""
    table = table_of(f"`{head}`")
    named = set(re.findall(r"\w+", table))
    for name in dir(theirs):
        is_call = not name.startswith("_") and not name.isupper()
        is_constant = name.startswith("DEFAULT_")
        assert not is_call or is_constant or name in named, f"{head}.{name} is not mapped"
    same, _, _ = table.splitlines()[-1].partition(" | the same")
    for name in re.findall(r"`(\w+)`", same):
        assert has(ours, name), f"{name} is said to be the same"


@pytest.mark.parametrize(("theirs", "head", "ours"), CALLS)
def test_every_call_that_takes_the_place_of_one_is_there(
    theirs: type, head: str, ours: type
) -> None:
    del theirs
    anybodys = [ours, Admin, sync.Admin, Consumer, sync.Consumer, Producer]
    for row in table_of(f"`{head}`").splitlines()[2:-1]:
        replacement = row.rstrip(" |").rpartition(" | ")[2]
        for name in re.findall(r"(?<![\w.\"])([a-z]\w+)\(", replacement):
            assert any(has(each, name) for each in anybodys), f"{head}: {name} of {row}"


@pytest.mark.parametrize(("whose", "names", "head", "ours"), SETTINGS)
def test_every_setting_is_on_the_page(whose: str, names: list[str], head: str, ours: type) -> None:
    """Names missing there are said to be the same: a login would be unknown."""
    table = table_of(head)
    named = set(re.findall(r"\w+", table_of(f"`{whose}`") + table))
    same = {*inspect.signature(ours).parameters, *(e.replace(".", "_") for e in TABLES[ours])}
    missing = {*names} - named - same
    assert not missing, f"{whose} takes {missing}, which is not mapped"
    for name in re.findall(r"`((?:sasl|ssl)_\w+)[`=]", re.sub(r"(?m)^\|[^|]*\|", "", table)):
        assert name in same, f"{name} takes the place of a setting"


def test_records_can_be_changed_as_the_page_says() -> None:
    [row] = [each for each in PAGE.splitlines() if "`set_headers(..)`" in each]
    ours = row.rpartition(" | ")[2]
    record = ConsumerRecord("t", 0, 0, 0, 0, b"k", b"v", None, -1)
    for name in re.findall(r"`(\w+)`", ours.partition("change the list")[0]):
        setattr(record, name, "other")
    record.headers.append(("a", b"1"))
    assert (record.key, record.topic, record.value) == ("other",) * 3
    assert record.headers == [("a", b"1")]
