"""Fixtures that pytest knows as soon as the package is installed, and a section in its reports.

`odradek_broker` is a fresh broker for one test, `odradek_module_broker` one that the tests of a
file share, `odradek_session_broker` one that all tests of a session share; all are
`odradek.Broker`, started. `odradek_topic` is a topic of one test's own on the session's broker.
`odradek_cluster` is a fresh `odradek.Cluster` of three brokers for one test. A test that asks for
`odradek_clock` has its `odradek_broker` or `odradek_cluster` on that clock; a test file that
overrides `odradek_config`, and a test that is marked with `@pytest.mark.odradek(config={...})`, has
them with those settings; with `security="scram", users={"alice": "secret"}`, `acls` and `quotas`
the mark protects them. Any loop may call a broker (`await odradek_broker.wait_for_async(...)`), so
asynchronous tests need no other fixtures, whatever runs them.

`odradek_spark` is a Spark session beside the shared broker, one for all tests of a session; it
comes with the extra `spark`. Override `odradek_spark_conf` to give it settings.

When a test fails, its report describes all running brokers, whoever started them, except those that
a fixture keeps for other tests, and those whose `with` block the error has left.

The package is imported when the first fixture is asked for, so test runs that never use it do not
become slower.
"""

import re
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from copy import copy
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pytest

if TYPE_CHECKING:
    from odradek import Broker, Cluster, ManualClock
    from odradek.clock import Clock
    from odradek.server.in_process.loop_calls import LoopCalls
    from pyspark_odradek.testing import SparkAndBroker

_MARK: Final = "odradek"
_REGISTRY: Final = "odradek.server.in_process.loop_calls"
_SECURITY: Final = ("security", "users", "acls", "quotas")
_LONGEST_NAME: Final = 200
_numbers: Final = count(1)
_started_by: "Final[WeakKeyDictionary[LoopCalls, str]]" = WeakKeyDictionary()
"""The fixture that has started a broker, or the test that has, once it is over."""


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(config, security, users, acls, quotas): settings of this test's odradek_broker, "
        "or odradek_cluster, under Kafka's names, and its security in one word",
    )


