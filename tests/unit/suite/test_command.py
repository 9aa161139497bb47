"""The script `./test`: what it does before the suite begins."""

import shutil
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def test_the_listing_compiles_nothing(tmp_path: Path) -> None:
    """Fails when `./test --list` sets up the environment first: minutes behind each change."""
    shutil.copy(_ROOT / "test", tmp_path)
    _write_program(tmp_path / "tools" / "setup", "echo setup")
    _write_program(tmp_path / ".venv" / "bin" / "python", 'echo "suite $*"')
    assert _run(tmp_path, "--list") == ["suite -m tools.suite --list"]
    assert _run(tmp_path, "--quick") == ["setup", "suite -m tools.suite --quick"]


def _write_program(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _run(home: Path, argument: str) -> list[str]:
    run = subprocess.run(["./test", argument], cwd=home, check=True, capture_output=True, text=True)
    return run.stdout.splitlines()
