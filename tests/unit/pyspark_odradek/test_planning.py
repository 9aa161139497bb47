"""If these fail, a read begins or ends elsewhere than its options say, or a stream gets lost."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from odradek.clock import Clock, ManualClock
from odradek.model import TopicPartition
from odradek.tables.errors import DataLoss
from odradek.tables.plan.bounds import Bounds
from odradek.tables.plan.identity import Identity
from odradek.tables.plan.offsets import OffsetJson, PartitionOffsets, offsets_to_json
from odradek.tables.plan.options import TopicSelection
from odradek.tables.plan.planning import plan_batch
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.plan.wanted import ANYTHING, WantedRows
from pyspark_odradek.errors import SourceError, reason_in
from pyspark_odradek.options import parse_options
from pyspark_odradek.pipelines import PipelineError
from pyspark_odradek.schema import spark_schema
from pyspark_odradek.source import BatchReader, DefaultSource, StreamReader
from pyspark_odradek.tasks import ReadTask

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
SCHEMA = spark_schema(("offset",))


class Topic(Bounds):
    """Bounds that a test sets: first offset and end of every partition, and offsets at times."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.ends = {TopicPartition("t", int(name[1:])): span for name, span in ends.items()}
        self.times: dict[tuple[TopicPartition, int], int] = {}
        self.is_closed = False
        self.topic_id: UUID | None = None
        self.leases: dict[tuple[str, TopicPartition], int] = {}

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        return sorted(self.ends)

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return {partition: self.ends[partition][0] for partition in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return {partition: self.ends[partition][1] for partition in partitions}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {part: self.times.get((part, time_ms)) for part, time_ms in times_ms.items()}

    def identity(self, topics: Iterable[str]) -> Identity:
        known = () if self.topic_id is None else topics
        return Identity("cluster", dict.fromkeys(known, self.topic_id))

    def hold(self, lease_id: str, owner: str, duration_ms: int, offsets: PartitionOffsets) -> bool:
        for part, offset in offsets.items():
            self.leases.pop((lease_id, part), None)
            if duration_ms:
                self.leases[lease_id, part] = offset
        return True

    @property
    def held(self) -> list[tuple[TopicPartition, int]]:
        """The partitions of all leases, one entry for each."""
        return sorted((part, offset) for (_, part), offset in self.leases.items())

    def close(self) -> None:
        self.is_closed = True


def planned(topic: Topic, **options: str) -> list[tuple[int, int, int]]:
    parsed = parse_options({**BASE, **options}, streaming=False)
    return [(r.topic_partition.partition, r.start, r.end) for r in plan_batch(topic, parsed).ranges]


def test_a_batch_reads_from_end_to_end() -> None:
    assert planned(Topic(p0=(5, 30), p1=(0, 0))) == [(0, 5, 30)]


def test_offsets_may_be_mixed_with_ends() -> None:
    start = '{"t": {"0": 7, "1": -2}}'
    end = '{"t": {"0": -1, "1": 12}}'
    plan = planned(Topic(p0=(5, 30), p1=(3, 40)), startingOffsets=start, endingOffsets=end)
    assert plan == [(0, 7, 30), (1, 3, 12)]


def test_every_partition_must_be_named() -> None:
    with pytest.raises(ValueError, match="missing: t-1"):
        planned(Topic(p0=(0, 9), p1=(0, 9)), startingOffsets='{"t": {"0": 1}}')


def test_an_end_beyond_the_log_is_loss_unless_that_is_allowed() -> None:
    end = '{"t": {"0": 50}}'
    with pytest.raises(DataLoss, match="should reach 50 and ends at 30"):
        planned(Topic(p0=(0, 30)), endingOffsets=end)
    assert planned(Topic(p0=(0, 30)), endingOffsets=end, failOnDataLoss="false") == [(0, 0, 30)]


def test_times_bound_a_read() -> None:
    topic = Topic(p0=(0, 30), p1=(0, 20))
    topic.times = {(P0, 100): 10, (P1, 100): 5, (P0, 200): 15}
    plan = planned(topic, startingTimestamp="100", endingTimestamp="200")
    assert plan == [(0, 10, 15), (1, 5, 20)]


def test_a_start_after_the_last_record_is_a_mistake_or_the_end() -> None:
    topic = Topic(p0=(0, 30))
    with pytest.raises(ValueError, match="startingOffsetsByTimestampStrategy"):
        planned(topic, startingTimestamp="100")
    plan = planned(topic, startingTimestamp="100", startingOffsetsByTimestampStrategy="latest")
    assert plan == []


def test_what_a_query_filters_is_not_planned() -> None:
    """Partitions and offsets that are not wanted, and what lies before the first late record."""
    topic = Topic(p0=(0, 30), p1=(5, 20), p2=(0, 10))
    topic.times = {(P0, 100): 10, (P1, 100): 2}
    wanted = WantedRows(partition=ANYTHING.one_of([0, 1, 7]), offset=ANYTHING.from_on(3).up_to(25))
    plan = plan_batch(topic, replace(parse_options(BASE, streaming=False), wanted=wanted))
    assert plan.ranges == [OffsetRange(P0, 3, 26), OffsetRange(P1, 5, 20)]
    # A later record may have an earlier time: where times end says nothing.
    wanted = replace(wanted, timestamp_ms=ANYTHING.from_on(100).up_to(200))
    plan = plan_batch(topic, replace(parse_options(BASE, streaming=False), wanted=wanted))
    assert plan.ranges == [OffsetRange(P0, 10, 26), OffsetRange(P1, 5, 20)]
    # A time that nobody can be asked for: brokers take it for an end of the log.
    wanted = WantedRows(timestamp_ms=ANYTHING.from_on(-1))
    plan = plan_batch(topic, replace(parse_options(BASE, streaming=False), wanted=wanted))
    assert [piece.start for piece in plan.ranges] == [0, 5, 0]


def test_a_range_is_cut_where_segments_begin(log_dir, batch_of) -> None:
    for base in (0, 10, 20):
        log_dir.segment([batch_of(base, base + 9)], base)
    log_dir.checkpoint("replication-offset-checkpoint", 28)
    options = {"path": str(log_dir.root), "subscribe": "orders"}
    plan = BatchReader(parse_options(options, streaming=False), SCHEMA).partitions()
    ranges = [(piece.start, piece.end) for task in plan for piece in task.ranges]
    assert ranges == [(0, 10), (10, 20), (20, 28)]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"t": {"0": 31}}'},
        {"startingOffsets": '{"t": {"0": 20}}', "endingOffsets": '{"t": {"0": 10}}'},
        {"startingTimestamp": "200", "endingTimestamp": "100"},
    ],
)
def test_a_read_does_not_end_before_it_begins(options: dict[str, str]) -> None:
    """No record would come out, as if there were none."""
    topic = Topic(p0=(0, 30))
    topic.times = {(P0, 100): 10, (P0, 200): 15}
    with pytest.raises(ValueError, match=r"would begin at offset \d+, after its end \d+"):
        planned(topic, **options)


