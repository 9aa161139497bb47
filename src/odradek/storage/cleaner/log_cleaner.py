"""`LogCleaner`: keeps compacted logs compact, the dirtiest first.

Every `log.cleaner.backoff.ms` it looks at all compacted logs, some in a turn of the loop, on the
broker's timer, so that a clock that is moved by hand drives it. It cleans those that are due, and
looks again at once when it has taken up the last of them.

A round (`Cleaning`) is a row of steps, up to `log.cleaner.threads` rounds side by side, each with
its share of `log.cleaner.dedupe.buffer.size`. Steps that touch the disk or unpack a batch run in
the background. Steps that only compute run on the event loop, one at each of its turns: they need
the interpreter, so beside the loop they would only hold it up, and for longer. Between two steps
a round waits for as long as `log.cleaner.io.max.bytes.per.second` asks for.

How far a log has been cleaned is in `cleaner-offset-checkpoint`; a lost one costs work only.
A log with damaged records is left alone from then on, and said so once; so is one that a mistake of
ours keeps from being cleaned. A full disk ends the round; the next look tries again.
"""

import logging
from collections.abc import Callable
from typing import Final

from odradek.background import Background, SlicedRound, log_mistake
from odradek.clock import LONG_AGO_MS, Clock
from odradek.config.broker import BrokerConfig
from odradek.errors import BrokerError
from odradek.model import TopicPartition
from odradek.storage.cleaner.cleanable import Cleanable, assess
from odradek.storage.cleaner.cleaning import CleanerLimits, Cleaning, Step
from odradek.storage.log.log import SLICE_LOGS, Log
from odradek.timer.retry_task import RetryTask
from odradek.timer.timer import Timer

logger = logging.getLogger(__name__)

# The most that a round reads at once, in bytes. More would save little; and the writing step walks
# over all of its batches while it holds the interpreter.
_WINDOW_BYTES: Final = 128 * 1024
_LEAST_WINDOW_BYTES: Final = 1024


