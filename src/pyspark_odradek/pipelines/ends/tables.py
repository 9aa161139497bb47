"""A directory of Parquet files; only the files in its manifest count.

    orders/batch=3-9f2c11ab/part-*.parquet   what one run has written of batch 3
    orders/_manifest/batch-3.json            batch 3 is committed: these are its files

All pipelines write this way. A batch is written to a directory that no other attempt uses, then its
files are listed, and last the document of the batch is created atomically and never changed. Before
that the batch does not exist; after it the batch is committed for good. If two runs write the same
batch, for example because one was considered dead, the second finds the document. No file is
renamed, so object stores work as well.

A document may say that it is `complete`: earlier ones no longer count. A table that is rewritten
each time works the same way, and a compaction, whose document replaces all batches up to its own:

    orders/_manifest/compacted-0.json        what batches 0 to 41 are from now on
    orders/batch=41-compacted-0-51d0e7aa/    what one run has written of that

Compactions are numbered in order: each starts from a snapshot that contains the one before. If
several start from the same snapshot, or from an earlier one, only one can commit under a number. So
a file that no longer counts never counts again, however late a commit comes.

A batch that has to be written somewhere else too keeps a draft of itself before that. A draft is
created once, as a document is: so all attempts at the batch write the same. It goes when the batch
is committed, and whoever creates one looks for the document behind that:

    decoded/_manifest/draft-3-6bd25f0a.json    what all attempts at batch 3 write

A batch may have several parts, each in its own directory, and leave a state, which counts until the
next one's:

    windows/batch=3-9f2c11ab/   late/batch=3-9f2c11ab/   _open/batch=3-9f2c11ab/

Documents are listed once for a `Snapshot`: its files, and the last batch that they cover. Files
that no document names, and those that no longer count, are garbage. `sweep` removes it when there
are no readers (`owners.Reader`), and only with the number of a committed batch or compaction, or a
lower one: no other attempt at it can still commit.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from odradek.clock import Clock, SystemClock
from pyspark_odradek.pipelines.ends.files import Files, is_hidden
from pyspark_odradek.pipelines.ends.owners import Reader, has_readers, process_owner
from pyspark_odradek.pipelines.ends.sealed import Document, read_sealed, seal
from pyspark_odradek.pipelines.running.settings import PipelineError

MANIFEST: Final = "_manifest"
_SYSTEM_CLOCK: Final = SystemClock()
_Seen = TypeVar("_Seen")
# A look at the documents takes no reader's lock, so a document may go meanwhile; then the look is
# repeated.
_LOOKS: Final = 5
# A place without a run is one of an earlier version.
_PLACE: Final = re.compile(r"batch=(?P<batch>\d+)-(?:compacted-(?P<compaction>\d+)-)?\w+")
_PLACE_OF_FILE: Final = re.compile(rf"((?:\w+/)?{_PLACE.pattern})/")
_DOCUMENT: Final = re.compile(r"(batch|compacted)-(\d+)\.json")
_DRAFT: Final = re.compile(r"draft-(?P<batch>\d+)-(?P<name>[\w-]+)\.json")
# A compaction as it was called once. A reader that ignored it would consider its batches missing.
_FORMER_COMPACTION: Final = re.compile(r"compacted-\d+\.\d+\.json")


class Number(NamedTuple):
    """The number of a batch, or of the n-th compaction, with the last batch that it stands for."""

    batch: int
    compaction: int = -1

    @property
    def is_compaction(self) -> bool:
        """Whether the batch is a compaction, which replaces all batches up to its own."""
        return self.compaction >= 0

    def __str__(self) -> str:
        """The name of its document. That of a compaction does not depend on its last batch: only
        one of those that start from the same snapshot can commit.
        """
        if self.is_compaction:
            return f"compacted-{self.compaction}"
        return f"batch-{self.batch}"


class _BatchMissingError(PipelineError):
    """A batch before the last one has no document."""


class _Listing(NamedTuple):
    """The existing documents by their numbers, in order."""

    batches: list[int]
    compactions: list[int]

    def superseded_by(self, number: Number) -> list[str]:
        """Returns the names of the documents that a compaction has replaced."""
        batches = [Number(batch) for batch in self.batches if batch <= number.batch]
        older = [Number(-1, each) for each in self.compactions if each < number.compaction]
        return [str(each) for each in (*batches, *older)]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a table: its last batch, and the documents up to it."""

    last_batch: int = -1
    # Only those that count, in order.
    documents: Sequence[Document] = ()
    newest_compaction: Number | None = None
    # The names of documents that others have taken the place of.
    superseded: Sequence[str] = field(default=(), repr=False)

    @property
    def files(self) -> list[dict[str, Any]]:
        """The entries of all files in the documents."""
        return [file for document in self.documents for file in document["files"]]

    @property
    def paths(self) -> set[str]:
        """The paths of all its files, including those of the state."""
        state = self.documents[-1].get("state", []) if self.documents else []
        return {file["path"] for file in (*self.files, *state)}

    def next_compaction(self) -> Number:
        """The number of a compaction of all batches in the snapshot."""
        newest = self.newest_compaction
        return Number(self.last_batch, 0 if newest is None else newest.compaction + 1)

    def is_over(self, place: str) -> bool:
        """Whether files in this directory can never count, unless they do now: their number is
        committed, or lower than a committed one.
        """
        match = _PLACE.search(place)
        assert match is not None, f"{place} is the place of a batch or compaction"
        if match["compaction"] is None:
            return int(match["batch"]) <= self.last_batch
        newest = self.newest_compaction
        return newest is not None and int(match["compaction"]) <= newest.compaction


