"""The checkpoint of a stream; a run that failed at once leaves none behind.

Spark makes the directory before it asks source and sink anything, and writes the offsets of the
first batch before it runs it. If that fails, the user corrects a setting and starts again, but
would find a useless checkpoint, whose state may have another schema.
"""

import json
from typing import Final

from pyspark_odradek.pipelines.ends.directories import MARK, Mark
from pyspark_odradek.pipelines.ends.files import Files, whole_name
from pyspark_odradek.pipelines.ends.owners import LOCK

# Before the offsets, an offset file has its version and the settings with which the batch was
# planned.
_LINES_BEFORE: Final = 2


class Checkpoint:
    """The checkpoint of one query; opened before the query starts."""

    def __init__(self, files: Files, path: str) -> None:
        self.path: Final = path
        # One that a lock and a mark are kept in need not have been begun.
        self.was_there: Final = any(
            whole_name(name) not in (LOCK, MARK) for name in files.names(path)
        )
        self._files = files

    def last_commit(self) -> int:
        """The newest batch that Spark has completed; -1 if there is none."""
        return max(self._numbers("commits"), default=-1)

    def watermark_ms(self) -> int:
        """The watermark behind the newest completed batch; 0 if there is none yet."""
        done = self.last_commit()
        if done < 0:
            return 0
        found = json.loads(self._files.read(f"{self.path}/commits/{done}").splitlines()[1])
        return int(found.get("nextBatchWatermarkMs", 0))

    def offsets(self, batch_id: int) -> list[str]:
        """Returns the end offsets of a batch for each source, as Spark has written them."""
        return self._files.read(f"{self.path}/offsets/{batch_id}").splitlines()[_LINES_BEFORE:]

    def query_id(self) -> str:
        """The id of the query, which it keeps as long as this checkpoint."""
        found: str = json.loads(self._files.read(f"{self.path}/metadata"))["id"]
        return found

    def mark(self, mark: Mark) -> None:
        """Marks one without a directory beside it; once a batch is done, whose it is, for good.

        Raises:
            PipelineError: it is another's, or was begun with other options.
        """
        place = f"{self.path}/{MARK}"
        if self.last_commit() >= 0 and self._files.exists(place):
            found = self._files.read(place)
            mark.check(self.path, found)
            if mark.is_in(found):
                return
        self._files.replace(place, mark.text())

    def take_back(self) -> None:
        """Removes the checkpoint that the failed query made, but not an earlier one, nor one with a
        completed batch.
        """
        if self.was_there or self.last_commit() >= 0:
            return
        names = self._files.names(self.path)
        if LOCK not in names:
            self._files.remove(self.path)
            return
        for name in names:
            if name != LOCK:
                self._files.remove(f"{self.path}/{name}")

    def take_back_unless_planned(self) -> None:
        """Does the same, unless a batch was planned: some of its tasks may have written."""
        if not self._numbers("offsets"):
            self.take_back()

    def _numbers(self, folder: str) -> list[int]:
        names = self._files.names(f"{self.path}/{folder}")
        return [int(name) for name in names if name.isdecimal()]
