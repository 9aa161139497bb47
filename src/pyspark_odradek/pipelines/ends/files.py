"""Small files and listings on the file system of a pipeline's data; not for the data itself.

Spark's own Python interface has no files. Files on disks of this machine, or on shared ones, are
read and written by this process. Spark's JVM handles every other kind of file system; a client of
Spark Connect has no JVM, and uses Arrow's, with credentials as Arrow finds them.
"""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote
from uuid import uuid4

from pyspark.sql import SparkSession

from odradek.system_calls import sync_path
from pyspark_odradek.pipelines.running.settings import PipelineError

_FILE: Final = "file:"
# A put is whole there, and may have a condition; a rename is a copy.
_OBJECT_STORES: Final = ("s3a", "s3", "gs", "abfs", "abfss", "oss", "cosn")
# Hadoop's errors: without permission, where the second is of object stores; when a conditional put
# fails, where the second is S3's, which puts the file when it is closed; and for what is gone.
_ERRORS: Final = {
    errno.EACCES: ("AccessControlException", "AccessDeniedException"),
    errno.EEXIST: ("FileAlreadyExistsException", "RemoteFileChangedException"),
    errno.ENOENT: ("FileNotFoundException", "NoSuchFileException"),
}
# Arrow renames no file there in the place of another.
_NOT_BY_ARROW: Final = ("hdfs://", "viewfs://")
# Arrow decodes the rest of a URI.
_NOT_QUOTED: Final = "/:@"
_PARTIAL: Final = re.compile(r"\.?(.+)\.[0-9a-f]{32}\.tmp")


class Listed(NamedTuple):
    """A file below a directory, by its path from there."""

    path: str
    bytes: int


