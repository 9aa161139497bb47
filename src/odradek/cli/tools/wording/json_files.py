"""The JSON files of tools, read as Kafka's tools read them, with the same errors."""

import json
from typing import Any

# The version of lists of partitions and topics; files without one have it.
VERSION = 1


class NoJson(ValueError):
    """A file is not valid JSON; the message says where the reader failed."""


def read_json(path: str) -> Any:
    """Reads the value in a file.

    Raises:
        NoJson: the file is not valid JSON.
        ValueError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise ValueError(f"Unable to read file {path}") from error
    except ValueError as error:
        raise NoJson(f"{path} is no JSON: {error}") from error


def rows(data: Any, name: str) -> list[Any]:
    """Returns the list of this name.

    Raises:
        ValueError: there is none, or the file has another version.
    """
    version = field({"version": VERSION} | data if isinstance(data, dict) else data, "version", int)
    if version != VERSION:
        raise ValueError(f"Not supported version field value {version}")
    found: list[Any] = field({name: []} | data, name, list)
    return found


def field(row: Any, name: str, kind: type) -> Any:
    """Returns a field of an object.

    Raises:
        ValueError: it is missing, or of another type.
    """
    if not isinstance(row, dict):
        raise ValueError(f"Expected JSON object, received {_shown(row)}")
    if name not in row:
        raise ValueError(f"No such field exists: `{name}`")
    value = row[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = {list: "JSON array", str: "`String` value", int: "`Integer` value"}[kind]
        raise ValueError(f"Expected {expected}, received {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
