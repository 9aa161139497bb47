"""Fixtures that pytest knows as soon as the package is installed, and a section in its reports.

`odradek_broker` is a fresh broker for one test, `odradek_session_broker` one that all tests
of a session share; both are `odradek.Broker`, started. `odradek_topic` is a topic of one test's
own on the shared broker. A test that asks for `odradek_clock` has its `odradek_broker` on that
clock; a test file that overrides `odradek_config`, and a test that is marked with
`@pytest.mark.odradek(config={...})`, has its `odradek_broker` with those settings. A broker may be
asked from any loop (`await odradek_broker.wait_for_async(...)`), so asynchronous tests need no
fixtures of their own, whatever runs them.

`odradek_spark` is a Spark session beside the shared broker, one for all tests of a session; it
comes with the extra `spark`. Override `odradek_spark_conf` to give it settings.

When a test fails, its report tells of every broker that runs, whoever has started it.

The package is imported when the first fixture is asked for, so other people's test runs do not
become slower.
"""

import re
import sys
from collections.abc import Generator, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from odradek import Broker, ManualClock
    from pyspark_odradek.testing import SparkAndBroker

_MARK: Final = "odradek"
_REGISTRY: Final = "odradek.server.in_process.loop_calls"
_LONGEST_NAME: Final = 200
_numbers: Final = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line(
        "markers", f"{_MARK}(config): settings of this test's odradek_broker, under Kafka's names"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tells of the brokers that run when a test has failed, before its fixtures go."""
    report = yield
    registry = sys.modules.get(_REGISTRY)
    if report.failed and registry is not None:
        for number, running in enumerate(tuple(registry.RUNNING), 1):
            title = f"{type(running).__name__} {number}"
            report.sections.append((f"odradek: {title}", running.report()))
    return report


@pytest.fixture
def odradek_config(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """Settings of `odradek_broker` under Kafka's names; override it to give some, or mark a test
    with `@pytest.mark.odradek(config={...})`."""
    mark = request.node.get_closest_marker(_MARK)
    return {} if mark is None else dict(mark.kwargs["config"])


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

    is_timed = "odradek_clock" in request.fixturenames
    clock = request.getfixturevalue("odradek_clock") if is_timed else None
    with Broker(config=odradek_config, clock=clock) as broker:
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
        from pyspark_odradek import session
        from pyspark_odradek.testing import SparkAndBroker
    except ImportError:
        pytest.fail("Spark is not installed: pip install 'odradek[spark]'", pytrace=False)
    with session("tests", master="local[2]", conf=odradek_spark_conf) as spark:
        yield SparkAndBroker(spark, odradek_session_broker)
