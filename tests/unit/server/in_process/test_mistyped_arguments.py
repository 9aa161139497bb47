"""Arguments that a call does not take, and kinds that there are not, are answered in a sentence.

If these fail, whoever mistypes one reads of an `__init__` or of `configure_async`, or waits for a
deadline that never comes.
"""

import asyncio
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import BrokerError


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (odradek.Broker, "Broker has no argument 'conf' (did you mean config?)"),
        (odradek.Cluster, "Cluster has no argument 'conf' (did you mean config?)"),
    ],
)
def test_a_broker_with_an_argument_of_another_name(
    call: Callable[..., object], answer: str
) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(answer)}$"):
        call(conf={})
    with pytest.raises(TypeError, match=re.escape("config={'num.partitions': 3}")):
        call(num_partitions=3)
    with pytest.raises(TypeError, match=r"has no argument 'xyz'$"):
        call(xyz=3)


def test_settings_in_the_place_of_the_data_directory() -> None:
    with pytest.raises(TypeError, match=r"^data_dir is a path; settings go into config=\{\.\.\.\}"):
        odradek.Broker({"num.partitions": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["", " ", ",", "a,,b", "a ", b"", "a\0b", "a\udce4"])
def test_a_data_directory_that_is_no_path(path: Any) -> None:
    """Records would go to /tmp/kafka-logs, or into another directory: blanks around a path do not
    count."""
    with pytest.raises(ValueError, match=r"^(data_dir is |Invalid value )"):
        odradek.Broker(data_dir=path)


@pytest.mark.parametrize("name", ["log.dirs", "log.dir", "broker.id", "listeners"])
def test_settings_that_arguments_decide(name: str) -> None:
    """Records would go elsewhere than was said, or clients be sent to another port, in silence."""
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} has no place in config: "):
        odradek.Broker(config={name: "7"})
    with odradek.Broker() as broker:
        snapshot = broker.snapshot()
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} has no place in config: "):
        odradek.Broker.from_snapshot(snapshot, config={name: "7"})
    if name != "listeners":
        with pytest.raises(ValueError, match=rf"^{re.escape(name)} has no place in config: "):
            odradek.Cluster(config={name: "7"})


def test_a_secret_setting_as_an_argument_is_not_shown() -> None:
    """Fails when a password stands in the error, and so in the report of the test."""
    any_broker: Any = odradek.Broker
    with pytest.raises(TypeError, match=r"config=\{'ssl.key.password': \.\.\.\}"):
        any_broker(ssl_key_password="gregor-and-grete")


def test_a_topics_settings_as_arguments() -> None:
    async def main() -> None:
        async with odradek.Broker() as broker:
            await broker.create_topic_async("orders")
            any_broker: Any = broker
            for call in (any_broker.configure_async, any_broker.create_topic_async):
                with pytest.raises(TypeError, match=re.escape("config={'retention.ms': 1}")):
                    await call("orders", retention_ms=1)
                with pytest.raises(TypeError, match=r"'confg' \(did you mean config\?\)"):
                    await call("orders", confg={})

    asyncio.run(main())


@pytest.mark.parametrize(
    "call",
    [
        *("create_topic", "configure", "delete_topic", "produce", "produce_many", "records"),
        *("wait_for", "to_arrow"),
    ],
)
@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
def test_settings_in_the_place_of_a_topic(maker: Callable[[], Any], call: str) -> None:
    """The answer would be that a dictionary cannot be hashed."""
    more = {"produce": ["x"], "produce_many": [["x"]], "wait_for": [1]}.get(call, [])
    with maker() as broker:
        with pytest.raises(TypeError, match=r"^a topic is named by text, and not ") as refused:
            getattr(broker, call)({"a-password": 1}, *more)
        assert "a-password" not in str(refused.value)


