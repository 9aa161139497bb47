"""Odradek: Apache Kafka's protocol, storage and semantics in Python.

A broker in a test or a notebook, for any client of Kafka's:

    import odradek

    with odradek.Broker() as broker:
        broker.produce("orders", "one spool of thread")
        [record] = broker.wait_for("orders", 1)

`Broker` is one broker inside this process, `Cluster` several; `ManualClock` is a time that only its
owner moves. A broker's refusal is a `BrokerError` with Kafka's `ErrorCode`; a broker that cannot
start raises `StartError`. `odradek.client` has a producer, a consumer and an admin for any broker.
The fixtures for pytest are `odradek_broker`, `odradek_session_broker`, `odradek_topic`,
`odradek_clock` and `odradek_config`. In a shell: `odradek start`, `odradek --help`.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports
from odradek._pure import install_if_asked
from odradek.version import VERSION

install_if_asked(__name__)

if TYPE_CHECKING:
    from odradek.client.core.consuming.consumer_record import ConsumerRecord
    from odradek.client.errors import KafkaError
    from odradek.clock import ManualClock
    from odradek.errors import BrokerError, ErrorCode
    from odradek.model import TopicPartition
    from odradek.server.errors import StartError
    from odradek.server.faults.fault import Fault
    from odradek.server.in_process.broker import Broker
    from odradek.server.in_process.calls.group_helpers import GroupState
    from odradek.server.in_process.cluster import Cluster
    from odradek.server.in_process.snapshot import Snapshot

__all__ = [
    "Broker",
    "BrokerError",
    "Cluster",
    "ConsumerRecord",
    "ErrorCode",
    "Fault",
    "GroupState",
    "KafkaError",
    "ManualClock",
    "Snapshot",
    "StartError",
    "TopicPartition",
    "__version__",
]
__version__ = VERSION
__getattr__ = exports(
    __name__,
    {
        "Broker": "odradek.server.in_process.broker",
        "BrokerError": "odradek.errors",
        "Cluster": "odradek.server.in_process.cluster",
        "ConsumerRecord": "odradek.client.core.consuming.consumer_record",
        "ErrorCode": "odradek.errors",
        "Fault": "odradek.server.faults.fault",
        "GroupState": "odradek.server.in_process.calls.group_helpers",
        "KafkaError": "odradek.client.errors",
        "ManualClock": "odradek.clock",
        "Snapshot": "odradek.server.in_process.snapshot",
        "StartError": "odradek.server.errors",
        "TopicPartition": "odradek.model",
    },
)


def __dir__() -> list[str]:
    """Lists the public names, imported or not yet."""
    return sorted({*globals(), *__all__})
