"""The orderly end of the logs: syncs and closes all, and writes their log end offsets.

The next start then trusts the files (`loading`). A directory with any error does not get the marker
of an orderly end, and is recovered.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from odradek.background import Workers
from odradek.errors import BrokerError
from odradek.storage.files import FileSystem, shared
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log import Log
from odradek.storage.log.swap import discard_cleaned
from odradek.storage.log_directory import LogDirectory
from odradek.storage.manager.offset_checkpoints import FinalOffsets

logger = logging.getLogger(__name__)


def flush_logs(
    rows: Sequence[Sequence[Log]], file_system: FileSystem, workers: Workers, threads: int
) -> None:
    """Syncs all logs to the disks, `threads` logs of each row at a time. Blocks."""
    works = [[partial(_flush, log.local) for log in row if log.local.needs_flush] for row in rows]
    with shared(file_system.pool):
        for log, outcome in workers.run(works, threads):
            if isinstance(outcome, OSError):
                log.log_directory.fail(outcome)
            else:
                log.on_flushed(outcome)


def close_directory(directory: LogDirectory, logs: Sequence[Log], broker_epoch: int) -> None:
    """Closes the logs of a directory and marks it as closed in order. Blocks."""
    offsets = FinalOffsets(logs)
    try:
        for log in logs:
            log.close()
            if log.config.compact:
                discard_cleaned(directory.file_system, log.local.path)
        offsets.write(directory)
        directory.mark_clean(broker_epoch)
    except (OSError, BrokerError) as error:
        # Without the marker the next start recovers the logs that could not be closed.
        logger.warning("%s was not closed cleanly: %s", directory.path, error)


def _flush(log: LocalLog, hand_over: Callable[[tuple[LocalLog, int | OSError]], None]) -> None:
    """Syncs a log on any thread; hands over the offset up to which it is on the disk."""
    try:
        target, work = log.prepare_flush()
        work()
    except OSError as error:
        hand_over((log, error))
    else:
        hand_over((log, target))
    finally:
        log.release_files()
