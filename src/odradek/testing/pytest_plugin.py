"""Fixtures that pytest knows as soon as the package is installed.

`odradek_broker` is a fresh broker for one test, `odradek_session_broker` one that all tests
of a session share; both are `odradek.Broker`, started. `odradek_topic` is a topic of one test's
own on the shared broker. A test that asks for `odradek_clock` has its `odradek_broker` on that
clock; a test file that overrides `odradek_config` has its `odradek_broker` with those settings.
The package is imported when the first of them is asked for, so other people's test runs do not
become slower.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from odradek import Broker, ManualClock

_LONGEST_NAME: Final = 200
_numbers: Final = count(1)


@pytest.fixture
def odradek_config() -> Mapping[str, object]:
    """Settings of `odradek_broker` under Kafka's names; override it to give some."""
    return {}


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
