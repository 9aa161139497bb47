"""The reference pages are written from the tables; a page left behind misleads its readers."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_pages_are_up_to_date() -> None:
    """Run tools/generate_reference.py after changing a table."""
    command = [sys.executable, str(ROOT / "tools" / "generate_reference.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
