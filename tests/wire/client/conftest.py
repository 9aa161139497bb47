"""Our own client against a broker of ours, and, where slow, Apache Kafka 4.3 and 3.9.

The same tests run against all: what Apache Kafka does is what ours is held to.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.deadlines import deadline_s

T = TypeVar("T")
TIME_LIMIT_S = deadline_s(300)


@pytest.fixture(
    params=[
        "bootstrap",
        pytest.param("apache_kafka", marks=pytest.mark.slow),
        pytest.param("apache_kafka_3", marks=pytest.mark.slow),
    ]
)
def servers(request: pytest.FixtureRequest) -> str:
    """Ours, then theirs."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["bootstrap", pytest.param("apache_kafka", marks=pytest.mark.slow)])
def modern_servers(request: pytest.FixtureRequest) -> str:
    """Ours and Apache Kafka 4.3, for what Kafka 3.9 does not know."""
    return request.getfixturevalue(request.param)


@pytest.fixture(
    params=[
        "bootstrap",
        pytest.param("apache_kafka", marks=pytest.mark.slow),
        pytest.param("apache_kafka_3", marks=pytest.mark.slow),
    ]
)
def transactional_servers(request: pytest.FixtureRequest) -> str:
    """Brokers that have transactions."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine to its end, which must come in time."""

    def call(coroutine: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(TIME_LIMIT_S):
                return await coroutine

        return asyncio.run(limited())

    return call