def stream(
    monkeypatch: pytest.MonkeyPatch, topic: Topic, clock: Clock | None = None, **options: str
) -> StreamReader:
    monkeypatch.setattr("odradek.tables.plan.bounds.open_bounds", lambda *_, **__: topic)
    return StreamReader(parse_options({**BASE, **options}, streaming=True), SCHEMA, clock)


def test_a_small_batch_waits_for_more_or_for_long_enough(monkeypatch) -> None:
    """minOffsetsPerTrigger and maxTriggerDelay, of which the first trigger knows nothing."""
    topic, clock = Topic(p0=(0, 3)), ManualClock(wall_ms=1_700_000_000_000)
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    reader = stream(monkeypatch, topic, clock, **options)

    def latest(start: int) -> int:
        return reader.latestOffset({"t": {"0": start}}, ReadAllAvailable())["t"]["0"]

    assert latest(0) == 3
    topic.ends[P0] = (0, 12)
    assert latest(3) == 3
    topic.ends[P0] = (0, 13)
    assert latest(3) == 13
    topic.ends[P0] = (0, 14)
    clock.advance(59_999)
    assert latest(13) == 13
    clock.advance(1)
    assert latest(13) == 14


def test_what_is_wrong_is_told_in_one_sentence(monkeypatch) -> None:
    """Spark would show its traceback and ours, or an error of its own over it."""
    source = DefaultSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "path ": "x"})
    with pytest.raises(SourceError, match=r"unknown option 'path '.*did you mean path"):
        source.reader(SCHEMA)
    with pytest.raises(SourceError, match="unknown option"):
        source.streamReader(SCHEMA).initialOffset()
    topic = Topic(p0=(0, 5))
    with pytest.raises(SourceError, match="t-0 was read up to 9, ends at 5") as error:
        stream(monkeypatch, topic).latestOffset({"t": {"0": 9}}, ReadAllAvailable())
    assert "\n" not in str(error.value)
    for kind in (SourceError, PipelineError):
        told = f"Return Message: Traceback\n{kind.__module__}.{kind.__name__}: {error.value}\n  at"
        assert reason_in(told) == str(error.value)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("odradek.client.errors.NotDelivered: no broker answers", "no broker answers"),
        ("OSError: [Errno 28] No space left on device: '/a'", "No space left on device: '/a'"),
        ("KeyError: 'batch'", "KeyError: 'batch'"),
        (
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.x.\n: java.io.X: b",
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.x. java.io.X: b",
        ),
    ],
)
def test_the_reason_of_a_batch_that_failed_is_behind_its_traceback(kind: str, reason: str) -> None:
    """The command line told the first calls instead, and facts about the query."""
    first = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\n'
    told = f"Reason: Return Message: {first}ValueError: x\n\nWhile it was handled:\n\n{first}{kind}"
    for facts in ("\n\tat py4j.Protocol.x(y)\n", " SQLSTATE: 39000 SQLSTATE: XXKST\n"):
        assert reason_in(f"{told}\n{facts}=== Streaming Query ===\nIdentifier: a") == reason