@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
@pytest.mark.parametrize(
    ("call", "given", "answer"),
    [
        ("produce", ("x", None, "a"), "headers is a mapping or a list of pairs, and str is none"),
        (
            "produce",
            ("x", None, [("a", "b", "c")]),
            "headers is a mapping or a list of pairs, and tuple is none",
        ),
        ("produce", ("x", None, 7), "headers is a list of pairs, and not of type int"),
        ("produce", ("x", None, [(b"a", b"b")]), "headers are named by text, and not by bytes"),
        ("produce", ("x", None, (), "now"), "timestamp is a whole number, and not of type str"),
        ("produce", ("x", None, (), 2**63), "timestamp is a number of milliseconds with 64 bits, "),
        ("produce", ("x", None, (), None, "0"), "partition is a whole number, and not of type str"),
        ("produce_many", ("abc",), "produce_many takes a list of values, and not one of type str"),
        ("produce_many", ({"a": 1},), "produce_many takes a list of values, and not one of type "),
        ("produce_many", (None,), "produce_many takes a list of values, and not one of type None"),
        ("produce_many", ([("a", "b", "c")],), "a record is a value, or a pair of key and value, "),
        ("produce_many", (["a"], 0.5), "partition is a whole number, and not of type float"),
        ("records", ("0",), "partition is a whole number, and not of type str"),
        ("wait_for", ("1",), "n is a whole number, and not of type str"),
        ("wait_for", (None,), "n is a whole number, and not of type NoneType"),
        ("wait_for", (1, "soon"), "timeout is a number of seconds, and not of type str"),
        ("wait_for", (1, float("nan")), "timeout is a number of seconds, and not nan"),
        ("wait_for_group", ("Stable", "1"), "members is a whole number, and not of type str"),
        ("wait_for_group", ("Stable", 1, "x"), "timeout is a number of seconds, and not of "),
        ("wait_for_lag", ("0",), "at_most is a whole number, and not of type str"),
        ("wait_for_lag", (0, True), "timeout is a number of seconds, and not of type bool"),
        ("reset", ({"orders": 1},), "offsets are reset by topic and partition, and not by str"),
        ("reset", ({("orders", "0"): 1},), "partition is a whole number, and not of type str"),
        ("reset", ({("orders", 0): "1"},), "to is a whole number, and not of type str"),
        ("reset", (1.5, ["orders"]), "to is a whole number, and not of type float"),
        ("reset", ("earliest", 7), "topics is a list of names, and not of type int"),
        ("reset", ("earliest", [7]), "a topic is named by text, and not by a value of type int"),
        ("create_topic", ("3",), "partitions is a whole number, and not of type str"),
    ],
)
def test_a_call_with_a_value_of_a_wrong_kind(
    maker: Callable[[], Any], call: str, given: tuple[Any, ...], answer: str
) -> None:
    """The answer would be of an `int` and a `str` that cannot be compared, three letters be three
    records, or a call wait in vain."""
    with maker() as broker:
        broker.create_topic("orders")
        with pytest.raises((TypeError, ValueError), match=f"^{re.escape(answer)}"):
            getattr(broker, call)("letters" if call == "create_topic" else "orders", *given)
        assert broker.end_offsets() == {("orders", 0): 0}


