"""The differences of a single broker from Kafka's defaults.

Metadata that is embedded cannot be shared, so there will never be a second broker, and internal
topics with three replicas could never be made. A user's settings override these.
"""

from collections.abc import Mapping
from typing import Final

SINGLE_NODE_DEFAULTS: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
