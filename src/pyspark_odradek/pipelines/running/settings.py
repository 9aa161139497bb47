"""The settings of every pipeline, and the table of pipelines."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.security_options import NO_SECURITY_OPTIONS, SecurityOptions


class PipelineError(Exception):
    """A pipeline cannot run as asked; the message says why."""


@dataclass(frozen=True)
class PipelineSettings:
    """Source, target and interval; then the settings of single pipelines.

    `every` is an interval in Spark's words ("30 seconds"); without it a pipeline processes the
    available records and ends. With `path`, a broker's data directory on this machine, records are
    read from its segments, and the broker is asked for offsets only.
    """

    bootstrap_servers: str
    topic: str
    to: str | None = None
    every: str | None = None
    path: str | None = None
    max_offsets_per_trigger: int | None = None
    # Whether records of open and aborted transactions are read.
    isolation_level: str = "read_committed"
    # The checkpoint of a stream; by default it is in the directory `to`.
    checkpoint: str | None = None
    # Whether a pipeline skips records that were deleted before it read them, with a warning.
    allow_loss: bool = False
    # `archive`: a directory for each hour, each day, or one for all. `archive` and `compact`: how
    # large a file should be, in bytes.
    partition_by: str = "hour"
    file_bytes: int = 128 << 20
    # `restore`, `audit` and `compact`: the archive; `query`: the SQL.
    source: str | None = None
    sql: str | None = None
    # `restore`: the groups that get their offsets, `all` or names between commas.
    groups: str | None = None
    # `dedup`, `join` and `window`: an SQL expression; records with the same value belong together.
    by: str = "key"
    # The same: how late a record may come, and how far apart two may be.
    within: str = "1 hour"
    # `window`: its length, and a number whose sum, minimum and maximum it reports.
    window: str = "1 hour"
    measure: str | None = None
    # `join`: the other topic. `dedup`: a topic to write to instead of a directory.
    other: str | None = None
    to_topic: str | None = None
    # `archive`: `parquet`, `delta` or `iceberg`, by default `parquet`. `decode` and `redrive`: the
    # format of values, by default JSON.
    format: str | None = None
    # `archive` as `iceberg`: the table, `catalog.namespace.name`.
    table: str | None = None
    # `decode` and `redrive`: where the schemas of values are, and where values that do not fit go.
    schema: str | None = None
    registry: str | None = None
    dead_letters: str | None = None
    # `lag`: the largest lag that is no failure, in records.
    max_lag: int | None = None
    # How brokers are reached: TLS and SASL.
    security: SecurityOptions = NO_SECURITY_OPTIONS

    @property
    def brokers(self) -> dict[str, object]:
        """The settings with which a client reaches the brokers."""
        return self.security.settings(self.bootstrap_servers)

    def broker_options(self) -> dict[str, str]:
        """The options with which Spark's reads and writes reach them."""
        return {f"kafka.{name}": str(value) for name, value in self.brokers.items()}

    def where(self) -> dict[str, str]:
        """The options that say where records are read.

        Raises:
            PipelineError: aborted records cannot be filtered there.
        """
        options = {**self.broker_options(), "kafka.isolation.level": self.isolation_level}
        if self.path is not None:
            if self.isolation_level == "read_committed":
                raise PipelineError(
                    "segments have records of aborted transactions: say "
                    "--isolation-level read_uncommitted, or leave out --data-dir"
                )
            options["path"] = self.path
        return options

    def lasting(self, *names: str) -> dict[str, str | None]:
        """The options that all batches of an output have to share: how its topics are read, and
        these."""
        return {name: getattr(self, name) for name in ("isolation_level", *names)}

    def directory(self, pipeline: str) -> str:
        """The directory to write to.

        Raises:
            PipelineError: none is given.
        """
        if self.to is None:
            raise PipelineError(f"{pipeline} needs a directory to write to (--to DIR)")
        return self.to.rstrip("/")

    def archive(self, pipeline: str) -> str:
        """The archive to work on.

        Raises:
            PipelineError: none is given.
        """
        if self.source is None:
            raise PipelineError(f"{pipeline} needs the directory of an archive (--from DIR)")
        return self.source.rstrip("/")

    def written(self, topic: str) -> str:
        """The name of a topic to write to.

        Raises:
            PipelineError: it is the topic that the pipeline reads, so the pipeline would never end.
        """
        if topic == self.topic:
            raise PipelineError(f"{topic} is read, and cannot be written to: choose another topic")
        return topic

    def source_options(self) -> dict[str, str]:
        """The options of the topic as a stream, from its beginning."""
        options = {**self.where(), "subscribe": self.topic, "startingOffsets": "earliest"}
        if self.allow_loss:
            options["failOnDataLoss"] = "false"
        if self.max_offsets_per_trigger is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return options

    def checkpoint_or(self, default: str | None) -> str:
        """Returns the directory of the stream's checkpoint.

        Raises:
            PipelineError: none is given.
        """
        checkpoint = self.checkpoint or default
        if checkpoint is None:
            raise PipelineError("say where to keep how far the pipeline is (--checkpoint DIR)")
        return checkpoint


