"""A compacted log and its cleaner, whatever comes between the cleaner's steps; and a naive model.

Producers write with and without transactions, these are committed and aborted, by markers of the
same epoch or of the next one; producers come back with another epoch, segments roll, time passes,
replication lags, the cleaner does a few steps; and in the middle of a round the settings change,
retention takes segments, the log is cut or emptied (and the same offsets are written anew), its
start moves, the disk is full for a while, the broker ends or is killed, after any change of a file,
and comes back.

The model is a table of what was written, by offset. What compaction takes is not foretold but
judged, each time the cleaner may have done something (`check`): a record goes only where the
settings allow it, and only if it is aborted, has no key, is followed by a committed one of its key,
or is a tombstone of enough age. Nothing else goes, nothing comes back, nothing changes, and readers
of committed data are shown exactly the committed part of what is there. In the end each key has one
record. What a log knows of its producers outlives every restart, and so does its end. Retention
takes what is too old or too much, and a full disk refuses what it cannot hold, and changes nothing.
"""

import random
from itertools import count
from uuid import UUID

from tests.late_background import LateBackground
from tests.unit.storage.cleaner.compacted import (
    BACKOFF_MS,
    all_records,
    batch,
    batches_of,
    committed,
    contents,
    write_marker,
)
from tests.unit.storage.conftest import World

from odradek.errors import BrokerError, ErrorCode
from odradek.model import TopicPartition
from odradek.testing.faulty_files import Crashed, FaultyFileSystem
from odradek.timer import MockTimer

SETTINGS = {
    "cleanup_policy": "compact",
    "segment_bytes": "400",
    "index_interval_bytes": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "file_delete_delay_ms": "10",
    "retention_ms": "-1",
    "retention_bytes": "-1",
}
POLICIES = ["compact", "compact", "compact", "compact,delete", "delete"]
LAGS_MS = [0, 0, 60_000]
HORIZONS_MS = [0, 30_000, 600_000]
SEGMENT_BYTES = [200, 400, 900]
RETENTION_MS = [-1, -1, 0, 30_000, 900_000]
RETENTION_BYTES = [-1, -1, 0, 500, 1500]
PRODUCERS = [1, 2, 3]
COPY = TopicPartition("copy", 0)
LONG_MS = 3_600_000


class Written:
    """A record as it was written; `transaction` is None for one that counts at once."""

    def __init__(self, key, value, timestamp_ms, transaction):
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.transaction = transaction

    def is_committed(self, end):
        """Whether the record is committed, for a log that others have below `end`."""
        each = self.transaction
        return each is None or (each.is_commit is True and not each.is_open(end))


class Transaction:
    """A transaction; `is_commit` is None as long as nobody has decided, `marker_offset` as long as
    the log does not say so."""

    def __init__(self, producer_id, first_offset):
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.marker_offset = None
        self.marker_epoch = None
        self.is_commit = None

    @property
    def is_marked(self):
        """Whether the log says what became of it."""
        return self.marker_offset is not None

    def is_open(self, end):
        """Whether the transaction is open, for a log that others have below `end`."""
        return not self.is_marked or self.marker_offset >= end


