"""`decode`: decodes values into rows of a typed table; values that fail go to a dead-letter topic.

    DIR/source=topic/batch=3-*/part-*.parquet      key, value (typed), topic, partition, offset ...
    DIR/source=redriven/batch=0-*/part-*.parquet   what was decoded in a later attempt

A value that does not match its schema goes to the dead-letter topic unchanged, with its key and
headers, and with headers for the reason and the origin:

    odradek.reason  odradek.topic  odradek.partition  odradek.offset  odradek.timestamp

A record that is too large for that topic is cut (`ends.letter_sizes`), and marked as such.
`redrive` reads that topic and tries again, with the current schemas. A record is identified by its
topic, partition and offset: `redrive` checks which records the table has. The letters of a batch
are one transaction, so a repeated batch finds them, or writes them. Which records they are is
decided once, and kept in files before: a schema may come to the registry before the batch is
repeated.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from pyspark_odradek.errors import SourceError
from pyspark_odradek.formats import (
    SCHEMA_FILES,
    Decoder,
    RegistryUnavailable,
    Undecodable,
    UnusableSchema,
    decoder_for,
)
from pyspark_odradek.pipelines.ends.batches import CHECKPOINT, Output
from pyspark_odradek.pipelines.ends.directories import ClaimedLock, read_table
from pyspark_odradek.pipelines.ends.letter_sizes import CUT, LEAST_LIMIT, WHOLE
from pyspark_odradek.pipelines.ends.letters import Letters
from pyspark_odradek.pipelines.ends.parquet import read_parquet
from pyspark_odradek.pipelines.ends.sealed import Document
from pyspark_odradek.pipelines.ends.streams import read_topic, write_stream
from pyspark_odradek.pipelines.ends.topics import BOUNDS, create_topic, take_up_to
from pyspark_odradek.pipelines.running.jobs import StreamJob
from pyspark_odradek.pipelines.running.settings import PipelineError, PipelineSettings

PREFIX: Final = "odradek."
Files = Sequence[Mapping[str, Any]]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_REASON: Final = "_reason"
# The limit of a request: records that a topic took compressed are larger when read.
_LARGEST_LETTER: Final = 100_000_000
_LONGEST_REASON: Final = 1000
_TOPIC, _REDRIVEN = "topic", "redriven"
# Spark reads no directory of such a name as part of the table.
_LETTERS: Final = "_letters"
_LETTER: Final = f"key binary, value binary, headers {_HEADERS}"
_PLACE: Final = {"topic": "string", "partition": "int", "offset": "long", "timestamp": "long"}
# The same in the table, where times are Spark's.
_PLACES: Final = "topic string, partition int, offset long, timestamp timestamp"
# Those that a letter's last headers have.
_TOLD: Final = tuple(f"{PREFIX}{name}" for name in ("reason", *_PLACE))
# Milliseconds of which Spark can make microseconds.
_LAST_TIME: Final = 9_223_372_036_854_775
_IS_ELSEWHERE: Final = "it is cut: the whole record is at its topic, partition and offset"


def build(spark: SparkSession, settings: PipelineSettings) -> StreamJob:
    """`decode`; it continues where an earlier one to the same directory ended.

    Raises:
        PipelineError: there is no directory, no schema, or the registry does not answer.
    """
    records = read_topic(spark, settings, includeHeaders="true")
    return decoding(spark, settings, "decode", records)


def dead_letters_of(settings: PipelineSettings) -> str:
    """The topic for values that fail.

    Raises:
        PipelineError: it is the topic that the pipeline reads.
    """
    return settings.written(settings.dead_letters or f"{settings.topic}-dead-letters")


def decoded(records: DataFrame, decoder: Decoder, *, may_be_cut: bool = False) -> DataFrame:
    """Returns the records with their `value` decoded, and a column with the reason of failures.

    With `may_be_cut` the records are of letters: one that was cut gets a reason, too, and one that
    is whole loses the header that says so.
    """
    outcome = t.StructType(
        [t.StructField("row", decoder.type), t.StructField("why", t.StringType())]
    )

    def attempt(value: bytes | None) -> tuple[Any, str | None]:
        if value is None:
            return None, None
        try:
            return decoder.decode(bytes(value)), None
        except (Undecodable, UnusableSchema) as error:
            return None, str(error)[:_LONGEST_REASON]
        except RegistryUnavailable as error:
            raise SourceError(str(error)) from None

    tried = records.withColumn("_tried", f.udf(attempt, outcome, useArrow=False)("value"))
    row, why = f.col("_tried.row").alias("_row"), f.col("_tried.why")
    if not may_be_cut:
        return tried.select("*", row, why.alias(_REASON))
    why = f.when(_is_cut(), f.lit(_IS_ELSEWHERE)).otherwise(why)
    return tried.select("*", row, why.alias(_REASON)).withColumn("headers", _unmarked())


def once(letters: DataFrame) -> DataFrame:
    """Returns each record once: one that is whole if there is one, and others are cut."""
    row = f.struct(*COLUMNS)
    is_cut = f.coalesce(_is_cut(), f.lit(False))
    return letters.groupBy(*_PLACE).agg(f.min_by(row, is_cut).alias("row")).select("row.*")


def _is_cut() -> Column:
    # What is cut ends with a note of that; a record may have its own headers of these names.
    last = _last_name("headers")
    return last.startswith(CUT) & (last != WHOLE)


def _last_name(headers: Column | str) -> Column:
    return f.get(headers, f.size(headers) - 1)["key"]


def _marked(own: Column) -> Column:
    """Returns headers that do not end as those of a record that was cut, unless it was."""
    looks_cut = _last_name(own).startswith(CUT) & (f.col(_REASON) != _IS_ELSEWHERE)
    mark = f.struct(f.lit(WHOLE).alias("key"), f.lit(b"").alias("value"))
    return f.when(looks_cut, f.concat(own, f.array(mark))).otherwise(own)


def _unmarked() -> Column:
    own = f.slice("headers", 1, f.size("headers") - 1)
    return f.when(_last_name("headers") == WHOLE, own).otherwise(f.col("headers"))


def dead_letters(failed: DataFrame) -> DataFrame:
    """Returns the records for the dead-letter topic: those that could not be decoded."""
    time = f.unix_millis("timestamp")
    places = {"topic": f.col("topic"), "partition": f.col("partition"), "offset": f.col("offset")}
    told = [_header("reason", f.substring(_REASON, 1, _LONGEST_REASON))]
    told += [_header(name, place) for name, place in {**places, "timestamp": time}.items()]
    own = _marked(f.coalesce("headers", f.array().cast(_HEADERS)))
    headers = f.concat(own, f.array(*told))
    return failed.select("key", "value", headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    text = value.cast("string").cast("binary")
    return f.struct(f.lit(f"{PREFIX}{name}").alias("key"), text.alias("value"))


def origin(letters: DataFrame) -> DataFrame:
    """Restores the original records from dead letters; other records in the topic are left out."""
    told = (_told(name, kind) for name, kind in _PLACE.items())
    # A letter ends with the headers that `decode` adds; a record may have its own of these names.
    first_added = f.size("headers") - len(_TOLD)
    theirs = f.filter(
        "headers", lambda each, place: ~((place >= first_added) & each["key"].isin(*_TOLD))
    )
    records = letters.select(
        "key", "value", *told, f.when(f.size(theirs) > 0, theirs).alias("headers")
    )
    is_time = f.col("timestamp").between(-_LAST_TIME, _LAST_TIME)
    time = f.when(is_time, f.timestamp_millis("timestamp"))
    return records.withColumn("timestamp", time).where(
        "topic IS NOT NULL AND partition >= 0 AND offset >= 0 AND timestamp IS NOT NULL"
    )


def _told(name: str, kind: str) -> Column:
    """Returns the last header of this name: the record may have had one itself."""
    found = f.filter("headers", lambda each: each["key"] == f"{PREFIX}{name}")
    last = f.get(found, f.size(found) - 1)["value"]
    return last.cast("string").try_cast(kind).alias(name)


def decoding(
    spark: SparkSession, settings: PipelineSettings, name: str, records: DataFrame
) -> StreamJob:
    """The stream that decodes records, as pipeline `name`, into its part of the table.

    Raises:
        PipelineError: as of `build`.
    """
    root = settings.directory(name)
    decoder, letters_topic = _decoder(settings), dead_letters_of(settings)
    is_redriven = name != "decode"
    source = f"source={_REDRIVEN if is_redriven else _TOPIC}"
    # Letters are read in one way only.
    options = {} if is_redriven else settings.lasting()
    lock = ClaimedLock(spark, root, "decode", settings.topic, part=source, options=options)
    lock.claim()
    kept = settings.checkpoint or f"{root}/{CHECKPOINT}"
    parts = ("", _LETTERS)
    output = Output(spark, f"{root}/{source}", f"{kept}/{source}", parts, lock)
    letters = _letters(settings, letters_topic, output)
    keep = _Batches(root, decoder, output, letters, is_redriven).keep
    return output.job(write_stream(records, settings, name), keep, has_topic=True)


class _Batches:
    """Keeps batches of records: the rows in a part of the table, the others as letters."""

    def __init__(
        self, root: str, decoder: Decoder, output: Output, letters: Letters, is_redriven: bool
    ) -> None:
        self._root: Final = root
        self._decoder: Final = decoder
        self._output: Final = output
        self._letters: Final = letters
        self._is_redriven: Final = is_redriven

    def keep(self, batch: DataFrame, batch_id: int) -> None:
        """Keeps a batch, unless the table has it."""
        output = self._output
        if output.has(batch_id):
            output.clear(batch_id)
            return
        # Over Spark Connect this runs in the server, where only the batch has a session.
        spark = batch.sparkSession
        draft = output.draft(batch_id) or self._decide(batch, batch_id)
        written = self._fitting(spark, batch_id, draft)
        self._letters.write(self._staged(spark, written), batch_id)
        output.commit(batch_id, draft["files"], {"schema": draft["schema"]})
        output.table.drop([*draft["letters"], *written])
        output.drop_draft(batch_id)

    def _decide(self, batch: DataFrame, batch_id: int) -> Document:
        if self._is_redriven:
            batch = _without(once(batch), decoded_before(batch.sparkSession, self._root))
        records = batch.select(*COLUMNS)
        tried = decoded(records, self._decoder, may_be_cut=self._is_redriven).persist()
        try:
            return self._drafted(tried, batch_id)
        finally:
            tried.unpersist()

    def _drafted(self, tried: DataFrame, batch_id: int) -> Document:
        """Stages the rows and the letters of a batch, and keeps a draft of it: also if there are
        no letters, since another run that is at the batch may find some.
        """
        output, letters = self._output, self._letters
        good = tried.where(f"{_REASON} IS NULL").withColumn("value", f.col("_row"))
        rows, failed = good.select(*COLUMNS), tried.where(f"{_REASON} IS NOT NULL")
        files = [] if rows.isEmpty() else output.stage(rows, batch_id)
        told = letters.cut(dead_letters(failed))
        cut = [] if failed.isEmpty() else output.stage(told, batch_id, part=_LETTERS)
        draft = {
            "files": files,
            "schema": rows.schema.jsonValue(),
            "letters": cut,
            "limit": letters.limit,
        }
        return output.keep_draft(batch_id, draft)

    def _fitting(self, spark: SparkSession, batch_id: int, draft: Document) -> Files:
        """Returns the letters of a draft as they were committed; if they were not, as their topic
        takes them now.
        """
        letters = self._letters
        drafted: Files = draft["letters"]
        others: list[Files] = [each["letters"] for each in self._output.variants(batch_id)]
        fits = draft["limit"] <= letters.limit
        if not drafted or (fits and not others):
            return drafted
        written = letters.written(batch_id)
        if written is None:
            return drafted if fits else self._cut_again(spark, batch_id, drafted)
        for each in others:
            staged = self._staged(spark, each)
            if staged is not None and letters.content_of(staged) == written:
                return each
        return drafted

    def _cut_again(self, spark: SparkSession, batch_id: int, drafted: Files) -> Files:
        staged = self._staged(spark, drafted)
        assert staged is not None, "there are letters to cut"
        cut = self._output.stage(self._letters.cut(staged), batch_id, part=_LETTERS)
        self._output.keep_variant(batch_id, {"letters": cut})
        return cut

    def _staged(self, spark: SparkSession, files: Files) -> DataFrame | None:
        paths = [f"{self._output.table.directory}/{file['path']}" for file in files]
        return read_parquet(spark, paths, _LETTER) if paths else None


def _letters(settings: PipelineSettings, topic: str, output: Output) -> Letters:
    limit = _LARGEST_LETTER
    wanted = dict.fromkeys(BOUNDS, str(limit))
    if not create_topic(settings.brokers, topic, settings=wanted, may_be_there=True):
        limit = min(limit, take_up_to(settings.brokers, topic, limit))
    if limit < LEAST_LIMIT:
        raise PipelineError(
            f"{topic} takes batches of {limit} bytes, and this cannot be changed: it has to take "
            f"{LEAST_LIMIT} at least"
        )
    return Letters(settings, topic, output, limit)


def decoded_before(spark: SparkSession, root: str) -> DataFrame | None:
    """Returns the origins of the records in both parts of the table; None if there are none."""
    found = None
    for source in (_TOPIC, _REDRIVEN):
        # Not the values: the type of one may have changed.
        places = read_table(spark, f"{root}/source={source}", _PLACES)
        if places is not None:
            found = places if found is None else found.unionByName(places)
    return found


def _without(records: DataFrame, others: DataFrame | None) -> DataFrame:
    return records if others is None else records.join(others.distinct(), [*_PLACE], "left_anti")


def _decoder(settings: PipelineSettings) -> Decoder:
    try:
        return decoder_for(
            settings.format or "json",
            schema=_columns(settings.schema) or settings.schema,
            registry=settings.registry,
            subject=f"{settings.topic}-value",
        )
    except (UnusableSchema, Undecodable, RegistryUnavailable) as error:
        raise PipelineError(str(error)) from None


def _columns(schema: str | None) -> t.StructType | None:
    """Columns in SQL (`id LONG, name STRING`); None for the name of a file."""
    if schema is None or " " not in schema.strip() or schema.endswith(SCHEMA_FILES):
        return None
    try:
        columns = t.StructType.fromDDL(schema)
    except PySparkException:
        columns = None
    if not isinstance(columns, t.StructType):
        raise UnusableSchema(f"{schema!r} are no columns such as 'id LONG, name STRING'")
    return columns
