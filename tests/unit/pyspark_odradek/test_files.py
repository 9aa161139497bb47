"""Files without a JVM: if these fail, a pipeline over Spark Connect loses its place."""

from pathlib import Path

import pytest

from pyspark_odradek.pipelines.ends.files import ArrowFiles


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_file_is_replaced_listed_read_and_removed(tmp_path: Path, scheme: str) -> None:
    files, root = ArrowFiles(), f"{scheme}{tmp_path}/new"
    assert not files.exists(root)
    assert files.names(root) == []
    for text in ("first", "the second is longer"):
        files.replace(f"{root}/a.json", text)
        assert files.read(f"{root}/a.json") == text
    files.replace(f"{root}/batch=0/b", "")
    assert sorted(files.names(root)) == ["a.json", "batch=0"]
    files.move(f"{root}/batch=0/b", f"{root}/deep/er/b")
    assert files.names(f"{root}/deep/er") == ["b"]
    files.remove(f"{root}/deep")
    files.remove(f"{root}/batch=0")
    files.remove(f"{root}/a.json")
    files.remove(f"{root}/never")
    assert files.exists(root)
    assert files.names(root) == []


def test_a_relative_path_is_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ArrowFiles().replace("archive/x", "text")
    assert (tmp_path / "archive/x").read_text() == "text"
