"""The storage floor: logs of record batches in files that Apache Kafka can read.

From the bottom up: `files` (the file system as a port), `names` and `checkpoints` (Kafka's
names and formats), `offset_index`, `time_index`, `transaction_index` and `segment`, `local_log`
(the segments of a replica), `log` (what the replica may promise), `log_directory` and
`log_manager` (all logs over all disks). It imports what is below: records, timer, config.

The names exported here are imported when first used: a Spark worker that reads the names of files
needs no log manager, and starts in a fraction of the time.
"""

from typing import TYPE_CHECKING

from odradek._lazy import exports

if TYPE_CHECKING:
    from odradek.storage.files import File, FileSystem, OsFileSystem
    from odradek.storage.index.offset_index import OffsetIndex
    from odradek.storage.index.time_index import TimeIndex
    from odradek.storage.log.leader_epochs import LeaderEpochCache
    from odradek.storage.log.log import Log
    from odradek.storage.log.offset_metadata import (
        AbortedTransaction,
        LogAppendInfo,
        LogOffsetMetadata,
        LogReadInfo,
        TimestampOffset,
    )
    from odradek.storage.log.segment import LogSegment
    from odradek.storage.log_directory import LogDirectory
    from odradek.storage.manager.log_manager import LogManager
    from odradek.storage.producers.producer_state import ProducerState, ProducerStateManager

__all__ = [
    "AbortedTransaction",
    "File",
    "FileSystem",
    "LeaderEpochCache",
    "Log",
    "LogAppendInfo",
    "LogDirectory",
    "LogManager",
    "LogOffsetMetadata",
    "LogReadInfo",
    "LogSegment",
    "OffsetIndex",
    "OsFileSystem",
    "ProducerState",
    "ProducerStateManager",
    "TimeIndex",
    "TimestampOffset",
]

__getattr__ = exports(
    __name__,
    {
        "AbortedTransaction": "odradek.storage.log.offset_metadata",
        "File": "odradek.storage.files",
        "FileSystem": "odradek.storage.files",
        "LeaderEpochCache": "odradek.storage.log.leader_epochs",
        "Log": "odradek.storage.log.log",
        "LogAppendInfo": "odradek.storage.log.offset_metadata",
        "LogDirectory": "odradek.storage.log_directory",
        "LogManager": "odradek.storage.manager.log_manager",
        "LogOffsetMetadata": "odradek.storage.log.offset_metadata",
        "LogReadInfo": "odradek.storage.log.offset_metadata",
        "LogSegment": "odradek.storage.log.segment",
        "OffsetIndex": "odradek.storage.index.offset_index",
        "OsFileSystem": "odradek.storage.files",
        "ProducerState": "odradek.storage.producers.producer_state",
        "ProducerStateManager": "odradek.storage.producers.producer_state",
        "TimeIndex": "odradek.storage.index.time_index",
        "TimestampOffset": "odradek.storage.log.offset_metadata",
    },
)