class Files(Protocol):
    """The operations of a file system that pipelines need."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory exists."""
        ...

    def names(self, directory: str) -> list[str]:
        """Lists a directory; empty if it does not exist."""
        ...

    def below(self, directory: str) -> list[Listed]:
        """All files below a directory, in order."""
        ...

    def read(self, path: str) -> str:
        """Reads the text of a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        ...

    def create(self, path: str, text: str) -> bool:
        """Creates a file with its whole text; returns False, and changes nothing, if it exists.

        If several try at once, one succeeds. A store that does not answer is asked again, so there
        a file that has exactly this text already counts as created.
        """
        ...

    def replace(self, path: str, text: str) -> None:
        """Replaces a file atomically: it has the whole new text, or is as it was.

        Raises:
            PermissionError: this user may not write there.
        """
        ...

    def remove(self, path: str) -> None:
        """Removes a file, or a directory with its contents, if it exists."""
        ...

    def sync(self, directory: str) -> None:
        """Returns when all files below a directory would survive a crash of the machine."""
        ...


class FileSystem:
    """The files of a session, or of a client of Connect."""

    def __init__(self, spark: SparkSession) -> None:
        # The session of a Spark Connect client has its own class, whatever its declared type.
        self._hadoop: Final = HadoopFiles(spark) if isinstance(spark, SparkSession) else None

    def exists(self, path: str) -> bool:
        """See `Files`."""
        files, place = self._of(path)
        return files.exists(place)

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        files, place = self._of(directory)
        return files.names(place)

    def below(self, directory: str) -> list[Listed]:
        """See `Files`."""
        files, place = self._of(directory)
        return files.below(place)

    def read(self, path: str) -> str:
        """See `Files`."""
        files, place = self._of(path)
        return files.read(place)

    def create(self, path: str, text: str) -> bool:
        """See `Files`."""
        files, place = self._of(path)
        return files.create(place, text)

    def replace(self, path: str, text: str) -> None:
        """See `Files`."""
        files, place = self._of(path)
        files.replace(place, text)

    def remove(self, path: str) -> None:
        """See `Files`."""
        files, place = self._of(path)
        files.remove(place)

    def sync(self, directory: str) -> None:
        """See `Files`."""
        files, place = self._of(directory)
        files.sync(place)

    def _of(self, path: str) -> tuple[Files, str]:
        uri = path if self._hadoop is None else self._hadoop.uri(path)
        local = local_path(uri)
        if local is not None:
            return LocalFiles(), local
        return (ArrowFiles() if self._hadoop is None else self._hadoop), uri


def whole_name(name: str) -> str:
    """The name that a file gets when it is written; until then, and for good if its writer is
    killed, it has a longer one."""
    partial = _PARTIAL.fullmatch(name)
    return name if partial is None else partial[1]


def is_hidden(path: str) -> bool:
    """Whether Spark passes over a file, for its name or that of a directory in its path."""
    return any(part[0] in "._" for part in path.split("/"))


def local_path(uri: str) -> str | None:
    """Returns the path if it is on a disk of this machine; else None.

    As in Hadoop, a percent sign stands for itself.
    """
    if not uri.startswith(_FILE):
        return None if "://" in uri else os.path.abspath(uri)
    path = uri.removeprefix(_FILE)
    return "/" + path[2:].partition("/")[2] if path.startswith("//") else path


class LocalFiles:
    """On disks, those of this machine and shared ones."""

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return os.path.exists(path)

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        try:
            return os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def below(self, directory: str) -> list[Listed]:
        """See `Files`."""
        found = []
        for folder, _, names in os.walk(directory):
            for path in (os.path.join(folder, name) for name in names):
                # A file that another process renames or removes meanwhile does not exist.
                with contextlib.suppress(FileNotFoundError):
                    found.append(Listed(os.path.relpath(path, directory), os.path.getsize(path)))
        return sorted(found)

    def read(self, path: str) -> str:
        """See `Files`."""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def create(self, path: str, text: str) -> bool:
        """See `Files`."""
        partial = _write_aside(path, text)
        try:
            # A rename would replace an existing file, and an exclusive open would show the file
            # without its text.
            os.link(partial, path)
        except FileExistsError:
            # A server of files that does not answer is asked again, and has our link by then.
            if os.stat(partial).st_nlink == 1:
                return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
        sync_path(os.path.dirname(path))
        return True

    def replace(self, path: str, text: str) -> None:
        """See `Files`."""
        partial = _write_aside(path, text)
        try:
            os.replace(partial, path)
        except FileNotFoundError:
            # A server of files that does not answer is asked again, and has renamed it by then.
            if os.path.exists(partial) or self.read(path) != text:
                raise
        sync_path(os.path.dirname(path))

    def remove(self, path: str) -> None:
        """See `Files`."""
        if os.path.isdir(path) and not os.path.islink(path):
            # Somebody else may be removing the same.
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def sync(self, directory: str) -> None:
        """See `Files`."""
        for folder, _, names in os.walk(directory):
            for path in (*(os.path.join(folder, name) for name in names), folder):
                # A task that is still being killed.
                with contextlib.suppress(FileNotFoundError):
                    sync_path(path)
        if os.path.isdir(directory):
            sync_path(os.path.dirname(directory))


def _write_aside(path: str, text: str) -> str:
    folder, name = os.path.split(path)
    _make_directory(folder)
    partial = os.path.join(folder, f".{name}.{uuid4().hex}.tmp")
    with open(partial, "x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return partial


def _make_directory(path: str) -> None:
    """Creates it and the directories above, and syncs the parent of each."""
    if not os.path.isdir(path):
        above = os.path.dirname(path) or "."
        _make_directory(above)
        os.makedirs(path, exist_ok=True)
        sync_path(above)


class HadoopFiles:
    """Through Spark's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def exists(self, path: str) -> bool:
        """See `Files`."""
        hadoop_path = self._path(path)
        return bool(self._of(hadoop_path).exists(hadoop_path))

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        root = self._path(directory)
        file_system = self._of(root)
        try:
            with _errors_of_python():
                if not file_system.getFileStatus(root).isDirectory():
                    return []
                return [status.getPath().getName() for status in file_system.listStatus(root)]
        except FileNotFoundError:
            return []

    def below(self, directory: str) -> list[Listed]:
        """See `Files`."""
        while self.exists(directory):
            # Where something is removed meanwhile, the rest is listed again.
            with contextlib.suppress(FileNotFoundError), _errors_of_python():
                return sorted(self._listed(self._path(directory)))
        return []

    def _listed(self, root: Any) -> Iterator[Listed]:
        file_system = self._of(root)
        start = len(str(file_system.makeQualified(root).toString()).rstrip("/")) + 1
        statuses = file_system.listFiles(root, True)
        while statuses.hasNext():
            status = statuses.next()
            yield Listed(str(status.getPath().toString())[start:], int(status.getLen()))

    def read(self, path: str) -> str:
        """See `Files`."""
        hadoop_path = self._path(path)
        with _errors_of_python():
            stream = self._of(hadoop_path).open(hadoop_path)
            try:
                data: bytes = bytes(stream.readAllBytes())
            finally:
                stream.close()
        return data.decode()

    def create(self, path: str, text: str) -> bool:
        """See `Files`."""
        target = self._path(path)
        file_system = self._of(target)
        if file_system.getScheme() not in _OBJECT_STORES:
            return self._put(path, text, "NONE")
        builder = file_system.createFile(target).overwrite(False).recursive()
        builder = builder.opt("fs.option.create.conditional.overwrite", True)
        try:
            with _errors_of_python():
                stream = builder.build()
                stream.write(bytearray(text.encode()))
                stream.close()
        except FileExistsError:
            return self._has(path, text)
        return True

    def _has(self, path: str, text: str) -> bool:
        try:
            return self.read(path) == text
        except FileNotFoundError:
            return False

    def replace(self, path: str, text: str) -> None:
        """See `Files`."""
        target = self._path(path)
        with _errors_of_python():
            if self._of(target).getScheme() in _OBJECT_STORES:
                self._write(target, text)
            else:
                self._put(path, text, "OVERWRITE")

    def remove(self, path: str) -> None:
        """See `Files`."""
        hadoop_path = self._path(path)
        self._of(hadoop_path).delete(hadoop_path, True)

    def sync(self, directory: str) -> None:
        """See `Files`: the servers of the file system have a closed file."""

    @property
    def configuration(self) -> Any:
        """Hadoop's configuration of this session, with which it reaches its file systems."""
        context: Any = self._spark._jsc
        return context.hadoopConfiguration()

    def uri(self, path: str) -> str:
        """Returns a path as a full URI."""
        place = self._path(path)
        return str(self._of(place).makeQualified(place).toString())

    def _put(self, path: str, text: str, how: str) -> bool:
        """Writes a temporary file and renames it; False if the target exists and must not be
        replaced.
        """
        target = self._path(path)
        partial = self._path(f"{path}.{uuid4().hex}.tmp")
        self._write(partial, text)
        try:
            self._rename(partial, target, how)
        except Exception as error:
            # A server that does not answer is asked again, and has renamed it by then.
            if not self._of(partial).exists(partial) and self._has(path, text):
                return True
            self._of(partial).delete(partial, False)
            if isinstance(error, FileExistsError):
                return False
            raise
        return True

    def _rename(self, partial: Any, target: Any, how: str) -> None:
        options: Any = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        chosen = self._jvm.java.lang.reflect.Array.newInstance(options, 1)
        chosen[0] = self._jvm.java.lang.Enum.valueOf(options, how)
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            target.toUri(), self.configuration
        )
        with _errors_of_python():
            context.rename(partial, target, chosen)

    def _write(self, target: Any, text: str) -> None:
        stream = self._of(target).create(target, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _of(self, path: Any) -> Any:
        return path.getFileSystem(self.configuration)


@contextlib.contextmanager
def _errors_of_python() -> Iterator[None]:
    """Raises what Hadoop says of files as Python says it."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        for number, names in _ERRORS.items():
            if any(name in said for name in names):
                raise OSError(number, said) from error
        raise


class ArrowFiles:
    """Through Arrow, for files that are not on a disk; two processes that create one file at once
    may both succeed.
    """

    def exists(self, path: str) -> bool:
        """See `Files`."""
        from pyarrow.fs import FileType

        files, place = arrow_files(path)
        return bool(files.get_file_info(place).type != FileType.NotFound)

    def names(self, directory: str) -> list[str]:
        """See `Files`."""
        from pyarrow.fs import FileSelector, FileType

        files, place = arrow_files(directory)
        if files.get_file_info(place).type != FileType.Directory:
            return []
        content = FileSelector(place, allow_not_found=True)
        return [info.base_name for info in files.get_file_info(content)]

    def below(self, directory: str) -> list[Listed]:
        """See `Files`."""
        from pyarrow.fs import FileSelector, FileType

        files, place = arrow_files(directory)
        everything = FileSelector(place, allow_not_found=True, recursive=True)
        return sorted(
            Listed(info.path[len(place.rstrip("/")) + 1 :], info.size)
            for info in files.get_file_info(everything)
            if info.type == FileType.File
        )

    def read(self, path: str) -> str:
        """See `Files`."""
        files, place = arrow_files(path)
        with files.open_input_stream(place) as stream:
            return bytes(stream.read()).decode()

    def create(self, path: str, text: str) -> bool:
        """See `Files`."""
        if self.exists(path):
            return False
        self.replace(path, text)
        return True

    def replace(self, path: str, text: str) -> None:
        """See `Files`."""
        files, place = arrow_files(path)
        files.create_dir(os.path.dirname(place), recursive=True)
        # An object is there when it is whole.
        with files.open_output_stream(place) as stream:
            stream.write(text.encode())

    def remove(self, path: str) -> None:
        """See `Files`."""
        from pyarrow.fs import FileType

        files, place = arrow_files(path)
        match files.get_file_info(place).type:
            case FileType.Directory:
                files.delete_dir(place)
            case FileType.File:
                files.delete_file(place)

    def sync(self, directory: str) -> None:
        """See `Files`: the servers of the file system have a closed file."""


def arrow_files(uri: str) -> tuple[Any, str]:
    """Arrow's file system of a URI, and the path in it; as in Hadoop, a percent sign stands for
    itself, and so does a question mark.

    Raises:
        PipelineError: what is written there would be seen in part.
    """
    if uri.startswith(_NOT_BY_ARROW):
        raise PipelineError(
            f"{uri} cannot be written to over Spark Connect: Arrow replaces no file there in one "
            "step; run the pipeline in a session of its own"
        )
    from pyarrow.fs import FileSystem as ArrowFileSystem

    where: tuple[Any, str] = ArrowFileSystem.from_uri(_quoted(uri))
    return where


def _quoted(uri: str) -> str:
    """Quotes the path of a URI; before it there may be a password, which is quoted already."""
    scheme, mark, rest = uri.partition("://")
    server, slash, path = rest.partition("/")
    return f"{scheme}{mark}{server}{slash}{quote(path, safe=_NOT_QUOTED)}"
