"""The calls that not every operating system has: if one of these fails, a substitute does something
else."""

import os
import socket
from pathlib import Path

import pytest

from odradek.system_calls import host_name, sync_path, unshared_file


def test_a_directory_and_a_file_are_synced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"thread")
    sync_path(str(path))
    sync_path(str(tmp_path))
    assert path.read_bytes() == b"thread"
    with pytest.raises(FileNotFoundError):
        sync_path(str(tmp_path / "nothing"))


def test_a_file_that_may_only_be_read_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's executors may be another user than who commits what they have written: each batch
    of a pipeline failed."""
    path, usual = tmp_path / "file", os.open
    synced: list[int] = []
    path.write_bytes(b"thread")

    def opened(path: str, flags: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", path)
        return usual(path, flags)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    sync_path(str(path))
    assert synced == [path.stat().st_ino]


def test_a_file_that_nobody_else_reads() -> None:
    with unshared_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        descriptors_and_files = os.path.realpath(path)
    assert not Path(descriptors_and_files).exists()


def test_the_machine_has_a_name() -> None:
    assert host_name() == socket.gethostname()
