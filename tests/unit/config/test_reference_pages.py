"""The reference pages are written from the tables; a page left behind misleads its readers."""

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.config import TOPIC_SETTINGS, ConfigError

ROOT = Path(__file__).resolve().parents[3]


def test_pages_are_up_to_date() -> None:
    """Run tools/generate_reference.py after changing a table."""
    command = [sys.executable, str(ROOT / "tools" / "generate_reference.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_segments_that_kafka_refuses_are_told_as_they_are_taken() -> None:
    """Somebody would rely on them in a test, and learn by an Apache Kafka that they are refused."""
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
    beyond_kafka = page.partition("## Values that Kafka refuses")[2]
    assert "| `segment.bytes`, `log.segment.bytes` | 14 to 1048575 |" in beyond_kafka
    setting = TOPIC_SETTINGS["segment.bytes"]
    assert [setting.parse(text) for text in ("14", "1048575")] == [14, 1_048_575]
    with pytest.raises(ConfigError):
        setting.parse("13")
