"""Schemas by their ids, from a registry that speaks Confluent's protocol, or from a folder.

    http://registry:8081        user and password in the URL, if it wants them
    /etc/schemas/               7.avsc 9.json 12.desc, and orders-value.avsc for the newest

A `.desc` is what `protoc --include_imports --descriptor_set_out` writes. The schema of an id never
changes, so each worker asks for it once.
"""

import base64
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from odradek.errors import reason_of
from pyspark_odradek.formats.errors import Undecodable, UnusableSchema

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
_SUFFIXES: Final = {".avsc": AVRO, ".json": JSON, ".desc": PROTOBUF}
SCHEMA_FILES: Final = tuple(_SUFFIXES)
_PATIENCE_S: Final = 10
_NOT_FOUND: Final = 404
# The largest id over HTTP: a registry may answer that a larger number is not an id.
_LAST_ID: Final = (1 << 31) - 1


class RegistryUnavailable(Exception):
    """The registry does not answer. The value is not at fault: the job must be run again."""


@dataclass(frozen=True)
class Schema:
    """A schema as it is kept.

    `texts` has one, and of Protobuf from a registry those that it imports before it, each the
    serialized descriptor of a file; `is_set` is of one from a folder, which has them all.
    """

    kind: str
    texts: tuple[bytes, ...]
    is_set: bool = False


class Registry:
    """A source of schemas, which can be sent to workers."""

    def __init__(self, location: str) -> None:
        """Remembers where it is, and asks nothing yet.

        Raises:
            UnusableSchema: the location is a URL that cannot be read.
        """
        self.location: Final = location.rstrip("/")
        self._is_folder: Final = "://" not in location
        try:
            urlsplit("" if self._is_folder else self.location)
        except ValueError as error:
            # The location may have a password.
            raise UnusableSchema(f"the URL of the registry cannot be read: {error}") from None

    def by_id(self, number: int) -> Schema:
        """Returns the schema that a prefix names.

        Raises:
            Undecodable: there is none.
            RegistryUnavailable: the registry does not answer.
        """
        found = None
        if self._is_folder:
            found = self._file(str(number))
        elif number <= _LAST_ID:
            found = self._answer(f"/schemas/ids/{number}")
        if found is None:
            raise Undecodable(f"{self._shown()} has no schema {number}")
        return found

    def newest(self, subject: str) -> Schema:
        """Returns the newest schema of a subject.

        Raises:
            UnusableSchema: there is none.
            RegistryUnavailable: the registry does not answer.
        """
        if self._is_folder:
            found = self._file(subject)
        else:
            found = self._answer(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise UnusableSchema(f"{self._shown()} has no subject {subject}")
        return found

    def _file(self, name: str) -> Schema | None:
        for suffix in _SUFFIXES:
            path = f"{self.location}/{name}{suffix}"
            if os.path.exists(path):
                return read_schema_file(path)
        if not os.path.isdir(self.location):
            raise RegistryUnavailable(f"{self.location} is no directory here")
        return None

    def _answer(self, path: str) -> Schema | None:
        document = self._get(path)
        if document is None:
            return None
        kind = document.get("schemaType", AVRO)
        if kind != PROTOBUF:
            if document.get("references"):
                raise UnusableSchema("schemas with references are read of Protobuf only")
            return Schema(kind, (document["schema"].encode(),))
        return Schema(PROTOBUF, tuple(dict.fromkeys(self._with_imports(path, document))))

    def _with_imports(self, path: str, document: dict[str, Any]) -> Iterator[bytes]:
        for each in document.get("references", ()):
            place = f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}"
            imported = self._get(place)
            if imported is not None:
                yield from self._with_imports(place, imported)
        serialized = self._get(f"{path}?format=serialized")
        try:
            yield base64.b64decode((serialized or document)["schema"], validate=True)
        except ValueError:
            raise UnusableSchema(
                f"{self._shown()} does not give out descriptors (format=serialized); "
                "put what protoc writes into a folder"
            ) from None

    def _get(self, path: str) -> dict[str, Any] | None:
        parts, public = urlsplit(self.location), self._parts()
        where, _, query = path.partition("?")
        url = urlunsplit(public._replace(path=public.path + where, query=query, fragment=""))
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        if parts.username is not None:
            # In a URL what is not a letter may be written as a number.
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(user.encode()).decode()
            request.add_header("Authorization", f"Basic {token}")
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return _schema_in(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            raise RegistryUnavailable(f"{self._shown()} answers {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise RegistryUnavailable(f"{self._shown()} does not answer: {error}") from None

    def _shown(self) -> str:
        """The location, without a password."""
        return self.location if self._is_folder else urlunsplit(self._parts())

    def _parts(self) -> SplitResult:
        """The URL, without user and password."""
        parts = urlsplit(self.location)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2])


def _schema_in(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise ValueError("its response contains no schema")
    return document


def read_schema_file(path: str) -> Schema:
    """Reads a schema from a file; its extension is the format.

    Raises:
        UnusableSchema: the extension is unknown, or the file cannot be read.
    """
    suffix = os.path.splitext(path)[1]
    if suffix == ".proto":
        raise UnusableSchema(
            f"{path}: compile it, protoc --include_imports --descriptor_set_out=FILE.desc"
        )
    if suffix not in _SUFFIXES:
        raise UnusableSchema(f"{path}: a schema is a file .avsc, .json or .desc")
    try:
        with open(path, "rb") as file:
            return Schema(_SUFFIXES[suffix], (file.read(),), is_set=True)
    except OSError as error:
        raise UnusableSchema(f"{path}: {reason_of(error)}") from None