def test_a_stream_begins_at_the_end_unless_told_otherwise(monkeypatch) -> None:
    topic = Topic(p0=(5, 30), p1=(0, 0))
    assert stream(monkeypatch, topic).initialOffset() == {"t": {"0": 30, "1": 0}}
    first = stream(monkeypatch, topic, startingOffsets="earliest").initialOffset()
    assert first == {"t": {"0": 5, "1": 0}}


def test_a_trigger_takes_what_is_new_or_its_share_of_it(monkeypatch) -> None:
    topic = Topic(p0=(0, 90), p1=(0, 10))
    reader = stream(monkeypatch, topic, maxOffsetsPerTrigger="20")
    start = {"t": {"0": 0, "1": 0}}
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    assert reader.latestOffset(start, ReadMaxRows(20)) == {"t": {"0": 18, "1": 2}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 90, "1": 10}}
    assert reader.reportLatestOffset() == {"t": {"0": 90, "1": 10}, "@h:1": {}, "#spark.{}": {}}


def test_nothing_new_is_the_same_offset_again(monkeypatch) -> None:
    reader = stream(monkeypatch, Topic(p0=(0, 9)))
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    assert reader.latestOffset({"t": {"0": 9}}, ReadAllAvailable()) == {"t": {"0": 9}}


def test_available_now_ends_where_the_topic_ended_when_it_began(monkeypatch) -> None:
    topic = Topic(p0=(0, 30))
    reader = stream(monkeypatch, topic)
    reader.prepareForTriggerAvailableNow()
    topic.ends[P0] = (0, 99)
    assert reader.latestOffset({"t": {"0": 0}}, ReadMaxRows(20)) == {"t": {"0": 20}}
    assert reader.latestOffset({"t": {"0": 20}}, ReadMaxRows(20)) == {"t": {"0": 30}}
    assert reader.latestOffset({"t": {"0": 30}}, ReadMaxRows(20)) == {"t": {"0": 30}}


def test_a_new_partition_is_read_from_its_beginning(monkeypatch) -> None:
    topic = Topic(p0=(0, 9), p1=(0, 0))
    reader = stream(monkeypatch, topic)
    start = {"t": {"0": 9}}
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    topic.ends[P1] = (0, 4)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 9, "1": 4}}
    assert reader.partitions(start, end) == [ReadTask((OffsetRange(P1, 0, 4),))]


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (Topic(p0=(0, 9)), "t-1 is gone"),
        (Topic(p0=(0, 5), p1=(0, 4)), "read up to 9, ends at 5"),
        (Topic(p0=(0, 9), p1=(0, 4), p2=(3, 8)), "t-2 is new and begins at 3"),
    ],
)
def test_a_topic_that_was_made_anew_is_noticed(monkeypatch, topic: Topic, words: str) -> None:
    start = {"t": {"0": 9, "1": 4}}
    with pytest.raises(SourceError, match=words):
        stream(monkeypatch, topic).latestOffset(start, ReadAllAvailable())
    lenient = stream(monkeypatch, topic, failOnDataLoss="false")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert all(p.size > 0 for task in lenient.partitions(start, end) for p in task.ranges)


OLD, NEW = UUID(int=1), UUID(int=2)
ID_OF_OLD = "t:AAAAAAAAAAAAAAAAAAAAAQ"


def checkpoint(offset: int, topic_id: UUID | None = OLD) -> OffsetJson:
    return offsets_to_json({P0: offset}, {} if topic_id is None else {"t": topic_id})


def ranges_of(reader: StreamReader, start: OffsetJson, end: OffsetJson) -> list[OffsetRange]:
    return [piece for task in reader.partitions(start, end) for piece in task.ranges]


