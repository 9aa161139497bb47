"""`Snapshot`: a broker as it was at one quiet moment, to be begun with again and again.

It has the logs, the metadata, the time and the randomness. As a directory it is a data directory of
`odradek start` with one more file, in which the rest is. A broker that is made from it takes a
copy: the snapshot stays as it is.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.journal import StoredMetadata
from odradek.model import TopicPartition
from odradek.server.in_process.scratch import Scratch

FILE_NAME: Final = "snapshot.json"
_FORMAT: Final = 1

Offsets = Mapping[TopicPartition, int]


class Moment(NamedTuple):
    """The facts a snapshot keeps beside logs and metadata.

    `clock` is the wall time and the monotonic time in ms of a clock that stood, None of one that
    ran; `rng` is the state of its random numbers, None of those that cannot be foretold.
    """

    settings: Mapping[str, str]
    ends: Offsets
    groups: Mapping[str, Offsets]
    clock: tuple[int, int] | None
    rng: Any


class Changed(NamedTuple):
    """A number before and after; None where it was not there."""

    before: int | None
    after: int | None


class SnapshotDiff(NamedTuple):
    """The differences of a later snapshot."""

    created: tuple[str, ...]
    """Topics that are new."""
    deleted: tuple[str, ...]
    """Topics that are gone."""
    ends: Mapping[TopicPartition, Changed]
    """Partitions that end elsewhere."""
    groups: Mapping[str, Mapping[TopicPartition, Changed]]
    """Committed offsets that are others, by group."""

    def __bool__(self) -> bool:
        return any(self)

    def __str__(self) -> str:
        lines = [f"topic {name} created" for name in self.created]
        lines += [f"topic {name} deleted" for name in self.deleted]
        lines += [f"{where} ended at {_arrow(change)}" for where, change in self.ends.items()]
        lines += [
            f"group {group} of {where} was at {_arrow(change)}"
            for group, offsets in self.groups.items()
            for where, change in offsets.items()
        ]
        return "\n".join(lines) or "no difference"


class Snapshot:
    """The logs lie in `path`. Without a path it is removed with this object."""

    def __init__(
        self, path: str, metadata: StoredMetadata, moment: Moment, scratch: Scratch | None = None
    ) -> None:
        self.path: Final = path
        self.metadata: Final = metadata
        self.moment: Final = moment
        self._scratch: Final = scratch

    def __repr__(self) -> str:
        ends, groups = self.moment.ends, self.moment.groups
        return f"<odradek.Snapshot, {len(ends)} partitions, {len(groups)} groups, {self.path}>"

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without Kafka's internal ones."""
        found: dict[str, int] = {}
        for where in self.moment.ends:
            found[where.topic] = found.get(where.topic, 0) + 1
        return found

    def diff(self, later: "Snapshot") -> SnapshotDiff:
        """Compares with a later snapshot: topics, ends of partitions, offsets of groups."""
        groups = {
            group: _changes(self.moment.groups.get(group, {}), later.moment.groups.get(group, {}))
            for group in sorted({*self.moment.groups, *later.moment.groups})
        }
        return SnapshotDiff(
            created=tuple(sorted(later.topics.keys() - self.topics.keys())),
            deleted=tuple(sorted(self.topics.keys() - later.topics.keys())),
            ends=_changes(self.moment.ends, later.moment.ends),
            groups={group: changes for group, changes in groups.items() if changes},
        )

    def write(self) -> None:
        """Makes the directory one that can be opened by others, and later.

        Raises:
            MetadataStoreError: the metadata cannot be written.
            OSError: the rest cannot.
        """
        from odradek.metadata.sqlite.database import Database

        database = Database(self.path)
        try:
            database.write(schema.put_all(self.metadata))
        finally:
            database.close()
        with open(f"{self.path}/{FILE_NAME}", "w", encoding="utf-8") as stream:
            json.dump(_as_json(self.moment), stream)

    @classmethod
    def read(cls, path: str) -> "Snapshot":
        """Opens a snapshot that was written.

        Raises:
            ValueError: there is none at this path.
            MetadataStoreError: its metadata cannot be read.
        """
        from odradek.metadata.sqlite.database import Database

        try:
            with open(f"{path}/{FILE_NAME}", encoding="utf-8") as stream:
                moment = _from_json(json.load(stream))
        except FileNotFoundError:
            raise ValueError(f"there is no snapshot at {path}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no snapshot: {error}") from error
        database = Database(path)
        try:
            return cls(path, database.read(), moment)
        finally:
            database.close()


def _changes(before: Offsets, after: Offsets) -> dict[TopicPartition, Changed]:
    return {
        where: Changed(before.get(where), after.get(where))
        for where in sorted({*before, *after})
        if before.get(where) != after.get(where)
    }


def _arrow(change: Changed) -> str:
    before, after = ("nothing" if each is None else each for each in change)
    return f"{before}, now at {after}"


def _as_json(moment: Moment) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "settings": dict(moment.settings),
        "ends": _rows(moment.ends),
        "groups": {group: _rows(offsets) for group, offsets in moment.groups.items()},
        "clock": moment.clock,
        "rng": moment.rng,
    }


def _from_json(data: dict[str, Any]) -> Moment:
    if data["format"] != _FORMAT:
        raise ValueError(f"format {data['format']} is unknown, this is {_FORMAT}")
    return Moment(
        settings=data["settings"],
        ends=_offsets(data["ends"]),
        groups={group: _offsets(rows) for group, rows in data["groups"].items()},
        clock=None if data["clock"] is None else (data["clock"][0], data["clock"][1]),
        rng=data["rng"],
    )


def _rows(offsets: Offsets) -> list[tuple[str, int, int]]:
    return [(*where, offset) for where, offset in offsets.items()]


def _offsets(rows: list[tuple[str, int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, index): offset for topic, index, offset in rows}


def new_directory(path: str | os.PathLike[str]) -> str:
    """Makes the directory that a snapshot is to lie in.

    Raises:
        FileExistsError: there is something already.
    """
    text = os.fspath(path)
    os.makedirs(text)
    return text