class Table:
    """One such directory."""

    def __init__(
        self,
        files: Files,
        directory: str,
        parts: Sequence[str] = ("",),
        *,
        clock: Clock = _SYSTEM_CLOCK,
    ) -> None:
        self._files: Final = files
        self.clock: Final = clock
        self._parts: Final = [f"{part}/" if part else "" for part in parts]
        self.directory: Final = directory.rstrip("/")

    def place_of(self, number: Number, run: str, part: str = "") -> str:
        """Returns the directory for the files of a batch, or of a compaction."""
        kind = f"compacted-{number.compaction}-" if number.is_compaction else ""
        below = f"{part}/" if part else ""
        return f"{self.directory}/{below}batch={number.batch}-{kind}{run}"

    def listed(self, place: str) -> list[dict[str, Any]]:
        """Returns the Parquet files of a directory, as entries of a document."""
        start = len(self.directory) + 1
        return [
            {"path": f"{place[start:]}/{file.path}", "bytes": file.bytes}
            for file in self._files.below(place)
            if file.path.endswith(".parquet") and not is_hidden(file.path)
        ]

    def staged(self, place: str) -> list[dict[str, Any]]:
        """Does the same for a complete directory, and syncs it: its files are on the disk before a
        document names them.
        """
        self._files.sync(place)
        return self.listed(place)

    def commit(self, number: Number, document: Document) -> None:
        """Commits a batch, or a compaction.

        Raises:
            PipelineError: another run has committed it.
        """
        named = {"batch": number.batch, **document}
        if not self._files.create(self._path(str(number)), seal(named)):
            raise self.committed_by_another(number)

    def committed_by_another(self, number: Number) -> PipelineError:
        """Returns the error for a batch or compaction that another run has committed."""
        return PipelineError(f"{self.directory} has another {number} already: two runs write to it")

    def document(self, batch_id: int) -> Document | None:
        """Returns the document of a batch; None if it was not committed, or was compacted."""
        try:
            return read_sealed(self._files, self._path(str(Number(batch_id))))
        except FileNotFoundError:
            return None

    def draft_path(self, batch_id: int, name: str) -> str:
        """Returns the file of a draft of a batch."""
        return self._path(f"draft-{batch_id}-{name}")

    def keep_draft(self, batch_id: int, name: str, document: Document) -> bool:
        """Keeps what a batch will be, until it is committed; False if there is a draft of this
        name.
        """
        return self._files.create(self.draft_path(batch_id, name), seal(document))

    def draft(self, batch_id: int, name: str) -> Document | None:
        """Returns a draft of a batch; None if there is none of this name."""
        try:
            return read_sealed(self._files, self.draft_path(batch_id, name))
        except FileNotFoundError:
            return None

    def drafts(self, batch_id: int) -> list[str]:
        """Returns the names of all drafts of a batch, in order."""
        drafts = self._drafts()
        return sorted(each["name"] for each in drafts if int(each["batch"]) == batch_id)

    def drop_draft(self, batch_id: int, name: str) -> None:
        """Removes a draft of a batch."""
        self._files.remove(self.draft_path(batch_id, name))

    def _drafts(self) -> list[re.Match[str]]:
        names = self._files.names(f"{self.directory}/{MANIFEST}")
        return [match for name in names if (match := _DRAFT.fullmatch(name))]

    def last_batch(self) -> int:
        """Returns the newest committed batch; -1 if there is none.

        Raises:
            PipelineError: the manifest is damaged.
        """
        return self._looked(self._last_batch)

    def snapshot(self) -> Snapshot:
        """Returns the current snapshot; use `reading` to keep its files.

        Raises:
            PipelineError: the manifest is damaged, or lacks a batch.
        """
        return self._looked(self._snapshot)

    def _looked(self, look: Callable[[], _Seen]) -> _Seen:
        missing: PipelineError | None = None
        for _ in range(_LOOKS):
            try:
                return look()
            except FileNotFoundError:
                missing = None
            except _BatchMissingError as error:
                # A large directory is listed in pieces: a compaction may have come between.
                missing = error
        raise missing or PipelineError(f"{self.directory} changes faster than it can be looked at")

    def _last_batch(self) -> int:
        listing = self._listing()
        return max(self._compacted(listing), *listing.batches[-1:], -1)

    def _compacted(self, listing: _Listing) -> int:
        """Returns the last compacted batch; -1 if there is none."""
        numbers = listing.compactions
        return int(self._compaction(numbers[-1])["batch"]) if numbers else -1

    def _snapshot(self) -> Snapshot:
        listing = self._listing()
        newest, documents, superseded = None, [], []
        if listing.compactions:
            documents.append(self._compaction(listing.compactions[-1]))
            newest = Number(documents[0]["batch"], listing.compactions[-1])
            superseded = listing.superseded_by(newest)
        first = 0 if newest is None else newest.batch + 1
        batches = [batch for batch in listing.batches if batch >= first]
        following: list[Document] = []
        for batch in reversed(batches):
            following.insert(0, read_sealed(self._files, self._path(str(Number(batch)))))
            if following[0].get("complete"):
                superseded += [str(Number(each)) for each in batches if each < batch]
                documents, first = [], batch
                break
        for wanted, batch in enumerate((each for each in batches if each >= first), first):
            if batch != wanted:
                raise _BatchMissingError(f"{self.directory} has no batch {wanted} in its manifest")
        last = batches[-1] if batches else first - 1
        return Snapshot(last, [*documents, *following], newest, superseded)

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """A context with the current snapshot, whose files are kept while it is read.

        Raises:
            PipelineError: as `snapshot`.
        """
        if not self._is_begun():
            yield Snapshot()
            return
        with Reader(self._files, self.directory, self.clock):
            yield self.snapshot()

    def snapshot_for_process(self) -> Snapshot:
        """Returns the current snapshot, whose files are kept until this process has ended.

        Raises:
            PipelineError: as `snapshot`.
        """
        if not self._is_begun():
            return Snapshot()
        Reader(self._files, self.directory, self.clock, process_owner()).begin_for_process()
        return self.snapshot()

    def _is_begun(self) -> bool:
        """Whether there is anything to read: reading must not create a directory."""
        return bool(self._files.names(f"{self.directory}/{MANIFEST}"))

    def sweep(self, *, replaced_before_ms: int | None = None) -> None:
        """Removes garbage, unless there are readers.

        It may be interrupted and repeated. With a time it removes only what a compaction before
        that time has replaced.
        """
        now = self.snapshot()
        kept, over = now.paths, now
        if replaced_before_ms is not None:
            over = self._looked(partial(self._compacted_before, replaced_before_ms))
            kept = kept | over.paths
        # After the snapshot: a reader that begins later finds this one, or a newer one.
        if has_readers(self._files, self.directory, self.clock):
            return
        # First the files of a document, which is all that knows of them, and then it: one that is
        # killed again and again has less to do each time.
        for name in over.superseded:
            for file in self.files_of(name):
                if file["path"] not in kept:
                    self._files.remove(f"{self.directory}/{file['path']}")
            self._files.remove(self._path(name))
        for place in self._unnamed_places(kept):
            if over.is_over(place):
                self._files.remove(f"{self.directory}/{place}")

    def _compacted_before(self, time_ms: int) -> Snapshot:
        """Returns the snapshot of the last compaction before a time."""
        listing = self._listing()
        for compaction in reversed(listing.compactions):
            document = self._compaction(compaction)
            if document["at"] < time_ms:
                number = Number(document["batch"], compaction)
                return Snapshot(number.batch, [document], number, listing.superseded_by(number))
        return Snapshot()

    def clear(self, batch_id: int, document: Document) -> None:
        """Removes other attempts at a committed batch, which are never read, and all drafts up to
        it; but nothing of a compacted one: the files of another attempt may still count there.
        """
        if self._looked(lambda: self._compacted(self._listing())) >= batch_id:
            return
        kept = [file["path"] for file in (*document["files"], *document.get("state", ()))]
        for place in self._unnamed_places(kept):
            match = _PLACE.search(place)
            if match and match["compaction"] is None and int(match["batch"]) == batch_id:
                self._files.remove(f"{self.directory}/{place}")
        for draft in self._drafts():
            if int(draft["batch"]) <= batch_id:
                self.drop_draft(int(draft["batch"]), draft["name"])

    def forget(self, run: str) -> None:
        """Removes the files that a run has written but not committed."""
        for place in self._unnamed_places(self.snapshot().paths):
            if place.endswith(f"-{run}"):
                self._files.remove(f"{self.directory}/{place}")

    def drop(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Removes a state that another has replaced."""
        for place in {_place_of(file["path"]) for file in files}:
            self._files.remove(f"{self.directory}/{place}")

    def unnamed(self, snapshot: Snapshot) -> list[str]:
        """Returns files that no document names, mostly of attempts that failed."""
        superseded = (file for name in snapshot.superseded for file in self.files_of(name))
        kept = snapshot.paths | {file["path"] for file in superseded}
        return [
            path
            for part in self._parts
            for name in sorted(self._files.names(f"{self.directory}/{part}"))
            if _PLACE.fullmatch(name)
            for path in (f["path"] for f in self.listed(f"{self.directory}/{part}{name}"))
            if path not in kept
        ]

    def _unnamed_places(self, kept: Iterable[str]) -> list[str]:
        used = {_place_of(path) for path in kept}
        return [
            f"{part}{name}"
            for part in self._parts
            for name in self._files.names(f"{self.directory}/{part}")
            if f"{part}{name}" not in used and _PLACE.fullmatch(name)
        ]

    def files_of(self, name: str) -> list[dict[str, Any]]:
        """Returns the files of one document; none if it is gone."""
        try:
            files: list[dict[str, Any]] = read_sealed(self._files, self._path(name))["files"]
            return files
        except FileNotFoundError:
            # Somebody else is at it as well.
            return []

    def _listing(self) -> _Listing:
        names = self._files.names(f"{self.directory}/{MANIFEST}")
        if any(map(_FORMER_COMPACTION.fullmatch, names)):
            raise PipelineError(
                f"{self.directory} was compacted by an earlier version, whose names are not read "
                "any more: archive its topic again"
            )
        found = [match.groups() for name in names if (match := _DOCUMENT.fullmatch(name))]
        batches, compactions = (
            sorted(int(number) for kind, number in found if kind == wanted)
            for wanted in ("batch", "compacted")
        )
        return _Listing(batches, compactions)

    def _compaction(self, number: int) -> Document:
        return read_sealed(self._files, self._path(str(Number(-1, number))))

    def _path(self, name: str) -> str:
        return f"{self.directory}/{MANIFEST}/{name}.json"


def _place_of(path: str) -> str:
    match = _PLACE_OF_FILE.match(path)
    return match[1] if match else path
