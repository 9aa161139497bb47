"""`odradek leases`: what an operator sees when retention does not do what it is set to."""

import json
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.clock import SystemClock
from odradek.storage import OsFileSystem
from odradek.storage.leases import Lease, write_lease


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    now_ms = SystemClock().wall_ms()
    for name, lease_id, left_ms in [("a-0", "one", 1_000_000), ("a-1", "two", 500_000)]:
        Path(tmp_path, name).mkdir()
        lease = Lease(lease_id, "spark@host", 42, now_ms + left_ms)
        write_lease(OsFileSystem(1), str(tmp_path / name), lease, now_ms)
    over = Lease("over", "spark@host", 42, now_ms - 1)
    write_lease(OsFileSystem(1), str(tmp_path / "a-0"), over, now_ms)
    return tmp_path


def test_it_lists_what_is_held(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leases", str(directory)]) == 0
    header, first, second = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header == ["PARTITION", "FROM-OFFSET", "SECONDS-LEFT", "OWNER", "LEASE"]
    assert (first[0], first[1], first[3:]) == ("a-1", "42", ["spark@host", "two"])
    assert second[0] == "a-0"
    assert 0 < int(first[2]) < int(second[2]) <= 1000


def test_it_prints_json(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leases", str(directory), "--format", "json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["id"] for each in found] == ["two", "one"]
    assert found[0].keys() == {"partition", "id", "owner", "offset", "expires_ms"}


def test_no_leases_and_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leases", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["leases", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