class NumberOfNumPy:
    """Such a number is no `int`, which compiled code and databases want."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


def test_numbers_that_are_no_ints(tmp_path: Path) -> None:
    number: Any = NumberOfNumPy
    soon: Any = Decimal(60)
    cent: Any = Fraction(1, 100)
    with odradek.Broker(tmp_path) as broker:
        broker.create_topic("orders", number(2))
        broker.delay(number(0), topic="orders", partition=number(1))
        assert broker.produce("orders", "x", timestamp=number(5), partition=number(1)) == (1, 0)
        assert broker.produce_many("orders", ["y"], number(1)) == [(1, 1)]
        assert broker.records("orders", number(1))[0].timestamp == 5
        assert len(broker.wait_for("orders", number(2), timeout=soon)) == 2
        with pytest.raises(TimeoutError, match=r" after 0\.01 s$"):
            broker.wait_for("orders", 3, timeout=cent)
        wanted: Any = {("orders", number(1)): number(1)}
        assert broker.reset("billing", wanted) == {("orders", 1): 1}
        assert broker.lag("billing") == {("orders", 1): 1}
        assert broker.wait_for_lag("billing", number(1), soon) == {("orders", 1): 1}


@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
@pytest.mark.parametrize(
    "call", ["group", "share_group", "lag", "wait_for_lag", "wait_for_group", "reset"]
)
def test_what_is_no_name_of_a_group(maker: Callable[[], Any], call: str) -> None:
    """It would be a group that is dead, or be waited for in vain."""
    more = ["earliest"] if call == "reset" else []
    with maker() as broker:
        for group in (7, None, b"a-password", ["a-password"]):
            with pytest.raises(TypeError, match=r"^a group is named by text, and not by ") as told:
                getattr(broker, call)(group, *more)
            assert "a-password" not in str(told.value)


def test_what_is_no_broker_or_partition_of_a_cluster() -> None:
    """The answer would be of an `int` and a `str` that cannot be compared."""
    with odradek.Cluster(2) as cluster:
        cluster.create_topic("orders")
        any_cluster: Any = cluster
        for call in (cluster.broker, cluster.kill, cluster.expire_session):
            any_call: Any = call
            for broker in ("1", None, 1.5):
                with pytest.raises(TypeError, match=r"^broker_id is a whole number, and not of "):
                    any_call(broker)
        for call in (any_cluster.leader, any_cluster.move_leader, any_cluster.partition_state):
            with pytest.raises(TypeError, match=r"^partition is a whole number, and not of type "):
                call("orders", "0")


def test_what_is_no_column_or_member() -> None:
    """Each letter would be a column."""
    pytest.importorskip("pyarrow", reason="PEER MISSING, NOT TESTED: pyarrow")
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        any_broker: Any = broker
        for columns in ("key", 7):
            with pytest.raises(TypeError, match=r"^columns is a list of names, and not of type "):
                any_broker.to_arrow("orders", columns=columns)
        with pytest.raises(TypeError, match=r"^partition is a whole number, and not of type str$"):
            any_broker.to_arrow("orders", "0")
        with pytest.raises(
            TypeError, match=r"^a member is named by text, and not by a value of type int$"
        ):
            any_broker.expire_member("billing", 7)


@pytest.mark.parametrize("argument", ["start", "end", "as_of"])
def test_what_is_no_moment_in_a_topic(argument: str) -> None:
    """The answer would be of a number without `keys`."""
    pytest.importorskip("pyarrow", reason="PEER MISSING, NOT TESTED: pyarrow")
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        for moment in (7, b"earliest", ["earliest"]):
            any_moment: Any = {argument: moment}
            answer = rf"^{argument} is a time, earliest, latest or offsets by partition, and not "
            with pytest.raises(TypeError, match=answer):
                broker.to_arrow("orders", **any_moment)


def test_a_question_about_what_is_no_name() -> None:
    with odradek.Broker() as broker:
        for kind in ("group", "topic", "client", "transaction"):
            asked: Any = {kind: b"billing"}
            with pytest.raises(
                TypeError, match=f"^a {kind} is named by text, and not by a value of type bytes$"
            ):
                broker.explain(**asked)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"api": 7}, "api is the name of an API, or a list of names, and not of type int"),
        ({"api": [7]}, "the API is named by text, and not by a value of type int"),
        ({"error": 7}, "the error is named by text, and not by a value of type int"),
        ({"topic": b"orders"}, "topic is a text, and not of type bytes"),
        ({"group": 7}, "group is a text, and not of type int"),
        ({"client_id": ["app"]}, "client_id is a text, and not of type list"),
        ({"broker_id": "1"}, "broker_id is a whole number, and not of type str"),
        ({"partition": 0}, "a partition is one of a topic: give topic, too"),
    ],
)
def test_a_fault_that_no_request_would_meet(given: dict[str, Any], answer: str) -> None:
    """It would be waited for in vain; or every request meet it, where a partition was meant."""
    with odradek.Broker() as broker:
        any_broker: Any = broker
        with pytest.raises((TypeError, ValueError), match=f"^{answer}"):
            any_broker.fail(**{"api": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER", **given})
        assert broker.faults() == ()


def test_a_fault_with_a_value_of_a_wrong_kind() -> None:
    with odradek.Broker() as broker:
        any_broker: Any = broker
        with pytest.raises(TypeError, match=r"^ms is a whole number, and not of type str$"):
            any_broker.delay("5", "Fetch")
        with pytest.raises(TypeError, match=r"^times is a whole number, and not of type str$"):
            any_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", "2")
        fault = broker.slow_disk(1)
        with pytest.raises(TypeError, match=r"^timeout is a number of seconds, and not of "):
            any_broker.wait_for_fault(fault, timeout="1")


def test_offsets_of_a_partition_that_is_not_there() -> None:
    """A mistyped partition would be a group's offset that no reset takes away again."""
    with odradek.Broker() as broker:
        broker.create_topic("orders")
        with pytest.raises(BrokerError, match=r"there is no partition orders-9$"):
            broker.reset("billing", {("orders", 9): 1})
        assert broker.groups() == {}


def test_a_kind_of_deadline_that_is_mistyped() -> None:
    with odradek.Broker(clock=odradek.ManualClock()) as broker:
        assert broker.next_deadline("DelayedFetch") is None
        assert broker.next_deadline("PeriodicTask") is not None
        for call in (broker.next_deadline, broker.advance_to_next_deadline):
            with pytest.raises(ValueError, match=r"'DelayedFetsh' \(did you mean DelayedFetch\?\)"):
                call("DelayedFetsh")
            with pytest.raises(ValueError, match="no kind of deadline called 'Typo'"):
                call("Typo")


@pytest.mark.parametrize("brokers", ["3", "localhost:9092", {"num.partitions": 3}, 2.5, None, True])
def test_what_is_no_number_of_brokers(brokers: Any) -> None:
    with pytest.raises(TypeError, match=r"^a cluster is made of a number of brokers, such as 3, "):
        odradek.Cluster(brokers)


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
@pytest.mark.parametrize(
    ("argument", "answer"),
    [
        ({"config": ["a-password"]}, "config is a mapping of settings to their values, and not "),
        ({"acls": "User:alice read topic:orders"}, "acls is a list, one text an ACL, and not "),
        ({"quotas": ["user:alice"]}, "quotas is a mapping of entities to their values, and not "),
        ({"quotas": {"user:alice": 5}}, "quotas['user:alice'] is a mapping of quotas to "),
        (
            {"security": "plain", "users": {5: "a-password"}},
            "the name of a user is a text, not int",
        ),
    ],
)
def test_what_is_no_mapping_or_list(
    maker: Callable[..., object], argument: dict[str, Any], answer: str
) -> None:
    """The answer would be of a list without `get`, or that "U" is no ACL."""
    with pytest.raises(TypeError, match=f"^{re.escape(answer)}") as refused:
        maker(**argument)
    assert "a-password" not in str(refused.value)


