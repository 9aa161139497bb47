"""Fixtures that pytest knows as soon as the package is installed.

`odradek_broker` is a fresh broker for one test, `odradek_session_broker` one that all tests
of a session share; both are `odradek.Broker`, started. The package is imported when the
first of them is asked for, so other people's test runs do not become slower.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek import Broker


@pytest.fixture
def odradek_broker() -> "Iterator[Broker]":
    """A broker of this test's own, on a free port, gone afterwards."""
    from odradek import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_session_broker() -> "Iterator[Broker]":
    """A broker that lives as long as the session; topics of one test are seen by the next."""
    from odradek import Broker

    with Broker() as broker:
        yield broker
