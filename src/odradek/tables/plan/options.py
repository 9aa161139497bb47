"""The options of a read, checked and typed; the caller (Spark's options, flags) parses them.

Immutable and picklable: a plan travels with its options from Spark's driver to its workers.
"""

from dataclasses import dataclass
from typing import Final

from odradek.client.security_options import NO_SECURITY_OPTIONS, SecurityOptions
from odradek.expressions import java_pattern
from odradek.model import TopicPartition
from odradek.tables.plan.offsets import EARLIEST, LATEST, EndOfLog, OffsetBound
from odradek.tables.plan.wanted import ALL_ROWS, WantedRows

START_OF_LOG: Final = EndOfLog(EARLIEST)
END_OF_LOG: Final = EndOfLog(LATEST)


@dataclass(frozen=True)
class ClientOptions:
    """The options of requests to brokers; times in milliseconds, sizes in bytes."""

    bootstrap_servers: str | None = None
    client_id: str = "odradek-spark"
    # The rack of its readers: they read from a replica there, if the brokers choose one.
    rack: str = ""
    fetch_max_bytes: int = 52_428_800
    partition_fetch_max_bytes: int = 1_048_576
    fetch_max_wait_ms: int = 500
    request_timeout_ms: int = 30_000
    # How long a reader, or the planner of a stream, waits for unreachable brokers.
    patience_ms: int = 120_000
    # The settings that these two are read from, for errors; "" where users have none.
    request_timeout_named: str = ""
    patience_named: str = ""
    security: SecurityOptions = NO_SECURITY_OPTIONS


@dataclass(frozen=True)
class TopicSelection:
    """The selected partitions: exactly one of the three is given."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assignment: tuple[TopicPartition, ...] = ()

    def takes(self, topic: str) -> bool:
        """Whether partitions of this topic may be read."""
        if self.pattern is not None:
            return java_pattern(self.pattern)(topic) is not None
        return topic in self.names or any(topic == wanted.topic for wanted in self.assignment)


@dataclass(frozen=True)
class ReadOptions:
    """Every option of a read with its value."""

    selection: TopicSelection
    client: ClientOptions
    log_dirs: tuple[str, ...] = ()
    starting: OffsetBound = START_OF_LOG
    ending: OffsetBound = END_OF_LOG
    fail_without_match: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    fail_on_data_loss: bool = True
    # The duration of a plan's leases, if they are not renewed; 0: no leases.
    lease_ms: int = 0
    read_committed: bool = False
    # The group of a streaming query, for tools; `{}` is the query's name.
    group: str = "spark.{}"
    # Batches only: whether a query's conditions may set `wanted`; rows outside of it may be left
    # out.
    filter_pushdown: bool = False
    wanted: WantedRows = ALL_ROWS
