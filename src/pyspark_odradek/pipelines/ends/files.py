"""Small files and listings, where pipelines keep their data. Not for the data itself.

Spark's own Python interface has no files. Its JVM knows every kind of file system that Spark can
write to; a client of Spark Connect has no JVM, and uses Arrow's: local and shared disks, and
what Arrow knows by its URI, with credentials as Arrow finds them.
"""

import os
from typing import Any

from pyspark.sql import SparkSession


class FileSystem:
    """What pipelines keep beside their data: the files of a session, or of a client of Connect."""

    def __init__(self, spark: SparkSession) -> None:
        # A client's session is of a class of its own, whatever it is declared to be.
        is_classic = isinstance(spark, SparkSession)
        self._files: HadoopFiles | ArrowFiles = HadoopFiles(spark) if is_classic else ArrowFiles()

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return self._files.exists(path)

    def names(self, directory: str) -> list[str]:
        """What is in a directory; nothing where there is none."""
        return self._files.names(directory)

    def read(self, path: str) -> str:
        """The text of a file."""
        return self._files.read(path)

    def replace(self, path: str, text: str) -> None:
        """Writes a file as a whole: it is there with all of its text, or as it was."""
        self._files.replace(path, text)

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it."""
        self._files.remove(path)

    def move(self, path: str, target: str) -> None:
        """Moves a file to where none is, and makes the directories that lead there.

        Raises:
            OSError: it cannot be moved.
        """
        self._files.move(path, target)


class HadoopFiles:
    """Through Spark's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def exists(self, path: str) -> bool:
        """See `FileSystem`."""
        hadoop_path = self._path(path)
        return bool(self._of(hadoop_path).exists(hadoop_path))

    def names(self, directory: str) -> list[str]:
        """See `FileSystem`."""
        root = self._path(directory)
        file_system = self._of(root)
        if not file_system.exists(root) or not file_system.getFileStatus(root).isDirectory():
            return []
        return [status.getPath().getName() for status in file_system.listStatus(root)]

    def read(self, path: str) -> str:
        """See `FileSystem`."""
        hadoop_path = self._path(path)
        stream = self._of(hadoop_path).open(hadoop_path)
        try:
            data: bytes = bytes(stream.readAllBytes())
            return data.decode()
        finally:
            stream.close()

    def replace(self, path: str, text: str) -> None:
        """See `FileSystem`."""
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
        """See `FileSystem`."""
        hadoop_path = self._path(path)
        self._of(hadoop_path).delete(hadoop_path, True)

    def move(self, path: str, target: str) -> None:
        """See `FileSystem`."""
        source, destination = self._path(path), self._path(target)
        file_system = self._of(destination)
        file_system.mkdirs(destination.getParent())
        if not file_system.rename(source, destination):
            raise OSError(f"{path} could not be moved to {target}")

    @property
    def configuration(self) -> Any:
        """Hadoop's, of this session: how it reaches its file systems."""
        context: Any = self._spark._jsc
        return context.hadoopConfiguration()

    def uri(self, path: str) -> str:
        """A path as a whole URI, as it is from anywhere."""
        place = self._path(path)
        return str(self._of(place).makeQualified(place).toString())

    def _path(self, path: str) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.hadoop.fs.Path(path)

    def _of(self, path: Any) -> Any:
        return path.getFileSystem(self.configuration)


class ArrowFiles:
    """Through Arrow, in this process: the same files as Spark's where both have the same disks."""

    def exists(self, path: str) -> bool:
        """See `FileSystem`."""
        files, place = _located(path)
        return self._is_there(files, place)

    def names(self, directory: str) -> list[str]:
        """See `FileSystem`."""
        from pyarrow.fs import FileSelector, FileType

        files, place = _located(directory)
        if files.get_file_info(place).type != FileType.Directory:
            return []
        return [info.base_name for info in files.get_file_info(FileSelector(place))]

    def read(self, path: str) -> str:
        """See `FileSystem`."""
        files, place = _located(path)
        with files.open_input_stream(place) as stream:
            return bytes(stream.read()).decode()

    def replace(self, path: str, text: str) -> None:
        """See `FileSystem`."""
        files, place = _located(path)
        files.create_dir(os.path.dirname(place), recursive=True)
        with files.open_output_stream(f"{place}.tmp") as stream:
            stream.write(text.encode())
        files.move(f"{place}.tmp", place)

    def remove(self, path: str) -> None:
        """See `FileSystem`."""
        from pyarrow.fs import FileType

        files, place = _located(path)
        match files.get_file_info(place).type:
            case FileType.Directory:
                files.delete_dir(place)
            case FileType.File:
                files.delete_file(place)

    def move(self, path: str, target: str) -> None:
        """See `FileSystem`."""
        files, place = _located(path)
        destination = _located(target)[1]
        files.create_dir(os.path.dirname(destination), recursive=True)
        files.move(place, destination)

    def _is_there(self, files: Any, place: str) -> bool:
        from pyarrow.fs import FileType

        return bool(files.get_file_info(place).type != FileType.NotFound)


def _located(path: str) -> tuple[Any, str]:
    """Arrow's file system of a path or URI, and the path in it."""
    from pyarrow.fs import FileSystem as ArrowFileSystem

    where: tuple[Any, str] = ArrowFileSystem.from_uri(
        path if "://" in path else os.path.abspath(path)
    )
    return where
