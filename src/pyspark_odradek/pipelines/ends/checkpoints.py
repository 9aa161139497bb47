"""Where a stream keeps how far it is, and that a run which failed at once leaves none behind.

Spark makes the directory before it asks source and sink anything, and writes down what the first
batch is of before it runs it. When that fails, somebody corrects a setting and comes again: to a
checkpoint that is of use to nobody, and whose state may be of another shape.
"""

from typing import Final

from pyspark_odradek.pipelines.ends.files import FileSystem


class Checkpoint:
    """The checkpoint of one query; taken up before the query starts."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path: Final = path
        self.was_there: Final = files.exists(path)
        self._files = files

    def take_back(self) -> None:
        """Removes what the failed query has made. One that was there before stays as it is."""
        if not self.was_there:
            self._files.remove(self.path)

    def take_back_unless_planned(self) -> None:
        """The same, unless a batch was planned: some of its tasks may have written."""
        if not any(name.isdecimal() for name in self._files.names(f"{self.path}/offsets")):
            self.take_back()