def _running() -> "set[LoopCalls]":
    registry = sys.modules.get(_REGISTRY)
    return set() if registry is None else set(registry.RUNNING)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Notes which fixture has started a broker."""
    before = _running()
    try:
        return (yield)
    finally:
        for each in _running() - before:
            _started_by.setdefault(each, fixturedef.argname)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Notes what a test has left running, and forgets what it has ended: it is no other test's."""
    before = _running()
    try:
        return (yield)
    finally:
        _left_by_error().clear()
        for each in _running() - before:
            _started_by.setdefault(each, item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells of the test's brokers when it has failed, before its fixtures go."""
    report = yield
    if report.failed:
        asked_for = _fixtures_of(item)
        own = [each for each in _running() if _started_by.get(each, "") in ("", *asked_for)]
        running = ((type(each).__name__, each.report_or_reason()) for each in own)
        left = () if call.excinfo is None else _left_by(call.excinfo.value)
        for number, (kind, text) in enumerate([*left, *running], 1):
            report.sections.append((f"odradek: {kind} {number}", text))
    return report


def _left_by(error: BaseException) -> Iterator[tuple[str, str]]:
    """The reports of brokers whose blocks the error has left, not one that the test expected."""
    left = _left_by_error()
    if left:
        name = sys.modules[_REGISTRY].MARK
        marks = [vars(each).get(name) for each in _errors_behind(error)]
        yield from ((kind, text) for mark, kind, text in left if mark in marks)


def _errors_behind(error: BaseException) -> list[BaseException]:
    """The error, those of its group, and those that led to it."""
    found: list[BaseException] = []
    unseen: list[BaseException | None] = [error]
    while unseen:
        each = unseen.pop()
        if each is not None and not any(each is known for known in found):
            found.append(each)
            members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
            unseen += [each.__cause__, each.__context__, *members]
    return found


def _left_by_error() -> "deque[tuple[object, str, str]]":
    """See `odradek.server.in_process.loop_calls`; empty unless that is in use."""
    registry = sys.modules.get(_REGISTRY)
    return deque() if registry is None else registry.LEFT_BY_ERROR


def _fixtures_of(item: pytest.Item) -> list[str]:
    """The names of a test's fixtures, those that it asked for by `getfixturevalue` among them."""
    request = getattr(item, "_request", item)
    return list(getattr(request, "fixturenames", ()))


@pytest.fixture
def odradek_config(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """Settings of `odradek_broker` and `odradek_cluster` under Kafka's names; override it to give
    some, or mark a test with `@pytest.mark.odradek(config={...})`."""
    config: Mapping[str, object] = _marked(request).get("config", {})
    return copy(config)  # so that an override may add to it; a broker refuses what is no mapping


def _marked(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The arguments of a test's mark."""
    mark = request.node.get_closest_marker(_MARK)
    if mark is None:
        return {}
    if mark.args or not mark.kwargs or not set(mark.kwargs) <= {"config", *_SECURITY}:
        kinds = (type(each).__name__ for each in mark.args)  # a value may be a password
        given = ", ".join([*kinds, *(f"{name}=..." for name in mark.kwargs)])
        pytest.fail(
            f"the mark is @pytest.mark.{_MARK}(config={{...}}, security=..., users={{...}}, "
            f"acls=[...], quotas={{...}}), not ({given})",
            pytrace=False,
        )
    return dict(mark.kwargs)


@pytest.fixture
def odradek_clock() -> "ManualClock":
    """The time of `odradek_broker` in a test that asks for both; only the test moves it."""
    from odradek import ManualClock

    return ManualClock()


@pytest.fixture
def odradek_broker(
    request: pytest.FixtureRequest, odradek_config: Mapping[str, object]
) -> "Iterator[Broker]":
    """A broker of this test's own, on a free port, gone afterwards."""
    from odradek import Broker

    security = _security_of(request)
    with Broker(config=odradek_config, clock=_clock_of(request), **security) as broker:
        yield broker


@pytest.fixture
def odradek_cluster(
    request: pytest.FixtureRequest, odradek_config: Mapping[str, object]
) -> "Iterator[Cluster]":
    """Three brokers of this test's own, on free ports, gone afterwards."""
    from odradek import Cluster

    security = _security_of(request)
    with Cluster(config=odradek_config, clock=_clock_of(request), **security) as cluster:
        yield cluster


def _security_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    from odradek.server.in_process.protected.secret import hide_passwords

    mark = _marked(request)
    given = {name: mark[name] for name in _SECURITY if name in mark}
    # A report of a failed fixture may show its variables.
    return given | {"users": hide_passwords(given["users"])} if "users" in given else given


def _clock_of(request: pytest.FixtureRequest) -> "Clock | None":
    is_timed = "odradek_clock" in request.fixturenames
    return request.getfixturevalue("odradek_clock") if is_timed else None


@pytest.fixture(scope="module")
def odradek_module_broker() -> "Iterator[Broker]":
    """A broker that the tests of one file share; topics of one test are seen by the next."""
    from odradek import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_session_broker() -> "Iterator[Broker]":
    """A broker that lives as long as the session; topics of one test are seen by the next."""
    from odradek import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_session_broker: "Broker") -> str:
    """The name of a topic of this test's own on the shared broker, created and empty."""
    test = re.sub(r"[^a-zA-Z0-9-]", "-", request.node.name)[:_LONGEST_NAME]
    name = f"{test}-{next(_numbers)}"
    odradek_session_broker.create_topic(name)
    return name


@pytest.fixture(scope="session")
def odradek_spark_conf() -> Mapping[str, str]:
    """Settings of `odradek_spark`'s session under Spark's names; override it to give some."""
    return {}


@pytest.fixture(scope="session")
def odradek_spark(
    odradek_session_broker: "Broker", odradek_spark_conf: Mapping[str, str]
) -> "Iterator[SparkAndBroker]":
    """A Spark session and the shared broker; both live as long as pytest's session."""
    try:
        from pyspark_odradek.session import FOR_SECONDS, session
        from pyspark_odradek.testing import SparkAndBroker
    except ImportError as error:
        pytest.fail(str(error), pytrace=False)
    conf = odradek_spark_conf
    with session("tests", master="local[2]", conf=conf, java_options=FOR_SECONDS) as spark:
        yield SparkAndBroker(spark, odradek_session_broker)
