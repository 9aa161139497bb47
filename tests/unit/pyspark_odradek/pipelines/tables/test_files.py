"""Files without a JVM: if these fail, a pipeline loses its place, or two take the same one."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyspark.sql import SparkSession

from odradek.clock import ManualClock
from odradek.system_calls import sync_path
from pyspark_odradek.pipelines.ends.files import (
    ArrowFiles,
    Files,
    FileSystem,
    HadoopFiles,
    LocalFiles,
    arrow_files,
    local_path,
)
from pyspark_odradek.pipelines.ends.owners import Reader
from pyspark_odradek.pipelines.running.settings import PipelineError

A_CLIENTS = cast(SparkSession, None)


@pytest.mark.parametrize(
    ("files", "scheme"),
    [(LocalFiles(), ""), (ArrowFiles(), "file://"), (FileSystem(A_CLIENTS), "file://")],
)
@pytest.mark.parametrize("name", ["new", "a b%20[1]{c}*?#ä"])
def test_a_file_is_created_replaced_listed_read_and_removed(
    tmp_path: Path, files: Files, scheme: str, name: str
) -> None:
    """Arrow took some names for others, where Spark has the data."""
    root = f"{scheme}{tmp_path}/{name}"
    assert not files.exists(root)
    assert files.names(root) == []
    assert files.below(root) == []
    with pytest.raises(FileNotFoundError):
        files.read(f"{root}/a.json")
    assert files.create(f"{root}/a.json", "zeroth")
    assert not files.create(f"{root}/a.json", "again")
    assert files.read(f"{root}/a.json") == "zeroth"
    for text in ("first", "the second is longer"):
        files.replace(f"{root}/a.json", text)
        assert files.read(f"{root}/a.json") == text
    files.replace(f"{root}/deep/er/b", "12")
    assert sorted(files.names(root)) == ["a.json", "deep"]
    assert files.below(root) == [("a.json", 20), ("deep/er/b", 2)]
    assert files.below(f"{root}/deep") == [("er/b", 2)]
    files.remove(f"{root}/deep")
    files.remove(f"{root}/a.json")
    files.remove(f"{root}/never")
    assert files.exists(root)
    assert files.names(root) == []
    assert os.listdir(tmp_path) == [name]


def test_of_many_who_create_a_file_one_does(tmp_path: Path) -> None:
    """And its text is whole: a manifest is taken for true as soon as it is there."""
    files, path = LocalFiles(), str(tmp_path / "manifest/batch-0.json")
    with ThreadPoolExecutor(8) as pool:
        for attempt in range(20):
            texts = [f"{attempt} {number}" * 500 for number in range(8)]
            created = list(pool.map(lambda text: files.create(path, text), texts))
            assert created.count(True) == 1
            assert files.read(path) == texts[created.index(True)]
            files.remove(path)
    assert os.listdir(tmp_path / "manifest") == []


def test_who_was_asked_twice_for_a_link_has_created_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of files whose answer was lost said that there is one: the run that had committed a
    batch was told that another had."""
    link = os.link

    def link_twice(partial: str, path: str) -> None:
        link(partial, path)
        link(partial, path)

    monkeypatch.setattr(os, "link", link_twice)
    assert LocalFiles().create(str(tmp_path / "batch-0.json"), "text")
    assert not LocalFiles().create(str(tmp_path / "batch-0.json"), "text")
    assert os.listdir(tmp_path) == ["batch-0.json"]


