"""The files of a snapshot: the logs of a broker as they are at one moment, taken in no time.

Segments that are closed are never written to again, so their records get a second name (a hard
link) and no second place on the disk. Everything else is copied: active segments, which both sides
append to from here on, and indexes of closed ones, which a start may rebuild in place, as it does
those of active ones.
"""

import os
import shutil

from odradek.storage import names

# The files that a broker writes about its logs; its lock and its clean shutdown marker are not
# copied.
_KEPT_FILES = frozenset(
    {
        names.META_PROPERTIES,
        names.RECOVERY_POINT_CHECKPOINT,
        names.LOG_START_OFFSET_CHECKPOINT,
        names.HIGH_WATERMARK_CHECKPOINT,
        names.CLEANER_CHECKPOINT,
    }
)
_INDEXES = (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)


def copy_logs(source: str, target: str) -> None:
    """Copies a log directory that nobody writes to meanwhile into one that exists.

    Raises:
        OSError: it cannot be read, or there is no room.
    """
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.name in _KEPT_FILES:
                shutil.copyfile(entry.path, f"{target}/{entry.name}")
            elif names.parse_partition_directory(entry.name) and entry.is_dir():
                _copy_partition(entry.path, f"{target}/{entry.name}")


def _copy_partition(source: str, target: str) -> None:
    os.mkdir(target)
    found = sorted(os.listdir(source))
    logs = [name for name in found if name.endswith(names.LOG_SUFFIX)]
    closed = frozenset(logs[:-1])
    active = {logs[-1].removesuffix(names.LOG_SUFFIX) + each for each in _INDEXES} if logs else ()
    for name in found:
        if name in active or name.endswith((names.DELETED_SUFFIX, names.TEMPORARY_SUFFIX)):
            continue
        if name in closed:
            _link(f"{source}/{name}", f"{target}/{name}")
        else:
            shutil.copyfile(f"{source}/{name}", f"{target}/{name}")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another volume, or one without links
        shutil.copyfile(source, target)
