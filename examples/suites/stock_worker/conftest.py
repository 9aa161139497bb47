"""Where the tests' Kafka comes from: the only file that knows. It was a container's before."""

import os

import pytest


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        return given
    servers: str = request.getfixturevalue("odradek_session_broker").bootstrap_servers
    return servers
