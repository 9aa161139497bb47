"""How many replicas topics of these tests have, and waiting for what brokers do behind an answer.

`ODRADEK_WIRE_REPLICAS` is for runs against a cluster whose brokers `ODRADEK_WIRE_BOOTSTRAP` names.
"""

import os

import pytest
from tests.system.cluster.polling import until

from odradek.client.sync import Cluster

REPLICAS = int(os.environ.get("ODRADEK_WIRE_REPLICAS", "1"))
only_of_one = pytest.mark.skipif(REPLICAS > 1, reason="what it says is only so of one broker")
LATEST = -1


def await_known(servers: str, topic: str, partitions: int = 1) -> None:
    """Returns when every broker knows so many partitions of a topic, and leaders of them: a
    controller tells the brokers when it has answered, that of one Apache Kafka too."""
    for each in servers.split(","):
        until(lambda: len(_led(each, topic)) >= partitions, f"{each} knows {topic}")  # noqa: B023


def await_forgotten(servers: str, topic: str) -> None:
    """Returns when no broker knows a topic any more."""
    for each in servers.split(","):
        until(lambda: not _led(each, topic), f"{each} has forgotten {topic}")  # noqa: B023


def _led(address: str, topic: str) -> list[int]:
    """The partitions that one broker knows leaders of; a client that is new asks no other."""
    with Cluster(address) as cluster:
        known = cluster.topics().get(topic)
        return known.led_partitions if known else []


def await_ended(servers: str, topic: str) -> None:
    """Returns when no transaction is open in a topic: EndTxn is answered before its markers are
    written, and what was committed is not shown before."""
    with Cluster(servers) as cluster:
        ends = dict.fromkeys(cluster.topics([topic])[topic].partitions, LATEST)

        def are_ended() -> bool:
            stable = cluster.list_offsets(ends, read_committed=True)
            return stable == cluster.list_offsets(ends)

        until(are_ended, f"no transaction is open in {topic}")