class LogCleaner:
    """Compacts the logs that `logs` gives, except those that `is_moving` to another directory:
    their copy may have the values before a tombstone that would go here. `stop` ends it."""

    def __init__(
        self,
        logs: Callable[[], list[Log]],
        config: BrokerConfig,
        clock: Clock,
        timer: Timer,
        background: Background,
        on_cleaned: Callable[[Log], None],
        is_moving: Callable[[TopicPartition], bool],
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._background = background
        self._on_cleaned = on_cleaned
        self._is_moving = is_moving
        self._rounds: dict[TopicPartition, _Round] = {}
        self._found: list[Cleanable] = []
        # What the last look has found, the dirtiest last.
        self._due: list[Cleanable] = []
        self._looking = SlicedRound(
            logs, self._look_at, SLICE_LOGS, timer.call_threadsafe, self._on_looked
        )
        self._uncleanable: dict[TopicPartition, Log] = {}
        # Logs whose last round made no progress; they wait for the next look.
        self._fruitless: set[TopicPartition] = set()
        self._free_at_ms = float(LONG_AGO_MS)
        self._is_stopped = False

    @property
    def uncleanable(self) -> frozenset[TopicPartition]:
        """The logs that are left alone because their records are damaged."""
        return frozenset(self._uncleanable)

    @property
    def running(self) -> int:
        """How many logs are being compacted now."""
        return len(self._rounds)

    def look(self) -> None:
        """Begins as many rounds as there are threads for."""
        self._fruitless.clear()
        self._forget_closed()
        self._looking.begin()

    def _forget_closed(self) -> None:
        """Another log of the same name is none of those that are damaged."""
        for topic_partition, log in list(self._uncleanable.items()):
            if log.local.is_closed:
                del self._uncleanable[topic_partition]

    def _start_rounds(self) -> None:
        threads = self._config["log.cleaner.threads"]
        while self._due and not self._is_stopped and len(self._rounds) < threads:
            # Much may have happened to it since.
            dirtiest = self._assess(self._due.pop().log)
            if dirtiest is not None:
                self._start_round(dirtiest, threads)

    def stop(self) -> None:
        """No further step begins; the next start removes unfinished files."""
        self._is_stopped = True

    def _look_at(self, log: Log) -> None:
        found = None if self._is_stopped else self._assess(log)
        if found is not None:
            self._found.append(found)

    def _on_looked(self) -> None:
        self._due = sorted(self._found, key=lambda cleanable: cleanable.ratio)
        self._found = []
        self._start_rounds()

    def _assess(self, log: Log) -> Cleanable | None:
        """How dirty a log is; None unless it is to be cleaned now."""
        tp = log.topic_partition
        is_out = tp in self._rounds or tp in self._fruitless or tp in self._uncleanable
        if not log.config.compact or is_out or self._is_moving(tp) or not log.local.is_usable:
            return None
        found = self._try_to_assess(log)
        return found if found is not None and found.is_due else None

    def _try_to_assess(self, log: Log) -> Cleanable | None:
        """None where the log cannot even be looked at."""
        if log.local.recovery_point < log.segments.active.base_offset:
            # Only what is on the disk may be cleaned; after a crash nobody knows of much that is.
            log.local.listener.on_flush_due(log.local)
        try:
            return assess(log, self._clock.wall_ms())
        except BrokerError as error:
            self._leave_alone(log, error)
        except OSError as error:
            log.log_directory.storage_error(error, f"reading {log.local.path}")
        return None

    def _leave_alone(self, log: Log, error: BaseException) -> None:
        logger.warning("%s is not compacted any more: %s", log.topic_partition, error)
        self._uncleanable[log.topic_partition] = log

    def _start_round(self, cleanable: Cleanable, threads: int) -> None:
        limits = CleanerLimits(
            self._config["log.cleaner.dedupe.buffer.size"] // threads,
            self._config["log.cleaner.io.buffer.load.factor"],
            self._window_bytes(threads),
        )
        tp = cleanable.log.topic_partition
        self._rounds[tp] = _Round(self, Cleaning(cleanable, self._clock.wall_ms(), limits))
        self._rounds[tp].resume()

    def _window_bytes(self, threads: int) -> int:
        # A round holds the bytes that it has read, and those that it keeps.
        share_bytes: int = self._config["log.cleaner.io.buffer.size"] // threads // 2
        return max(min(share_bytes, _WINDOW_BYTES), _LEAST_WINDOW_BYTES)

    def do(
        self,
        step: Step,
        on_done: Callable[[int | BrokerError], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Runs a step: on the loop, after what waits there, or in the background."""
        if step.is_brief:
            self._background.defer(lambda: _do_now(step, on_done, on_error))
        else:
            self._background.submit(lambda: _guarded(step), on_done, on_error)

    def pause_ms(self, moved_bytes: int) -> int:
        """How long to wait after so many bytes were read and written; rounds share the rate."""
        rate = self._config["log.cleaner.io.max.bytes.per.second"]
        now_ms = self._timer.now_ms
        self._free_at_ms = max(self._free_at_ms, now_ms) + moved_bytes / rate * 1000
        return int(self._free_at_ms - now_ms)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Calls `action` later."""
        self._timer.add(RetryTask(delay_ms, action))

    def is_moving(self, log: Log) -> bool:
        """Whether a log is to stay as it is, and a round that is under way unfinished."""
        return self._is_moving(log.topic_partition)

    @property
    def is_stopped(self) -> bool:
        """Whether the broker is about to end."""
        return self._is_stopped

    def on_round_end(self, cleaning: Cleaning, error: BaseException | None) -> None:
        """Handles the result of a round, and looks for the next one."""
        log = cleaning.log
        del self._rounds[log.topic_partition]
        is_valid = error is None and not cleaning.is_over
        progressed = is_valid and cleaning.end_offset > log.cleaned_offset
        if progressed:
            log.cleaned_offset = min(cleaning.end_offset, log.log_end_offset)
            self._on_cleaned(log)
        else:
            self._fruitless.add(log.topic_partition)
        if isinstance(error, OSError):
            self._on_disk_error(cleaning, error)
        elif isinstance(error, BrokerError) and cleaning.is_over:
            logger.info("a round of compaction of %s is over: %s", log.topic_partition, error)
        elif error is not None:
            self._leave_alone(log, error)
        self._start_rounds()
        if not self._due:
            self._looking.begin()

    def _on_disk_error(self, cleaning: Cleaning, error: OSError) -> None:
        log = cleaning.log
        if log.local.is_closed:
            return  # its files have gone with it
        if cleaning.is_committing:
            # After a failed sync or rename nobody knows what the files hold.
            log.log_directory.fail(error)
        else:
            log.log_directory.storage_error(error, f"compacting {log.local.path}")


class _Round:
    """Drives one `Cleaning` from step to step."""

    def __init__(self, cleaner: LogCleaner, cleaning: Cleaning) -> None:
        self._cleaner = cleaner
        self._cleaning = cleaning
        self._steps = cleaning.steps()
        self._is_driving = False
        self._is_ready = False

    def resume(self) -> None:
        """Does the next steps, as long as each is done before `submit` returns."""
        self._is_ready = True
        if self._is_driving:
            return
        self._is_driving = True
        try:
            while self._is_ready:
                self._is_ready = False
                self._next()
        finally:
            self._is_driving = False

    def _next(self) -> None:
        cleaner, cleaning = self._cleaner, self._cleaning
        if cleaner.is_stopped or cleaning.is_over or cleaner.is_moving(cleaning.log):
            self._end(None)
            return
        try:
            step = next(self._steps, None)
        except (OSError, BrokerError) as error:
            self._end(error)
            return
        except Exception as error:
            # A bug, but another log can be cleaned in its place. Raised behind a pause it would end
            # the broker, and again at each start.
            self._end(error)
            if isinstance(error, AssertionError):
                raise
            log_mistake(error)
            return
        if step is None:
            self._end(None)
        else:
            self._cleaner.do(step, self._on_done, self._end)

    def _on_done(self, outcome: "int | BrokerError") -> None:
        if isinstance(outcome, BrokerError):
            self._end(outcome)
            return
        pause_ms = self._cleaner.pause_ms(outcome)
        if pause_ms > 0:
            self._cleaner.after(pause_ms, self.resume)
        else:
            self.resume()

    def _end(self, error: BaseException | None) -> None:
        self._steps.close()
        leftover = self._cleaning.discard()
        if leftover is None or self._cleaner.is_stopped:
            self._cleaner.on_round_end(self._cleaning, error)
            return
        self._cleaner.do(
            leftover,
            lambda _: self._cleaner.on_round_end(self._cleaning, error),
            lambda failure: self._cleaner.on_round_end(self._cleaning, error or failure),
        )


def _do_now(
    step: Step,
    on_done: Callable[[int | BrokerError], None],
    on_error: Callable[[BaseException], None],
) -> None:
    try:
        outcome = _guarded(step)
    except Exception as error:  # as `Background`: exactly one callback, whatever it raises
        on_error(error)
        raise
    on_done(outcome)


def _guarded(step: Step) -> "int | BrokerError":
    """Damaged records are a result; only the disk fails."""
    try:
        return step.run()
    except BrokerError as error:
        return error
