"""The replacement of segments by a cleaned one: its steps, and the recovery from a crash between
them.

A cleaned segment is written as `.cleaned`, synced, and renamed to `.swap`, its log last. Then each
of its files gets a second name, the final one, at once in the place of the old file, the log
last; the other old segments are renamed to `.deleted`; the names with `.swap` go, the log's
first. So a listing of the directory at any moment has every record of the log under a final name,
perhaps twice; and as long as `.log.swap` is there, the files of one base offset may belong to
different segments.

At the start:

- a `.cleaned` file means that all old segments still exist: it goes, and so does every `.swap` file
  of its offset or above, which belongs to it;
- a `.swap` log means that the cleaned segment is complete and on the disk: the old segments
  from its base offset up to its end go, whatever of it has its final name already too, and it
  takes their place;
- any other `.swap` file without its log goes: its segment was not complete, or had been swapped in,
  or Kafka, which renames the log first, was swapping; the index is rebuilt.

Kafka and we can each start on the files that the other left.
"""

from odradek.storage import names
from odradek.storage.files import FileSystem
from odradek.storage.log.segment import LogSegment


def finish_replacements(file_system: FileSystem, directory: str, present: list[str]) -> bool:
    """Completes or undoes the replacement of segments; returns whether there was any.

    Raises:
        OSError: the disk failed.
        CorruptRecords: a segment that was on its way in is damaged.
    """
    cleaned = [name for name in present if name.endswith(names.CLEANED_SUFFIX)]
    swaps = [name for name in present if name.endswith(names.SWAP_SUFFIX)]
    if not cleaned and not swaps:
        return False
    undone = min([names.leading_offset(name) for name in cleaned], default=1 << 63)
    for name in cleaned:
        file_system.remove(f"{directory}/{name}")
    logs = [name for name in swaps if name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX)]
    complete = {names.leading_offset(name) for name in logs if names.leading_offset(name) < undone}
    for name in swaps:
        if names.leading_offset(name) not in complete:
            file_system.remove(f"{directory}/{name}")
    valid = [name for name in swaps if names.leading_offset(name) in complete]
    for base_offset in complete:
        _remove_replaced(file_system, directory, present, base_offset)
    # Logs last, here too: a crash in between finds the swap log again.
    for name in sorted(valid, key=lambda name: names.LOG_SUFFIX in name):
        path = f"{directory}/{name}"
        file_system.rename(path, path.removesuffix(names.SWAP_SUFFIX))
    return True


def put_in_place(file_system: FileSystem, directory: str, base_offset: int) -> list[str]:
    """Gives a segment that is complete as `.swap` its final names too.

    Returns the files to be removed later: the old segment's log under another name, and those of
    its files that have no successor.

    Raises:
        OSError: the disk refused; the next start finishes it.
    """
    doomed: list[str] = []
    for suffix in reversed(names.SEGMENT_SUFFIXES):
        path = names.segment_file(directory, base_offset, suffix)
        if file_system.size(path + names.SWAP_SUFFIX) >= 0:
            if suffix == names.LOG_SUFFIX and file_system.size(path) >= 0:
                # Shows readers of the files that missing records were compacted from now on.
                file_system.link(path, path + names.DELETED_SUFFIX)
                doomed.append(path + names.DELETED_SUFFIX)
            file_system.link(path + names.SWAP_SUFFIX, path)
        elif file_system.size(path) >= 0:
            file_system.rename(path, path + names.DELETED_SUFFIX)
            doomed.append(path + names.DELETED_SUFFIX)
    return doomed


def end_replacement(file_system: FileSystem, directory: str, base_offset: int) -> None:
    """Takes the names with `.swap` away: nothing of the old segments is left.

    Raises:
        OSError: the disk refused; the next start finishes it.
    """
    for suffix in names.SEGMENT_SUFFIXES:
        path = names.segment_file(directory, base_offset, suffix)
        file_system.remove(path + names.SWAP_SUFFIX)


def discard_cleaned(file_system: FileSystem, directory: str) -> None:
    """Removes the files of an unfinished round of compaction.

    Raises:
        OSError: the disk failed.
    """
    for name in file_system.list_directory(directory):
        if name.endswith(names.CLEANED_SUFFIX):
            file_system.remove(f"{directory}/{name}")


def _remove_replaced(
    file_system: FileSystem, directory: str, present: list[str], base_offset: int
) -> None:
    segment = LogSegment(
        file_system, directory, base_offset, 0, 1 << 20, -1, suffix=names.SWAP_SUFFIX
    )
    end_offset = segment.next_offset()
    segment.release()
    for name in present:
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed[1] != names.LOG_SUFFIX:
            continue
        if base_offset <= parsed[0] < max(end_offset, base_offset + 1):
            # The log goes last: an index that outlived it would pass for the new one's.
            for suffix in reversed(names.SEGMENT_SUFFIXES):
                file_system.remove(names.segment_file(directory, parsed[0], suffix))
