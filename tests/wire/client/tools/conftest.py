"""Kafka's own tools, which ours are held to."""

from collections.abc import Iterator

import pytest
from tests.wire.java_tools import JavaTools


@pytest.fixture(scope="module")
def java_tools(
    java: str, kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaTools]:
    """Runs tools of Kafka's."""
    with JavaTools(java, kafka_class_path, tmp_path_factory.mktemp("java")) as tools:
        yield tools
