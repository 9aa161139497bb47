"""Finishing, at the start, what a crash interrupted in the replacement of segments.

A cleaned segment is written as `.cleaned`, renamed to `.swap` (its log file last), the segments
it replaces are renamed to `.deleted` in the order of their offsets, and it gets its final name
(again the log last). So, whatever is found:

- a `.cleaned` file means that the old segments are all there: it goes, and so does every
  `.swap` file of its offset or above, which belongs to it;
- a `.swap` log means that the cleaned segment is complete and on the disk: the old segments
  from its base offset up to its end go, and it takes their place;
- any other `.swap` file without its log goes: what it belongs to was not complete, or Kafka,
  which renames the log first, had its log in place already, and the index is made anew.

Each can start on what the other left.
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


def discard_cleaned(file_system: FileSystem, directory: str) -> None:
    """Removes what a round of compaction that did not come to its end has written.

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
