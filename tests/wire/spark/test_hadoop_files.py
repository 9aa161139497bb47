"""Small files by way of Hadoop, which stands for every kind of store that Spark can write to.

If these fail, a pipeline whose home is no disk loses its place, or two of them take the same one.
"""

import hashlib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pyspark_odradek.pipelines.bookkeeping import checksums
from pyspark_odradek.pipelines.ends.files import HadoopFiles

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_a_file_is_created_replaced_listed_read_and_removed(spark, tmp_path: Path) -> None:
    files, root = HadoopFiles(spark), f"file://{tmp_path}/new"
    assert not files.exists(root)
    assert files.names(root) == []
    assert files.below(root) == []
    with pytest.raises(FileNotFoundError):
        files.read(f"{root}/a.json")
    assert files.create(f"{root}/a.json", "first")
    assert not files.create(f"{root}/a.json", "again")
    assert files.read(f"{root}/a.json") == "first"
    files.replace(f"{root}/a.json", "second")
    assert files.read(f"{root}/a.json") == "second"
    files.replace(f"{root}/deep/er/b", "12")
    assert sorted(files.names(root)) == ["a.json", "deep"]
    assert files.below(root) == [("a.json", 6), ("deep/er/b", 2)]
    files.remove(f"{root}/deep")
    files.remove(f"{root}/never")
    assert files.names(root) == ["a.json"]


def test_what_is_removed_while_it_is_looked_for_is_not_there(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at an archive beside its compaction ended with an exception of Java's, where on a disk
    the look is repeated."""
    files, place = HadoopFiles(spark), f"file://{tmp_path}/gone"
    find = HadoopFiles._of

    class Late:
        """A file system that is asked just before somebody else removes what it has."""

        def __init__(self, path: Any) -> None:
            self._real = find(files, path)

        def exists(self, path: Any) -> bool:
            return bool(before.pop() if before else self._real.exists(path))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    monkeypatch.setattr(HadoopFiles, "_of", lambda _, path: Late(path))
    before = [True]
    assert files.below(place) == []
    before = [True]
    assert files.names(place) == []
    before = [True]
    with pytest.raises(FileNotFoundError):
        files.read(place)


def test_a_checksum_is_the_same_by_workers_and_by_the_driver(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole files went through the heap: a large one ended the archive at each start."""
    content = b"0123456789" * 300_000
    path = tmp_path / "a b%20c.parquet"
    path.write_bytes(content)
    expected = (len(content), hashlib.sha256(content).hexdigest())
    for small_bytes in (len(content), len(content) - 1):
        monkeypatch.setattr(checksums, "_SMALL_BYTES", small_bytes)
        found = checksums.checksums_of(spark, [str(path), f"{path}.gone"])
        assert found == {str(path): expected}
    assert checksums._in_jvm(spark, HadoopFiles(spark), str(path)) == expected


def test_a_file_larger_than_any_array_is_hashed_in_pieces(
    spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole files went through the heap: the archive died with the default one, at each start, and
    behind 2 GiB, where an array of Java's ends, with any."""
    path, piece = tmp_path / "large.parquet", bytes(1 << 20)
    heap_bytes = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
    pieces = max(heap_bytes, 1 << 31) // len(piece) + 1
    with path.open("wb") as file:
        file.truncate(pieces * len(piece))  # takes no room on the disk
    digest = hashlib.sha256()
    for _ in range(pieces):
        digest.update(piece)
    expected = (pieces * len(piece), digest.hexdigest())
    # By the workers, and by the JVM, as where no worker has the disk.
    assert checksums.checksums_of(spark, [str(path)]) == {str(path): expected}
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "local_path", lambda _: None)
        assert checksums.checksums_of(spark, [str(path)]) == {str(path): expected}
    tracemalloc.start()
    try:
        assert checksums.checksum_of(str(path)) == expected
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * len(piece)
