"""If this fails, a client of Spark Connect is told of a missing attribute."""

from typing import Any

import pytest

from pyspark_odradek import topic


class Remote:
    """A client's session, its reader, and a DataFrame of it: none of them has a JVM."""

    @property
    def read(self) -> "Remote":
        return self

    def format(self, _name: str) -> "Remote":
        return self

    def options(self, **_options: str) -> "Remote":
        return self

    def load(self) -> "Remote":
        return self


def test_a_session_without_a_jvm_is_refused() -> None:
    spark: Any = Remote()
    with pytest.raises(ValueError, match="over Spark Connect load the topic for each query"):
        topic(spark, {"subscribe": "orders"})