def test_who_was_asked_twice_for_a_rename_has_replaced_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of files whose answer was lost said that there is nothing to rename: the run
    failed, though the file was as it should be."""
    rename, path = os.replace, tmp_path / "_topic.json"

    def rename_twice(partial: str, path: str) -> None:
        rename(partial, path)
        rename(partial, path)

    monkeypatch.setattr(os, "replace", rename_twice)
    LocalFiles().replace(str(path), "text")
    assert path.read_text() == "text"

    def rename_nothing(partial: str, path: str) -> None:
        os.unlink(partial)
        rename(partial, path)

    monkeypatch.setattr(os, "replace", rename_nothing)
    with pytest.raises(FileNotFoundError):
        LocalFiles().replace(str(path), "other")
    assert path.read_text() == "text"


def test_who_was_asked_twice_to_remove_what_was_linked_has_created_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlink = os.unlink

    def unlink_twice(path: str) -> None:
        unlink(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", unlink_twice)
    assert LocalFiles().create(str(tmp_path / "batch-0.json"), "text")
    assert os.listdir(tmp_path) == ["batch-0.json"]


class OfJavasServer(HadoopFiles):
    """Files on a server, which renames, or not, and of which the answer is another."""

    def __init__(self, error: Exception, *, renames: bool) -> None:
        self.texts: dict[str, str] = {}
        self._error = error
        self._renames = renames

    def _path(self, path: str) -> Any:
        return path

    def _of(self, path: Any) -> Any:
        return SimpleNamespace(
            getScheme=lambda: "hdfs",
            exists=self.texts.__contains__,
            delete=lambda path, _: self.texts.pop(path, None),
        )

    def _write(self, target: Any, text: str) -> None:
        self.texts[target] = text

    def read(self, path: str) -> str:
        return self.texts[path]

    def _rename(self, partial: Any, target: Any, how: str) -> None:
        if self._renames:
            self.texts[target] = self.texts.pop(partial)
        raise self._error


LOST: list[Exception] = [
    # A name node that is asked again looks first for what is to be renamed.
    FileNotFoundError("java.io.FileNotFoundException: rename source /b/x.tmp is not found."),
    FileExistsError("org.apache.hadoop.fs.FileAlreadyExistsException: /b/x"),
    ConnectionError("java.net.SocketTimeoutException: 60000 millis timeout"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_rename_of_which_the_answer_was_lost_has_happened(error: Exception) -> None:
    """The run that had committed a batch failed, and so did one that had replaced a file."""
    files = OfJavasServer(error, renames=True)
    assert files.create("/b/x", "text")
    files.replace("/b/x", "other")
    assert files.texts == {"/b/x": "other"}


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_rename_that_has_not_happened_is_none(error: Exception) -> None:
    files = OfJavasServer(error, renames=False)
    files.texts["/b/x"] = "text"
    if isinstance(error, FileExistsError):
        assert not files.create("/b/x", "text")
    else:
        with pytest.raises(type(error)):
            files.create("/b/x", "text")
    assert files.texts == {"/b/x": "text"}


def test_a_password_before_a_path_stays_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be another one: Arrow decodes it, and the path behind it."""
    asked: list[str] = []
    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=asked.append))
    arrow_files("s3://key:a%2Fb@orders/a%20b/c d?")
    assert asked == ["s3://key:a%2Fb@orders/a%2520b/c%20d%3F"]


def test_who_reads_a_file_that_is_replaced_sees_one_of_its_texts(tmp_path: Path) -> None:
    """It was deleted, and another renamed to its place: an archive's topic was gone in between."""
    files, path = LocalFiles(), str(tmp_path / "_topic.json")
    texts = {"first" * 500, "second" * 1000}
    files.replace(path, min(texts))
    with ThreadPoolExecutor(1) as pool:
        replaced = pool.submit(
            lambda: [files.replace(path, each) for _ in range(100) for each in texts]
        )
        seen = {files.read(path)}
        while not replaced.done():
            seen.add(files.read(path))
        replaced.result()
    assert seen <= texts


def test_what_is_removed_while_it_is_listed_is_not_there(tmp_path: Path) -> None:
    """An audit failed when the archive that it looked at renamed a file of a batch under way."""
    (tmp_path / "a").write_text("12")
    (tmp_path / "b").symlink_to(tmp_path / "gone")
    files = LocalFiles()
    assert files.below(str(tmp_path)) == [("a", 2)]
    assert files.names(str(tmp_path / "a")) == []
    assert files.names(str(tmp_path / "never")) == []


