"""Takes out of a data directory what an import has moved there and not committed.

An import is done when its metadata is committed, in one transaction. Before it changes anything
beside its own folder it notes there what it is about to bring. The import itself when it fails, or
the next one if the first was killed, takes out what is noted and not in the metadata. The note goes
last, so all of this may be interrupted and done again at any point.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence, Set
from typing import Final

from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.model import TopicPartition
from odradek.storage import names
from odradek.storage.checkpoint_file import CheckpointFile
from odradek.storage.files import OsFileSystem

FILES: Final = OsFileSystem(max_open_files=1)
FOLDER: Final = "odradek-import.tmp"
"""The import's own folder in the data directory."""
_NOTE: Final = "moved.json"
_CHECKPOINTS: Final = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


def write_note(data_dir: str, logs: Sequence[str]) -> None:
    """Notes the names of the logs that are to be moved, on the disk.

    Raises:
        OSError: the note is not there.
    """
    path = os.path.join(data_dir, FOLDER, _NOTE)
    FILES.replace(path, json.dumps(logs).encode(), sync=True)
    FILES.sync(data_dir)


def _noted(data_dir: str) -> list[TopicPartition]:
    try:
        with open(os.path.join(data_dir, FOLDER, _NOTE), "rb") as stream:
            found = map(names.parse_partition_directory, json.load(stream))
    except FileNotFoundError:
        return []
    return [each for each in found if each is not None]


def take_out(data_dir: str, stored: StoredMetadata) -> None:
    """Removes what an unfinished import has moved, its checkpoint entries, and its folder.

    Raises:
        OSError: something is still there; it can be done again.
    """
    topics = {topic.name for topic in stored.topics}
    gone = {each for each in _noted(data_dir) if each.topic not in topics}
    for topic_partition in gone:
        _remove(os.path.join(data_dir, names.partition_directory(topic_partition)))
    change_checkpoints(data_dir, gone, {})
    FILES.sync(data_dir)
    _remove(os.path.join(data_dir, FOLDER))


def take_out_all(data_dir: str) -> None:
    """Empties a directory that an import has found empty: its folder last but for the metadata,
    without which the directory would pass for somebody else's."""
    for name in sorted(os.listdir(data_dir), key=_turn):
        _remove(os.path.join(data_dir, name))


def _turn(name: str) -> int:
    return 2 if name.startswith(schema.FILE_NAME) else int(name == FOLDER)


def change_checkpoints(
    data_dir: str,
    gone: Set[TopicPartition],
    come: Mapping[str, Mapping[TopicPartition, int]],
) -> None:
    """Takes the entries of some partitions out of all checkpoints and puts others in, by the names
    of the checkpoints.

    Raises:
        OSError: some are as they were.
    """
    for name in _CHECKPOINTS:
        checkpoint = CheckpointFile(FILES, data_dir, name)
        held = checkpoint.read()
        offsets = {each: offset for each, offset in held.items() if each not in gone}
        offsets.update(come.get(name, {}))
        if offsets != held:
            checkpoint.prepare(offsets)()


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