class Pipeline(NamedTuple):
    """A row of the table; `module` has the function `build`.

    `takes` are the settings that it uses, besides those about the topic.
    """

    name: str
    module: str
    help: str
    takes: tuple[str, ...]


# The settings of every pipeline that goes along a topic as a stream.
_LETTERS: Final = ("every", "max_offsets_per_trigger", "checkpoint", "allow_loss")
_STREAM: Final = ("path", "isolation_level", *_LETTERS)
_SCHEMAS: Final = ("format", "schema", "registry", "dead_letters")


PIPELINES: Final = (
    Pipeline(
        "archive",
        "pyspark_odradek.pipelines.archive",
        "keep every record of the topic in Parquet files, each exactly once",
        ("to", *_STREAM, "partition_by", "file_bytes", "format", "table"),
    ),
    Pipeline(
        "compact",
        "pyspark_odradek.pipelines.compact",
        "put the small files of an archive together",
        ("source", "file_bytes"),
    ),
    Pipeline(
        "restore",
        "pyspark_odradek.pipelines.restore",
        "write an archive back to a topic that is empty or new",
        ("source", "groups"),
    ),
    Pipeline(
        "audit",
        "pyspark_odradek.pipelines.audit",
        "compare an archive with its checksums and with the topic",
        ("source", "path", "checkpoint"),
    ),
    Pipeline(
        "latest",
        "pyspark_odradek.pipelines.latest",
        "keep the newest record of every key",
        ("to", "path", "isolation_level"),
    ),
    Pipeline(
        "decode",
        "pyspark_odradek.pipelines.decode",
        "make a typed table of JSON, Avro or Protobuf, and a topic of unreadable values",
        ("to", *_STREAM, *_SCHEMAS),
    ),
    Pipeline(
        "redrive",
        "pyspark_odradek.pipelines.redrive",
        "try again what decode could not read",
        ("to", *_LETTERS, *_SCHEMAS),
    ),
    Pipeline(
        "dedup",
        "pyspark_odradek.pipelines.dedup",
        "leave out records that were there a short while before",
        ("to", "to_topic", *_STREAM, "by", "within"),
    ),
    Pipeline(
        "window",
        "pyspark_odradek.pipelines.window",
        "count and sum by windows of time, late records aside",
        ("to", *_STREAM, "by", "within", "window", "measure"),
    ),
    Pipeline(
        "join",
        "pyspark_odradek.pipelines.join",
        "put records of two topics together that have one key and nearly one time",
        ("to", "other", *_STREAM, "by", "within"),
    ),
    Pipeline(
        "lag",
        "pyspark_odradek.pipelines.lag",
        "say how far every group of the topic is behind, in records and in time",
        ("to", "isolation_level", "every", "max_lag"),
    ),
    Pipeline(
        "query",
        "pyspark_odradek.pipelines.query",
        "ask topics in SQL, all at one moment",
        ("to", "path", "isolation_level", "sql"),
    ),
    Pipeline(
        "volume",
        "pyspark_odradek.pipelines.volume",
        "count records and bytes of every partition by the hour of their timestamps",
        ("to", *_STREAM),
    ),
)
