"""Small files and listings on any file system that Spark's JVM knows.

Spark's own Python interface has no files; its JVM knows every kind of them. Not for data.
"""

from typing import Any

from pyspark.sql import SparkSession


class FileSystem:
    """What pipelines keep beside their data."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        hadoop_path = self._path(path)
        return bool(self._of(hadoop_path).exists(hadoop_path))

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing where there is none."""
        root = self._path(directory)
        file_system = self._of(root)
        if not file_system.exists(root):
            return []
        return [status.getPath().getName() for status in file_system.listStatus(root)]

    def read(self, path: str) -> str:
        """The text of a file."""
        hadoop_path = self._path(path)
        stream = self._of(hadoop_path).open(hadoop_path)
        try:
            data: bytes = bytes(stream.readAllBytes())
            return data.decode()
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """Writes a file as a whole: it is there with all of its text, or as it was."""
        target, partial = self._path(path), self._path(f"{path}.tmp")
        file_system = self._of(target)
        stream = file_system.create(partial, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if file_system.exists(target):
            file_system.delete(target, False)
        if not file_system.rename(partial, target):
            raise OSError(f"{partial} could not be renamed to {target}")

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        hadoop_path = self._path(path)
        self._of(hadoop_path).delete(hadoop_path, True)

    def move(self, path: str, target: str) -> None:
        """Moves a file to where none is, and makes the directories that lead there.

        Raises:
            OSError: it cannot be moved.
        """
        source, destination = self._path(path), self._path(target)
        file_system = self._of(destination)
        file_system.mkdirs(destination.getParent())
        if not file_system.rename(source, destination):
            raise OSError(f"{path} could not be moved to {target}")

    def _path(self, path: str) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.hadoop.fs.Path(path)

    def _of(self, path: Any) -> Any:
        context: Any = self._spark._jsc
        return path.getFileSystem(context.hadoopConfiguration())
