"""A compacted log of a test: what is written to it, the cleaner's turn, and what is left."""

from odradek.errors import BrokerError
from odradek.model import AppendOrigin
from odradek.records.batch import split_batches
from odradek.records.builder import RecordBatchBuilder, build_end_marker
from odradek.records.reader import iter_records, read_batch

COMPACT = {
    "cleanup_policy": "compact",
    "segment_bytes": "400",
    "index_interval_bytes": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "10",
}
BACKOFF_MS = 15_000


def batch(world, *pairs, codec=0, headers=(), timestamp_ms=None, **producer):
    """Pairs of key and value as one batch."""
    builder = RecordBatchBuilder(codec, **producer)
    now_ms = world.clock.wall_ms() if timestamp_ms is None else timestamp_ms
    for key, value in pairs:
        builder.append(now_ms, key, value, headers)
    return memoryview(bytearray(builder.build()))


def append(world, log, *pairs, **options):
    """One batch of these pairs, replicated."""
    (info,) = log.appender.append_as_leader([batch(world, *pairs, **options)], 0)
    assert not isinstance(info, BrokerError), info
    log.update_high_watermark(log.log_end_offset)
    return info


def marker(world, log, producer_id, *, commit):
    """The end marker of a producer's transaction, replicated."""
    write_marker(world, log, producer_id, commit=commit)
    log.update_high_watermark(log.log_end_offset)


def write_marker(world, log, producer_id, *, commit, leader_epoch=0, producer_epoch=0):
    """The end marker of a producer's transaction; what became of it."""
    data = build_end_marker(
        commit=commit,
        base_offset=0,
        timestamp_ms=world.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=1,
    )
    batches = [memoryview(bytearray(data))]
    (info,) = log.appender.append_as_leader(batches, leader_epoch, AppendOrigin.COORDINATOR)
    return info


def batches_of(log):
    """All batch headers of the log, empty batches included."""
    headers = []
    for segment in log.segments.all():
        headers += split_batches(segment.read(0, segment.size_bytes))
    return headers


def contents(log):
    return [(r.offset, r.key, r.value) for r in all_records(log)]


def all_records(log):
    records = []
    for segment in log.segments.all():
        records += iter_records(segment.read(0, segment.size_bytes), check_crc=True)
    return records


def clean(world, log):
    """Rolls, and lets the cleaner have its turn."""
    log.appender.roll()
    world.advance(BACKOFF_MS)


def committed(log):
    """Pairs of key and value that a reader of committed data is shown."""
    end = log.last_stable_offset
    coming = sorted(
        log.reader.aborted_transactions(log.log_start_offset, end), key=lambda txn: txn.first_offset
    )
    aborted = set()
    shown = []
    for buffer, header in _batches_below(log, end):
        while coming and coming[0].first_offset <= header.last_offset:
            aborted.add(coming.pop(0).producer_id)
        if header.is_control:
            aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            shown += read_batch(buffer, header)
    return [(r.key, r.value) for r in shown if r.offset >= log.log_start_offset]


def _batches_below(log, end):
    for segment in log.segments.all():
        data = segment.read(0, segment.size_bytes)
        yield from ((data, h) for h in split_batches(data) if h.last_offset < end)