def test_what_is_created_outlives_a_crash_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document of a batch was on the disk, and its name was not: Spark knew the batch to be
    done, and the manifest did not have it."""
    try:
        os.close(os.open(tmp_path, os.O_RDONLY))
    except PermissionError:
        pytest.skip("no directory can be synced here")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    path = tmp_path / "orders/_manifest/batch-0.json"

    def nodes(*paths: Path) -> list[int]:
        return [each.stat().st_ino for each in paths]

    assert LocalFiles().create(str(path), "text")
    expected = nodes(tmp_path, path.parent.parent, path, path.parent)
    assert synced == expected
    synced.clear()
    place = tmp_path / "orders/batch=0-a"
    part = place / "date=2026-11-26/part-0.parquet"
    part.parent.mkdir(parents=True)
    part.write_text("rows")
    LocalFiles().sync(str(place))
    assert set(synced) == set(nodes(part, part.parent, place, place.parent))
    synced.clear()
    assert not LocalFiles().create(str(path), "text")
    LocalFiles().replace(str(path), "other")
    assert synced[1:] == nodes(path, path.parent)


def test_what_is_removed_while_it_is_synced_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that Spark had started twice cleared up behind itself, and the batch failed."""
    attempt = tmp_path / "batch=0-a/_temporary/attempt"
    attempt.mkdir(parents=True)
    (attempt / "part-0.parquet").write_text("rows")

    def synced(path: str) -> None:
        shutil.rmtree(attempt, ignore_errors=True)
        sync_path(path)

    monkeypatch.setattr(f"{LocalFiles.__module__}.sync_path", synced)
    LocalFiles().sync(str(attempt))
    assert attempt.parent.exists()


class OfJava(HadoopFiles):
    """Files in an object store that refuses what is written, with an exception of Java's."""

    def __init__(self, says: str) -> None:
        java = SimpleNamespace(_target_id="o1", toString=lambda: says)
        self._refusal = Py4JJavaError("An error occurred while calling o1.close.", java)

    def _path(self, path: str) -> Any:
        return path

    def _of(self, path: Any) -> Any:
        return SimpleNamespace(getScheme=lambda: "s3a")

    def _write(self, target: Any, text: str) -> None:
        raise self._refusal


@pytest.mark.parametrize(
    "says",
    [
        "java.nio.file.AccessDeniedException: s3a://b/orders/_readers/1.json: Forbidden",
        "org.apache.hadoop.security.AccessControlException: Permission denied: user=you",
    ],
)
def test_who_may_only_read_does_not_fail_at_saying_so(says: str) -> None:
    """`read_table` of what is not on a disk worked for those alone who may write there."""
    Reader(OfJava(says), "s3a://b/orders", ManualClock()).begin()


@pytest.mark.parametrize("scheme", ["hdfs", "viewfs"])
def test_a_client_writes_nothing_that_is_seen_in_part(scheme: str) -> None:
    """A run that was killed left the half of a manifest there, which was taken for damaged."""
    for work in (ArrowFiles().create, ArrowFiles().replace):
        with pytest.raises(PipelineError, match="a cannot be written to over Spark Connect: Arrow"):
            work(f"{scheme}://host:1/a", "text")


def test_another_failure_of_java_is_told() -> None:
    with pytest.raises(Py4JJavaError):
        OfJava("java.net.UnknownHostException: b").replace("s3a://b/x", "text")


def test_a_relative_path_is_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    FileSystem(A_CLIENTS).replace("archive/x", "text")
    assert (tmp_path / "archive/x").read_text() == "text"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/a b/c%20d#e?f", "/a b/c%20d#e?f"),
        ("file:/a b/c%20d#e?f", "/a b/c%20d#e?f"),
        ("file:///a", "/a"),
        ("file://localhost/a", "/a"),
        ("s3a://bucket/a", None),
        ("hdfs://host:1/a", None),
    ],
)
def test_a_path_is_what_hadoop_takes_it_for(uri: str, path: str | None) -> None:
    assert local_path(uri) == path
