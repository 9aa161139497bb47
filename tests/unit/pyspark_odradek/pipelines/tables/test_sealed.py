"""An archive's documents: a byte that was changed in one is found, whichever it is.

If these fail, an audit calls an archive whole of which nobody knows any more what it holds.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_odradek.pipelines.ends.files import ArrowFiles
from pyspark_odradek.pipelines.ends.sealed import read_sealed, seal, unseal
from pyspark_odradek.pipelines.running.settings import PipelineError

RANGE = {"topic": "orders", "partition": 0, "start": 0, "end": 120, "records": 120}
DOCUMENT = {
    "batch": 3,
    "files": [{"path": "batch=3/hour=03/ä.parquet", "bytes": 8121, "ranges": [RANGE]}],
}


def is_refused(content: bytes) -> bool:
    try:
        unseal(content.decode())
    except ValueError:
        return True
    return False


def test_a_document_comes_back() -> None:
    assert unseal(seal(DOCUMENT)) == DOCUMENT


@given(st.integers(0, len(seal(DOCUMENT)) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(position: int, change: int) -> None:
    content = bytearray(seal(DOCUMENT).encode())
    content[position] ^= change
    assert is_refused(bytes(content))


@given(st.integers(0, len(seal(DOCUMENT)) - 1))
def test_any_end_that_is_missing_is_found(end: int) -> None:
    assert is_refused(seal(DOCUMENT)[:end].encode())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"\xff\xfe", "can't decode"),
        (b"[]", "it has no checksum"),
        (b'{"files": []}', "it has no checksum"),
        (b"[" * 100_000, "recursion"),
        (seal(DOCUMENT).replace("8121", "8122").encode(), "not what was written"),
    ],
)
def test_what_is_wrong_is_said_with_the_name_of_the_file(
    tmp_path: Path, content: bytes, why: str
) -> None:
    path = tmp_path / "batch-3.json"
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=rf"batch-3\.json is damaged: .*{why}"):
        read_sealed(ArrowFiles(), str(path))