class Simulation:
    """The log, the model, and chance."""

    def __init__(self, seed, directory):
        self.random = random.Random(seed)
        self.world = World([directory])
        self.settings = dict(SETTINGS)
        self.properties = {}
        if self.random.random() < 0.5:
            # A map of seven keys: a round ends before what may be cleaned does.
            self.properties["log.cleaner.dedupe.buffer.size"] = "128"
        self.keys = [b"k%d" % n for n in range(self.random.choice([3, 12]))]
        self.epoch = 0
        self.producer_epochs = dict.fromkeys(PRODUCERS, 0)
        self.records = {}
        self.transactions = []
        self.values = count()
        self.history = []
        self.least_horizon_ms = 86_400_000
        # Up to where compaction may have come, and whether the log was cut below that, or below
        # the last batch of a producer: what went for the sake of later ones may be the last now.
        self.touched_offset = 0
        self.is_thin = False
        # Whether a full disk kept a cut from writing down where the log ends.
        self.is_end_open = False
        # Up to where all is there, whatever comes of the action under way.
        self.least_end = 0
        self._open()

    def run(self, steps):
        """Does that many random things, then what makes the log as compact as it can be."""
        actions = {
            self.append: 12,
            self.append_in_transaction: 12,
            self.end_transaction: 8,
            self.come_back: 2,
            self.roll: 3,
            self.work: 14,
            self.pass_time: 6,
            self.lag: 2,
            self.change_settings: 3,
            self.cut: 2,
            self.start_over: 0.3,
            self.move_start: 1,
            self.retain: 2,
            self.fill_disk: 1,
            self.copy: 1,
            self.restart: 2,
            self.be_doomed: 2,
        }
        for _ in range(steps):
            (action,) = self.random.choices(list(actions), list(actions.values()))
            self.history.append(action.__name__)
            self.try_to(action)
        self.settle()

    def try_to(self, action):
        """Does something, which a full disk may refuse; the next action mostly finds room."""
        is_cut = action in (self.cut, self.start_over) or self.is_end_open
        self.least_end = 0 if is_cut else self.log.log_end_offset
        try:
            action()
        except BrokerError as error:
            self._check_refusal(error)
        except Crashed:
            self.history.append(f"killed after {self.files.log[-4:]}")
            self._rise()
        if self.world.failed:
            self._come_up_again()
        if self.random.random() < 0.2:
            self.files.is_full = False

    # What happens.

    def append(self):
        """A batch that counts at once."""
        self._append(None)

    def append_in_transaction(self):
        """A batch of a transaction, the first one maybe."""
        producer_id = self.random.choice(PRODUCERS)
        transaction = self._unmarked(producer_id)
        if transaction is None:
            transaction = Transaction(producer_id, self.log.log_end_offset)
        if transaction.is_commit is None:
            self._append(transaction)

    def end_transaction(self):
        """A coordinator has decided, perhaps a while ago, and writes its marker."""
        unmarked = [each for each in self.transactions if not each.is_marked]
        if unmarked:
            chosen = self.random.choice(unmarked)
            bumps_epoch = self.random.random() < 0.5
            self._decide(chosen, self.random.random() < 0.5, bumps_epoch)
            self._mark(chosen)

    def come_back(self):
        """A producer begins anew with another epoch, and what it wrote by its last one is late."""
        producer_id = self.random.choice(PRODUCERS)
        open_one = self._unmarked(producer_id)
        if open_one is None:
            self.producer_epochs[producer_id] += 1
            return
        self._decide(open_one, is_commit=False, bumps_epoch=True)
        self._mark(open_one)
        known = self.log.producers.get(producer_id)
        if known is not None and known.epoch > 0:
            self._check_fenced(producer_id, known.epoch - 1)

    def roll(self):
        """The active segment is closed."""
        self.log.appender.roll()

    def work(self):
        """The cleaner looks, if it does not work already, and does a few steps."""
        if self.random.random() < 0.6:
            self.manager.cleaner.look()
        for _ in range(self.random.choice([1, 3, 10, 40])):
            self.background.try_step()
        self.check()

    def pass_time(self):
        """Seconds, or enough for whatever waits."""
        self._advance(self.random.choice([1_000, 20_000, 700_000]))
        self.check()

    def lag(self):
        """Followers have fetched some of the log's end."""
        offsets = [each.next_offset for each in batches_of(self.log)]
        fetched = [each for each in offsets if each >= self.log.high_watermark]
        if fetched:
            self.log.update_high_watermark(self.random.choice(fetched))

    def change_settings(self):
        """Somebody alters the topic's settings."""
        self.settings["cleanup_policy"] = self.random.choice(POLICIES)
        self.settings["min_compaction_lag_ms"] = str(self.random.choice(LAGS_MS))
        self.settings["delete_retention_ms"] = str(self.random.choice(HORIZONS_MS))
        self.settings["segment_bytes"] = str(self.random.choice(SEGMENT_BYTES))
        self.settings["retention_ms"] = str(self.random.choice(RETENTION_MS))
        self.settings["retention_bytes"] = str(self.random.choice(RETENTION_BYTES))
        self._configure()

    def cut(self):
        """Another replica leads, which has less; what it decided about transactions it has."""
        self.cut_to(self.random.randint(self.log.log_start_offset, self.log.log_end_offset))

    def cut_to(self, offset):
        """The one that leads now has only what lies below."""
        log = self.log
        self.is_thin = self.is_thin or offset < self.touched_offset
        self.epoch += 1
        try:
            log.truncate_to(offset)
        except BrokerError as error:
            self._check_refusal(error)
            self.is_end_open = True
        self._forget_from(log.log_end_offset)

    def start_over(self):
        """Another replica leads, and all of this one is too old."""
        self.epoch += 1
        # A full disk refuses the new segment, when the old ones are gone.
        self.records.clear()
        self.transactions.clear()
        offset = self.log.log_end_offset + self.random.randint(0, 5)
        try:
            self.log.truncate_fully_and_start_at(offset)
        except Crashed:
            self._start_again()
            self.log.truncate_fully_and_start_at(offset)

    def move_start(self):
        """Somebody deletes records."""
        self._replicate()
        start = self.log.log_start_offset
        offset = self.random.randint(start, min(start + 10, self.log.high_watermark))
        self.log.maybe_increment_log_start_offset(offset)
        self.log.delete_old_segments(self.world.clock.wall_ms())
        self.check()

    def retain(self):
        """Retention has its turn."""
        log, now_ms = self.log, self.world.clock.wall_ms()
        start = log.log_start_offset
        log.delete_old_segments(now_ms)
        if log.log_start_offset > start:
            self._judge_retention(now_ms)
        self.check()

    def fill_disk(self):
        """Fills the disk: writes fail for a while."""
        self.files.is_full = True

    def be_doomed(self):
        """The broker is killed soon, after one of the next changes of its files."""
        self.files.crash_at = self.files.operations + self.random.randint(1, 40)
        self.files.half_write = self.random.random() < 0.5

    def restart(self):
        """The broker ends, in order or not, with a round of compaction under way or not."""
        self._replicate()
        known, epochs = self._known(), self.log.leader_epochs.entries
        end = self.log.log_end_offset
        is_orderly = self.random.random() < 0.5
        is_full = self.files.is_full
        if is_orderly:
            self.manager.shutdown()
        self._start_again()
        if not self.is_end_open:
            assert self.log.log_end_offset == end, f"{end} was the log's end before a restart"
        assert self._known() == known, "a producer is another one after a restart"
        assert is_full or not is_orderly or self.log.leader_epochs.entries == epochs
        self.check()

    def copy(self):
        """A replica that has nothing yet follows."""
        if self.files.is_full:
            return
        log = self.log
        follower = self.manager.get_or_create(COPY, UUID(int=9), log.config)
        if log.segments.first.base_offset > 0:
            follower.truncate_fully_and_start_at(log.segments.first.base_offset)
        for segment in log.segments.all():
            data = segment.read(0, segment.size_bytes)
            follower.appender.append_as_follower(memoryview(data))
        follower.update_high_watermark(log.high_watermark)
        start = min(log.log_start_offset, follower.high_watermark)
        follower.maybe_increment_log_start_offset(start)
        assert contents(follower) == contents(log), "a follower has something else"
        if log.segments.first.base_offset == 0:
            self._check_copy(follower)
        self.manager.delete(COPY)

    def settle(self):
        """Decides all transactions, and removes whatever holds the cleaner back."""
        self.files.is_full = False
        self.files.crash_at = None
        for each in self.transactions:
            if not each.is_marked:
                self._decide(each, is_commit=True, bumps_epoch=False)
                self._mark(each)
        self.settings = {**SETTINGS, "delete_retention_ms": "0"}
        self._configure()
        self._replicate()
        self.background.catch_up()
        for number in range(4):
            # Something new makes the cleaner look at what is old.
            self._write(None, [(key, b"new %d" % number) for key in self.keys])
            self._replicate()
            self.log.appender.roll()
            self._advance(LONG_MS)
            self.check()
        assert self.manager.cleaner.uncleanable == frozenset()
        keys = [each.key for each in self.records.values()]
        assert len(keys) == len(set(keys)), f"keys are there more than once: {keys}"
        assert None not in [each.value for each in self.records.values()], "a tombstone stays"

    # What must hold.

    def check(self):
        """Judges what has gone since the last time, and what is shown of what is there."""
        log = self.log
        self.touched_offset = max(self.touched_offset, log.segments.active.base_offset)
        found = {
            each.offset: (each.key, each.value) for each in all_records(log) if not each.is_control
        }
        written = {offset: (each.key, each.value) for offset, each in self.records.items()}
        for offset, each in found.items():
            assert written.get(offset) == each, f"{each} at {offset}, not {written.get(offset)}"
        for offset in written.keys() - found.keys():
            self._judge(offset, found)
        self.records = {offset: self.records[offset] for offset in found}
        self._check_shown()

    def _judge(self, offset, found):
        each, log = self.records[offset], self.log
        if offset < log.log_start_offset:
            return
        now_ms = self.world.clock.wall_ms()
        assert log.config.compact, f"{offset} went without compaction"
        assert offset < log.last_stable_offset, f"{offset} went undecided"
        assert offset < log.segments.active.base_offset, f"{offset} was in the active segment"
        lag_ms = log.config.min_compaction_lag_ms
        assert each.timestamp_ms <= now_ms - lag_ms, f"{offset} went before the lag"
        end = log.high_watermark
        if each.key is None or not each.is_committed(end):
            return
        later = [
            o
            for o, other in self.records.items()
            if o > offset and other.key == each.key and other.is_committed(end)
        ]
        if later:
            return
        assert each.value is None, f"the last record of {each.key} went, {each.value} at {offset}"
        assert each.timestamp_ms <= now_ms - self.least_horizon_ms, f"tombstone {offset} went early"
        earlier = [
            o
            for o in found
            if o < offset and self.records[o].key == each.key and self.records[o].is_committed(end)
        ]
        assert not earlier, f"{earlier} stayed when the tombstone at {offset} went"

    def _check_shown(self):
        log, end = self.log, self.log.high_watermark
        undecided = [each.first_offset for each in self.transactions if each.is_open(end)]
        stable = max(min([end, *undecided]), log.log_start_offset)
        assert log.last_stable_offset == stable, f"{log.last_stable_offset}, not {stable}"
        expected = [
            (each.key, each.value)
            for offset, each in sorted(self.records.items())
            if log.log_start_offset <= offset < stable and each.is_committed(end)
        ]
        assert committed(log) == expected

    def _judge_retention(self, now_ms):
        log = self.log
        config, start = log.config, log.log_start_offset
        assert config.delete, "retention took records of a topic that is not to lose any"
        assert start <= log.high_watermark, f"retention took what not all have, below {start}"
        if 0 <= config.retention_bytes <= log.segments.size_bytes:
            return
        assert config.retention_ms >= 0, "the log is too small for retention"
        for offset, each in self.records.items():
            is_old = each.timestamp_ms < now_ms - config.retention_ms
            assert offset >= start or is_old, f"retention took {offset} too early"

    def _check_copy(self, follower):
        """Of a log that has lost nothing at its beginning a follower knows all."""
        assert committed(follower) == committed(self.log), "a follower shows something else"
        copied, known = (
            {each.producer_id: (each.epoch, each.last_sequence) for each in log.producers.active()}
            for log in (follower, self.log)
        )
        assert self.is_thin or copied == known, f"a follower knows {copied} of {known}"

    def _check_end(self):
        end = self.log.log_end_offset
        assert end >= self.least_end, f"the log ended at {self.least_end}, and now at {end}"

    def _check_refusal(self, error):
        assert self.files.is_full, error
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR, error

    def _check_fenced(self, producer_id, epoch):
        late = batch(self.world, (self.keys[0], b"late"), **self._numbered(producer_id, epoch))
        (info,) = self.log.appender.append_as_leader([late], self.epoch)
        assert isinstance(info, BrokerError), f"a batch of epoch {epoch} was taken"
        assert info.code is ErrorCode.INVALID_PRODUCER_EPOCH, info

    # The rest.

    def _open(self, crash_at=None):
        self.background = LateBackground(is_late=False)
        self.files = FaultyFileSystem()
        self.files.crash_at = crash_at
        self.manager = self.world.start(self.files, self.properties, background=self.background)
        self.background.is_late = True
        self.log = self.world.log(self.manager, **self.settings)
        self._replicate()

    def _start_again(self, crash_at=None):
        self.world.crash(self.world.managers[-1])
        self.world.failed.clear()
        self.world.timer = MockTimer()
        self._open(crash_at)

    def _come_up_again(self):
        """A change stopped half-way, and what there is of it counts."""
        self._start_again()
        self._check_end()
        self.is_thin = self.is_thin or self.log.log_end_offset < self.touched_offset
        found = {each.offset for each in all_records(self.log)}
        self.records = {each: self.records[each] for each in self.records if each in found}
        self._forget_from(self.log.log_end_offset)
        self.check()

    def _rise(self):
        """It comes back where it was killed, perhaps to be killed again as it starts; a part of
        what was under way may be there."""
        while not self._starts(self.random.choice([None, None, 3, 10, 30])):
            pass
        self._check_end()
        if self.manager.get(COPY) is not None:
            self.manager.delete(COPY)
        self.is_thin = self.is_thin or self.log.log_end_offset < self.touched_offset
        self._forget_from(self.log.log_end_offset)
        self.check()

    def _starts(self, crash_at):
        try:
            self._start_again(crash_at)
        except Crashed:
            return False
        self.files.crash_at = None
        return True

    def _configure(self):
        self.log.update_config(self.world.config(**self.settings))
        self.least_horizon_ms = min(self.least_horizon_ms, self.log.config.delete_retention_ms)

    def _advance(self, duration_ms):
        # The cleaner looks once in all of a long time.
        self.world.clock.advance(max(duration_ms - BACKOFF_MS, 0))
        self.world.advance(min(duration_ms, BACKOFF_MS))

    def _replicate(self):
        self.log.update_high_watermark(self.log.log_end_offset)

    def _maybe_replicate(self):
        if self.random.random() < 0.9:
            self._replicate()

    def _append(self, transaction):
        self._write(transaction, [self._pair() for _ in range(self.random.randint(1, 3))])
        self._maybe_replicate()

    def _write(self, transaction, pairs):
        producer = {} if transaction is None else self._numbered(transaction.producer_id)
        offset = self.log.log_end_offset
        data = batch(self.world, *pairs, codec=self.random.choice([0, 0, 0, 3]), **producer)
        try:
            (info,) = self.log.appender.append_as_leader([data], self.epoch)
        except Crashed:
            self._note(transaction, offset, pairs)  # it may have been the last that was done
            raise
        if isinstance(info, BrokerError):
            raise info
        self.is_end_open = False
        self._note(transaction, offset, pairs)

    def _note(self, transaction, offset, pairs):
        if transaction is not None and transaction not in self.transactions:
            self.transactions.append(transaction)
        now_ms = self.world.clock.wall_ms()
        for index, (key, value) in enumerate(pairs):
            self.records[offset + index] = Written(key, value, now_ms, transaction)

    def _pair(self):
        value = None if self.random.random() < 0.15 else b"%d" % next(self.values)
        has_key = self.log.config.compact or self.random.random() < 0.9
        key = self.random.choice(self.keys) if has_key else None
        return key, value

    def _numbered(self, producer_id, epoch=None):
        """The next batch of a producer, by its epoch, or by another."""
        epoch = self.producer_epochs[producer_id] if epoch is None else epoch
        state = self.log.producers.get(producer_id)
        is_first = state is None or state.epoch != epoch
        return {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": 0 if is_first else state.last_sequence + 1,
            "is_transactional": True,
        }

    def _unmarked(self, producer_id):
        for each in self.transactions:
            if each.producer_id == producer_id and not each.is_marked:
                return each
        return None

    def _decide(self, transaction, is_commit, bumps_epoch):
        """Decides a transaction once; from then on its producer has the marker's epoch."""
        if transaction.is_commit is not None:
            return
        producer_id = transaction.producer_id
        self.producer_epochs[producer_id] += bumps_epoch
        transaction.is_commit = is_commit
        transaction.marker_epoch = self.producer_epochs[producer_id]

    def _mark(self, transaction):
        offset = self.log.log_end_offset
        try:
            info = self._write_marker(transaction)
        except Crashed:
            transaction.marker_offset = offset  # it may have been the last that was done
            raise
        if isinstance(info, BrokerError):
            raise info
        self.is_end_open = False
        transaction.marker_offset = offset
        self._maybe_replicate()

    def _write_marker(self, transaction):
        return write_marker(
            self.world,
            self.log,
            transaction.producer_id,
            commit=transaction.is_commit,
            leader_epoch=self.epoch,
            producer_epoch=transaction.marker_epoch,
        )

    def _forget_from(self, end):
        """The log ends there now; decisions that went are written again, there is room for them."""
        self.records = {each: self.records[each] for each in self.records if each < end}
        self.transactions = [each for each in self.transactions if each.first_offset < end]
        if self.world.failed:
            return
        self.is_thin = self.is_thin or self._lacks_last_batches()
        self.files.is_full = False
        for each in self.transactions:
            if each.is_marked and each.is_open(end):
                self._mark(each)
        self._replicate()

    def _lacks_last_batches(self):
        """Whether a producer is known by a batch that is gone, though retention did not take it:
        compaction did, when there was a later one, and the cut took that."""
        first = self.log.segments.first.base_offset
        found = {(each.producer_id, each.last_offset) for each in batches_of(self.log)}
        last = {(each.producer_id, each.last_offset) for each in self.log.producers.active()}
        return any(offset >= first for _, offset in last - found)

    def _known(self):
        states = self.log.producers.active()
        if self.is_thin:
            states = [each for each in states if each.txn_first_offset >= 0]
            return {each.producer_id: each.txn_first_offset for each in states}
        return {
            each.producer_id: (each.epoch, each.last_sequence, each.txn_first_offset)
            for each in states
        }
