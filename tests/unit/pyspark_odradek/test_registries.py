"""Schemas from a registry. If these fail, a value is read by another schema, or the registry gets a
question for each record."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.unit.pyspark_odradek.test_formats import (
    COLUMNS,
    PREFIX_7,
    described,
    field,
    record,
    tagged,
    zigzag,
)

from pyspark_odradek.formats import (
    Registry,
    RegistryUnavailable,
    Undecodable,
    UnusableSchema,
    decoder_for,
)


@pytest.fixture
def registry() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """A registry by HTTP: its address, what it answers by path, and what it was asked."""
    answers: dict[str, Any] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers.get('Authorization', '')}".strip())
            answer = answers.get(self.path)
            self.send_response(404 if answer is None else answer.pop("status", 200))
            self.end_headers()
            self.wfile.write(json.dumps(answer or {}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://user:secret@127.0.0.1:{server.server_port}/api", answers, asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("name", ["us@er/schemas", "schemas@2", "http:/a@b"])
def test_a_folder_is_named_as_it_is(tmp_path: Path, name: str) -> None:
    """Without the `@` it is another folder, which is not there."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    with pytest.raises(Undecodable, match=f"^{re.escape(str(folder))} has no schema 9$"):
        Registry(str(folder)).by_id(9)


def test_a_url_is_named_without_its_user_alone(
    registry: tuple[str, dict[str, Any], list[str]],
) -> None:
    url, _, asked = registry
    without = url.replace("user:secret@", "")
    for given, shown in ((url, "/api"), (f"{url}@2", "/api@2"), (f"{without}@2", "/api@2")):
        words = rf"^http://127\.0\.0\.1:\d+{shown} has no subject s$"
        with pytest.raises(UnusableSchema, match=words):
            Registry(given).newest("s")
    assert asked[1].startswith("/api@2/subjects/s/versions/latest Basic ")
    with pytest.raises(UnusableSchema, match=r"^the URL of the registry cannot be read: Invalid"):
        Registry("http://user:secret@[1/")


def test_avro_of_a_registry(registry: tuple[str, dict[str, Any], list[str]]) -> None:
    url, answers, asked = registry
    new = record(("id", "long"), ("note", "string", "none"))
    answers["/api/subjects/orders-value/versions/latest"] = {"id": 8, "schema": new}
    answers["/api/schemas/ids/7"] = {"schema": record(("id", "int"))}
    decoder = decoder_for("avro", schema=None, registry=url, subject="orders-value")
    assert [decoder.decode(PREFIX_7 + zigzag(n)) for n in (1, 2)] == [(1, "none"), (2, "none")]
    token = "Basic dXNlcjpzZWNyZXQ="
    assert asked[1:] == [f"/api/schemas/ids/7 {token}"]  # of both values, once
    with pytest.raises(Undecodable, match=r"^http://127\.0\.0\.1:\d+/api has no schema 9"):
        decoder.decode(b"\0\0\0\0\x09")
    with pytest.raises(Undecodable, match="does not begin with a registry's prefix"):
        decoder.decode(b'{"id": 1}')
    with pytest.raises(Undecodable, match="left behind"):
        decoder.decode(PREFIX_7 + zigzag(1) + b"x")
    questions = len(asked)
    with pytest.raises(Undecodable, match="has no schema 9"):
        decoder.decode(b"\0\0\0\0\x09")
    assert len(asked) == questions, "the same question again, for each of many values"
    answers["/api/schemas/ids/10"] = {"status": 500}
    with pytest.raises(RegistryUnavailable, match="answers 500"):
        decoder.decode(b"\0\0\0\0\x0a")
    with pytest.raises(UnusableSchema, match="no subject nothing-value"):
        decoder_for("avro", schema=None, registry=url, subject="nothing-value")
    with pytest.raises(UnusableSchema, match="one of AVRO, not of PROTOBUF"):
        decoder_for("protobuf", schema=None, registry=url, subject="orders-value")


NO_SYMBOLS = '{"type": "enum", "name": "Size", "symbols": 5}'


