"""The topics, settings, users and rules of an Apache Kafka, from the records of its metadata log.

A snapshot's records come first, then those of the log behind it; both are applied in order.
Records between the begin and the end of a metadata transaction count only at its end.
"""

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.kafka_files import kraft_records
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.kafka_files.kraft_access import KraftAccess
from odradek.model import ConfigResourceType
from odradek.protocol.schema import Json
from odradek.protocol.uuids import uuid_of


@dataclass
class KafkaTopic:
    """A topic: the leader epochs of its partitions by number."""

    name: str
    topic_id: UUID
    leader_epochs: dict[int, int] = field(default_factory=dict)


class KafkaMetadata:
    """The metadata read from the log so far."""

    def __init__(self) -> None:
        self.topics: dict[UUID, KafkaTopic] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self._records_of_access = KraftAccess()
        self.access: KafkaAccess = self._records_of_access
        self.next_producer_id = 0
        self._pending: list[tuple[int, dict[str, Json]]] | None = None

    def replay(self, value: bytes) -> None:
        """Takes in the value of one record.

        Raises:
            ProtocolError: it is malformed, or newer than this code knows.
        """
        number, fields = kraft_records.decode_metadata_record(value)
        if number == kraft_records.BEGIN_TRANSACTION_RECORD:
            self._pending = []
        elif number == kraft_records.ABORT_TRANSACTION_RECORD:
            self._pending = None
        elif number == kraft_records.END_TRANSACTION_RECORD:
            pending, self._pending = self._pending or [], None
            for record in pending:
                self._apply(*record)
        elif self._pending is not None:
            self._pending.append((number, fields))
        else:
            self._apply(number, fields)

    def _apply(self, number: int, fields: dict[str, Json]) -> None:
        if number == kraft_records.TOPIC_RECORD:
            topic_id = _id(fields)
            self.topics[topic_id] = KafkaTopic(str(fields["name"]), topic_id)
        elif number == kraft_records.REMOVE_TOPIC_RECORD:
            removed = self.topics.pop(_id(fields), None)
            if removed is not None:
                self.configs.pop(removed.name, None)
        elif number == kraft_records.PARTITION_RECORD:
            self._partition(fields, _int(fields, "leaderEpoch"))
        elif number == kraft_records.PARTITION_CHANGE_RECORD:
            # A new leader is a new epoch.
            self._partition(fields, 1 if "leader" in fields else 0, is_change=True)
        elif number == kraft_records.CONFIG_RECORD:
            self._config(fields)
        elif number == kraft_records.PRODUCER_IDS_RECORD:
            self.next_producer_id = _int(fields, "nextProducerId")
        else:
            self._records_of_access.apply(number, fields)

    def _partition(self, fields: dict[str, Json], epoch: int, *, is_change: bool = False) -> None:
        topic = self.topics.get(_id(fields))
        if topic is None:
            return
        partition = _int(fields, "partitionId")
        before = topic.leader_epochs.get(partition, 0) if is_change else 0
        topic.leader_epochs[partition] = before + epoch

    def _config(self, fields: dict[str, Json]) -> None:
        if fields["resourceType"] != ConfigResourceType.TOPIC:
            return
        settings = self.configs.setdefault(str(fields["resourceName"]), {})
        if fields["value"] is None:
            settings.pop(str(fields["name"]), None)
        else:
            settings[str(fields["name"])] = str(fields["value"])


METADATA_TOPIC: Final = "__cluster_metadata"


def _id(fields: dict[str, Json]) -> UUID:
    return uuid_of(str(fields["topicId"]))


def _int(fields: dict[str, Json], name: str) -> int:
    value = fields[name]
    assert isinstance(value, int), f"the schema makes {name} a number"
    return value
