"""What every pipeline is told, and the table of pipelines."""

from dataclasses import dataclass
from typing import Final, NamedTuple


class PipelineError(Exception):
    """A pipeline cannot run as it was asked to; the text says why."""


@dataclass(frozen=True)
class PipelineSettings:
    """From where to where, and how often.

    `every` is an interval in Spark's words ("30 seconds"); without it a pipeline takes what
    is there now and ends. With `path`, a broker's data directory on this machine, records are
    read from its segments, and the broker is asked for offsets only.
    """

    bootstrap_servers: str
    topic: str
    to: str | None = None
    every: str | None = None
    path: str | None = None
    max_offsets_per_trigger: int | None = None

    def source_options(self) -> dict[str, str]:
        """The options of the topic as a stream, from its beginning."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
        }
        if self.path is not None:
            options["path"] = self.path
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options


class Pipeline(NamedTuple):
    """A row of the table; `module` has the function `start`."""

    name: str
    module: str
    help: str


PIPELINES: Final = (
    Pipeline(
        "archive",
        "pyspark_odradek.pipelines.archive",
        "keep every record of the topic in Parquet files, each exactly once",
    ),
    Pipeline(
        "volume",
        "pyspark_odradek.pipelines.volume",
        "count records and bytes of every partition by the hour of their timestamps",
    ),
)
