"""How many replicas the topics of these tests have: `ODRADEK_WIRE_REPLICAS`, for runs against a
cluster whose brokers `ODRADEK_WIRE_BOOTSTRAP` names."""

import os

import pytest
from confluent_kafka.admin import AdminClient
from tests.system.cluster.polling import PATIENCE_S, until

REPLICAS = int(os.environ.get("ODRADEK_WIRE_REPLICAS", "1"))
only_of_one = pytest.mark.skipif(REPLICAS > 1, reason="what it says is only so of one broker")


def await_known(servers: str, topic: str) -> None:
    """Returns when every broker knows a topic: the controller of a cluster tells the others when it
    has answered. One broker knows what it has made."""
    for each in servers.split(",") if REPLICAS > 1 else ():
        admin = AdminClient({"bootstrap.servers": each})
        until(lambda: topic in admin.list_topics(timeout=PATIENCE_S).topics, f"{each} knows it")  # noqa: B023