def test_a_schema_that_is_wrong_inside_is_asked_for_once(
    registry: tuple[str, dict[str, Any], list[str]],
) -> None:
    """Each of its values went to the registry again: one more question for each record."""
    url, answers, asked = registry
    size = '{"type": "enum", "name": "Size", "symbols": ["S"]}'
    answers["/api/subjects/orders-value/versions/latest"] = {"id": 8, "schema": size}
    answers["/api/schemas/ids/7"] = {"schema": NO_SYMBOLS}
    decoder = decoder_for("avro", schema=None, registry=url, subject="orders-value")
    for _ in range(2):
        with pytest.raises(UnusableSchema, match=r"its schema cannot be used: .*not iterable"):
            decoder.decode(PREFIX_7 + zigzag(0))
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    [
        ("avro", "s.avsc", b'{"type": "string", "doc": "\xe4"}'),
        ("avro", "s.avsc", b'{"type": "record", "name": "A", "fields": [{"type": "int"}]}'),
        ("json", "s.json", b'{"type": "string", "title": "\xe4"}'),
        ("json", "s.json", b'{"items": ' * 100_000),
    ],
)
def test_a_schema_of_the_table_that_is_wrong_inside_is_told(
    tmp_path: Path, kind: str, name: str, data: bytes
) -> None:
    """The pipeline ended with a traceback instead of the sentence."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnusableSchema, match=r"its schema cannot be used|no JSON Schema"):
        decoder_for(kind, schema=str(tmp_path / name), registry=None, subject="")


def test_a_number_that_no_registry_gives_out_is_not_asked_for(
    registry: tuple[str, dict[str, Any], list[str]],
) -> None:
    """Some answer that it is no number: one value stopped the job at each start."""
    url, answers, asked = registry
    answers[f"/api/schemas/ids/{2**31}"] = {"status": 400}
    with pytest.raises(Undecodable, match="has no schema 2147483648"):
        Registry(url).by_id(2**31)
    assert not asked


@pytest.mark.parametrize("answer", [{"id": 7}, {"schema": None}, {"schema": {"type": "int"}}])
def test_an_answer_without_a_schema_is_no_fault_of_the_value(
    registry: tuple[str, dict[str, Any], list[str]], answer: dict[str, Any]
) -> None:
    url, answers, _ = registry
    answers["/api/schemas/ids/7"] = answer
    with pytest.raises(RegistryUnavailable, match="its response contains no schema"):
        Registry(url).by_id(7)


def test_a_user_in_the_url_may_have_signs_that_are_written_as_numbers(
    registry: tuple[str, dict[str, Any], list[str]],
) -> None:
    url, answers, asked = registry
    answers["/api/schemas/ids/7"] = {"schema": record(("id", "int"))}
    Registry(url.replace("secret", "p%40ss%3Aword")).by_id(7)
    token = base64.b64encode(b"user:p@ss:word").decode()
    assert asked == [f"/api/schemas/ids/7 Basic {token}"]


def test_protobuf_of_a_registry_with_an_import(
    registry: tuple[str, dict[str, Any], list[str]],
) -> None:
    url, answers, _ = registry
    inner = tagged(2, b"t") + tagged(4, described("Line", field("n", 1, 5))) + tagged(12, b"proto3")
    outer = tagged(2, b"s") + tagged(4, described("Order", field("line", 1, 11, ".t.Line")))
    references = [{"name": "t.proto", "subject": "t", "version": 1}]

    def answer(path: str, data: bytes, refs: list[dict[str, Any]]) -> None:
        answers[path] = {"schema": "message ...", "schemaType": "PROTOBUF", "references": refs}
        answers[f"{path}?format=serialized"] = {"schema": base64.b64encode(data).decode()}

    answer("/api/subjects/t/versions/1", inner, [])
    answer("/api/schemas/ids/7", outer, references)
    answer("/api/subjects/orders-value/versions/latest", outer, references)
    decoder = decoder_for("protobuf", schema=None, registry=url, subject="orders-value")
    assert decoder.decode(PREFIX_7 + b"\0" + tagged(1, tagged(1, 5))) == ((5,),)


def test_a_registry_that_is_away_is_no_fault_of_the_value(free_address: Callable[[], str]) -> None:
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        Registry(f"http://{free_address()}").by_id(1)


def test_a_folder_that_is_away_is_no_fault_of_the_value(tmp_path: Path) -> None:
    """A worker to which the folder was not mounted made dead letters of all values."""
    with pytest.raises(Undecodable, match="has no schema 7"):
        Registry(str(tmp_path)).by_id(7)
    away = Registry(str(tmp_path / "away"))
    with pytest.raises(RegistryUnavailable, match="away is no directory here"):
        away.by_id(7)
    with pytest.raises(RegistryUnavailable, match="away is no directory here"):
        away.newest("orders-value")


@pytest.fixture
def free_address() -> Callable[[], str]:
    from odradek.cli.free_port import free_port

    return lambda: f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        ("xml", "x", "no format 'xml', only json, avro, protobuf"),
        ("avro", None, "say what is in a value"),
        ("avro", "here.proto", "compile it, protoc"),
        ("avro", "nowhere.avsc", "No such file"),
        ("avro", "here.txt", r"a schema is a file \.avsc, \.json or \.desc"),
        ("avro", COLUMNS, "columns alone do not say"),
    ],
)
def test_what_cannot_be_decoded_is_said(kind: str, schema: Any, reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason):
        decoder_for(kind, schema=schema, registry=None, subject="")