def test_checkpoints_have_the_ids_of_their_topics(monkeypatch) -> None:
    topic = Topic(p0=(0, 9))
    topic.topic_id = OLD
    reader = stream(monkeypatch, topic)
    assert reader.initialOffset() == {"t": {"0": 9}, ID_OF_OLD: {}}
    topic.ends[P0] = (0, 12)
    end = reader.latestOffset(checkpoint(9), ReadAllAvailable())
    assert end == {"t": {"0": 12}, ID_OF_OLD: {}}
    assert ranges_of(reader, checkpoint(9), end) == [OffsetRange(P0, 9, 12)]
    assert reader.latestOffset(end, ReadAllAvailable()) == end


@pytest.mark.parametrize("count", [5, 9, 90])
def test_a_topic_of_another_id_is_another_topic(monkeypatch, count: int) -> None:
    """A topic that was made anew, and has as many records already, would be taken for the old
    one."""
    topic = Topic(p0=(0, count))
    topic.topic_id = NEW
    with pytest.raises(SourceError, match="t was deleted and recreated"):
        stream(monkeypatch, topic).latestOffset(checkpoint(9), ReadAllAvailable())
    lenient = stream(monkeypatch, topic, failOnDataLoss="false")
    end = lenient.latestOffset(checkpoint(9), ReadAllAvailable())
    assert end == checkpoint(count, NEW)
    assert ranges_of(lenient, checkpoint(9), end) == [OffsetRange(P0, 0, count)]
    # The trigger's limit counts from the new beginning.
    assert lenient.latestOffset(checkpoint(9), ReadMaxRows(4)) == checkpoint(4, NEW)


@pytest.mark.parametrize("end", [checkpoint(12), checkpoint(12, None)])
def test_a_batch_of_a_topic_that_is_gone_is_not_read_from_the_new_one(monkeypatch, end) -> None:
    """It was planned before Spark died, by us or by the connector."""
    topic = Topic(p0=(0, 90))
    topic.topic_id = NEW
    with pytest.raises(SourceError, match="t was deleted and recreated"):
        stream(monkeypatch, topic).partitions(checkpoint(9), end)
    lenient = stream(monkeypatch, topic, failOnDataLoss="false")
    assert ranges_of(lenient, checkpoint(9), end) == []


def test_the_connectors_checkpoint_gets_the_ids_of_now(monkeypatch) -> None:
    topic = Topic(p0=(0, 12))
    topic.topic_id = NEW
    reader = stream(monkeypatch, topic)
    start, end = {"t": {"0": 9}}, {"t": {"0": 12}}
    assert reader.latestOffset(start, ReadAllAvailable()) == checkpoint(12, NEW)
    assert ranges_of(reader, start, end) == [OffsetRange(P0, 9, 12)]


def test_a_repeated_batch_has_the_same_tasks(monkeypatch) -> None:
    topic = Topic(p0=(0, 1000), p1=(0, 77))
    first = stream(monkeypatch, topic, minPartitions="7")
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 800, "1": 70}}
    tasks = first.partitions(start, end)
    topic.ends = {P0: (500, 5000), P1: (70, 900)}
    assert stream(monkeypatch, topic, minPartitions="7").partitions(start, end) == tasks


def test_a_reader_gives_its_connections_back(monkeypatch) -> None:
    topic = Topic(p0=(0, 1))
    reader = stream(monkeypatch, topic)
    reader.stop()
    assert not topic.is_closed
    reader.initialOffset()
    reader.stop()
    assert topic.is_closed


def test_a_stream_holds_what_its_micro_batch_reads_until_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention took records between planning and reading, or was held up by a stopped query."""
    topic = Topic(p0=(0, 10), p1=(3, 7))
    reader = stream(monkeypatch, topic)
    reader.partitions({"t": {"0": 4, "1": 3}}, {"t": {"0": 9, "1": 7}})
    assert topic.held == [(P0, 4), (P1, 3)]
    reader.partitions({"t": {"0": 9, "1": 7}}, {"t": {"0": 10, "1": 7}})
    assert topic.held == [(P0, 9)]
    reader.stop()
    assert topic.held == []


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(3)])
def test_a_stream_that_has_read_all_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, limit: ReadLimit
) -> None:
    """Spark kills the reader of a query that has ended: after `availableNow` retention was held up
    for ten minutes."""
    topic = Topic(p0=(0, 10))
    reader = stream(monkeypatch, topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, limit)) != start:
        reader.partitions(start, end)
        assert len(topic.held) == 1
        start = end
    assert topic.held == []


def test_a_stream_that_waits_for_more_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that nobody reads yet were kept as long as a query idled."""
    topic = Topic(p0=(0, 10))
    reader = stream(monkeypatch, topic, minOffsetsPerTrigger="5")
    start, end = {"t": {"0": 0}}, {"t": {"0": 10}}
    assert reader.latestOffset(start, ReadAllAvailable()) == end
    reader.partitions(start, end)
    topic.ends[P0] = (0, 11)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert topic.held == []
