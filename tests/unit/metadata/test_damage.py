"""The metadata file, damaged in every way: read as it was written, or refused by one line."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.metadata.image import ConfigResource
from odradek.metadata.sqlite import schema
from odradek.metadata.sqlite.database import Database
from odradek.metadata.store import MetadataStoreError

TOPIC = ConfigResource.topic("orders")

thorough = pytest.mark.parametrize(
    "step",
    [pytest.param(331, id="some"), pytest.param(41, id="many", marks=pytest.mark.slow)],
)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    database = Database(str(tmp_path))
    settings = [(TOPIC, f"setting.{number}", "v" * 20) for number in range(40)]
    database.write([schema.put_property(schema.CLUSTER_ID, "c"), schema.put_configs(settings)])
    database.close()
    return tmp_path / schema.FILE_NAME


def refusal(path: Path, content: bytes) -> str | None:
    """The start's error about a file with this content; None when it reads it."""
    for left in path.parent.iterdir():
        left.unlink()
    path.write_bytes(content)
    try:
        database = Database(str(path.parent))
    except MetadataStoreError as error:
        return str(error)
    try:
        database.read()
    except MetadataStoreError as error:
        return str(error)
    finally:
        database.close()
    return None


@thorough
def test_cut_anywhere(path: Path, step: int) -> None:
    """A torn file would be taken for a whole one, or end the start with a traceback."""
    content = path.read_bytes()
    for size_bytes in range(1, len(content), step):
        text = refusal(path, content[:size_bytes])
        assert text is not None, size_bytes
        assert text.startswith(str(path)), size_bytes
        assert "\n" not in text


@thorough
def test_flipped_anywhere(path: Path, step: int) -> None:
    """A damaged page would end the start with a traceback."""
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), step):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        text = refusal(path, bytes(flipped))
        if text is not None:
            refused += 1
            assert text.startswith(str(path)), position
            assert "\n" not in text
    assert refused > 0


def test_zeros_a_directory_or_no_permission(path: Path) -> None:
    """The start would end with a traceback instead of a line that names the culprit."""
    content = path.read_bytes()
    assert refusal(path, content) is None
    zeroed = refusal(path, bytes(len(content)))
    assert zeroed is not None
    assert zeroed.startswith(str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(MetadataStoreError, match=str(path)):
        Database(str(path.parent))
    if os.geteuid() != 0:
        path.rmdir()
        path.write_bytes(content)
        path.chmod(0)
        with pytest.raises(MetadataStoreError, match=str(path)):
            Database(str(path.parent))


def test_a_commit_that_is_interrupted_is_not_read_as_if_it_were_done(path: Path) -> None:
    """The connection reads its own open transaction: an import would take it for committed."""
    database = Database(str(path.parent))

    def interrupted() -> Iterator[tuple[str, str]]:
        yield ("name", "value")
        raise KeyboardInterrupt

    written = schema.put_property(schema.CLUSTER_ID, "another")
    with pytest.raises(KeyboardInterrupt):
        database.write([written, (written[0], interrupted())])
    assert database.read().cluster_id == "c"
    database.write([schema.put_property(schema.CLUSTER_ID, "a later one")])
    database.close()
