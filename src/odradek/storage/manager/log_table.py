"""The logs of a broker."""

from collections import Counter

from odradek.model import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.log_directory import LogDirectory


class LogTable:
    """The open logs, one for each partition; a log on its way to another directory also has a
    future one there."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        # Every log that is made asks which directory has the fewest.
        self._counts: Counter[LogDirectory] = Counter()
        self.futures: dict[TopicPartition, Log] = {}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, None when there is none here."""
        return self._logs.get(topic_partition)

    def all(self) -> list[Log]:
        """All logs, those of failed directories included."""
        return list(self._logs.values())

    def working(self) -> list[Log]:
        """The logs whose disk works."""
        return [log for log in self._logs.values() if log.log_directory.failure is None]

    def of(self, directory: LogDirectory) -> list[Log]:
        """The logs that lie in a directory, future ones too: it never has both of a partition."""
        logs = [log for log in self._logs.values() if log.log_directory is directory]
        return logs + [log for log in self.futures.values() if log.log_directory is directory]

    def count_of(self, directory: LogDirectory) -> int:
        """How many logs lie in a directory, without the future ones."""
        return self._counts[directory]

    def add(self, log: Log) -> None:
        """Adds a log, which replaces another one of its partition."""
        replaced = self._logs.get(log.topic_partition)
        if replaced is not None:
            self._counts[replaced.log_directory] -= 1
        self._logs[log.topic_partition] = log
        self._counts[log.log_directory] += 1

    def remove(self, log: Log) -> None:
        """Removes the current log of a partition."""
        gone = self._logs.pop(log.topic_partition)
        self._counts[gone.log_directory] -= 1