WRONG_KINDS: Any = (7.5, True, object(), b"a-password", ["a-password", 7], {7: "a-password"})


@pytest.mark.parametrize(
    ("maker", "argument", "taken", "answer"),
    [
        (odradek.Broker, "data_dir", [b"a-password"], r"data_dir is a path"),
        (odradek.Broker, "listeners", [], r"listeners is a list of texts, and "),
        (odradek.Broker, "port", [], r"port is a number, such as 9092, and not of type "),
        (odradek.Broker, "broker_id", [], r"broker_id is a number, and not of type "),
        (odradek.Cluster, "racks", [], r"racks is a list of texts, and "),
        *(
            row
            for each in (odradek.Broker, odradek.Cluster)
            for row in (
                (each, "config", [], r"config (is a mapping of|names) settings "),
                (
                    each,
                    "clock",
                    [],
                    r"clock is a clock, such as odradek\.ManualClock\(\), and not ",
                ),
                (each, "security", [], r'security is a word, such as "scram", and not of type '),
                (each, "seed", [7.5, True, b"a-password"], r"seed is a number, and not of type "),
                (each, "quotas", [], r"quotas (is a mapping of|names) entities "),
                (
                    each,
                    "acls",
                    [["a-password", 7]],
                    r"(acls is a list of ACLs|an ACL is a text or an AclBinding), and not of ",
                ),
            )
        ),
    ],
)
def test_a_value_of_a_wrong_kind(
    maker: Callable[..., object], argument: str, taken: Any, answer: str
) -> None:
    """Fails when a broker is made that cannot start, or the answer is of an `int` that cannot be
    iterated over, or shows the value."""
    for value in WRONG_KINDS:
        if value not in taken:
            with pytest.raises(TypeError, match=f"^{answer}") as refused:
                maker(**{argument: value})
            assert "a-password" not in str(refused.value)


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
def test_the_class_of_a_clock_is_none(maker: Any) -> None:
    """It has every reading by name, so that the start would fail."""
    with pytest.raises(TypeError, match=r"^clock is a clock, .* the class of some: ManualClock\("):
        maker(clock=odradek.ManualClock)


def test_one_text_in_the_place_of_racks() -> None:
    """Each letter would be the rack of a broker."""
    with pytest.raises(TypeError, match=r"^racks is a list of texts, and not of type str$"):
        odradek.Cluster(racks="eu")


@pytest.mark.parametrize("bound", [None, [7], "seven"])
def test_a_quota_that_is_no_number(bound: Any) -> None:
    """The answer would not say which of the quotas it is about."""
    answer = r"^quotas\['user:gregor'\]\['producer_byte_rate'\] is a number, and not "
    with pytest.raises((TypeError, ValueError), match=answer):
        odradek.Broker(quotas={"user:gregor": {"producer_byte_rate": bound}})


def test_a_snapshot_that_is_no_path() -> None:
    with pytest.raises(TypeError, match=r"^snapshot is a path, and not of type int$"):
        odradek.Broker.from_snapshot(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
def test_a_topics_settings_that_are_no_mapping(maker: Callable[[], Any]) -> None:
    """The answer would be that there is no setting called "r"."""
    answer = r"^config (is a mapping of|names) settings "
    with maker() as broker:
        broker.create_topic("orders", config=None)
        broker.configure("orders", config=None)
        for call, name in ((broker.create_topic, "letters"), (broker.configure, "orders")):
            for config in ("retention.ms", ["retention.ms"], 7, {7: 1}):
                with pytest.raises(TypeError, match=answer):
                    call(name, config=config)


@pytest.mark.parametrize("maker", [odradek.Broker, lambda: odradek.Cluster(brokers=1)])
def test_a_setting_of_a_topic_that_is_mistyped(maker: Callable[[], Any]) -> None:
    """The topic would be another one than the test is about."""
    answer = r"there is no topic setting called 'retention.mss' \(did you mean retention\.ms\?\)"
    with maker() as broker:
        broker.create_topic("orders")
        for call, name in ((broker.create_topic, "letters"), (broker.configure, "orders")):
            with pytest.raises(BrokerError, match=answer):
                call(name, config={"retention.mss": 1})
