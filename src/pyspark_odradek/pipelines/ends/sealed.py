"""The documents of an archive: JSON that ends with a checksum of itself.

    {"batch": 0,
     "files": [...],
     "sha256": "..."}     of the document without this line

A document has exactly one text, so any changed byte is found.
"""

import json
from hashlib import sha256
from typing import Any, Final, Protocol

from pyspark_odradek.pipelines.running.settings import PipelineError

_SEAL: Final = "sha256"
Document = dict[str, Any]


class Readable(Protocol):
    """The part of a `FileSystem` that documents are read from."""

    def read(self, path: str) -> str:
        """The text of a file."""
        ...


def seal(document: Document) -> str:
    """Returns the text of a document."""
    checksum = sha256(_text(document).encode()).hexdigest()
    return _text({**document, _SEAL: checksum})


def unseal(text: str) -> Document:
    """Returns the document of a text.

    Raises:
        ValueError: the text was changed.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or _SEAL not in document:
        raise ValueError("it has no checksum")
    del document[_SEAL]
    if seal(document) != text:
        raise ValueError("it is not what was written, by its checksum")
    return document


def read_sealed(files: Readable, path: str) -> Document:
    """Reads the document in a file.

    Raises:
        PipelineError: it is damaged.
        FileNotFoundError: it does not exist.
    """
    try:
        return unseal(files.read(path))
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"{path} is damaged: {error}") from None


def _text(document: Document) -> str:
    return json.dumps(document, indent=1)
