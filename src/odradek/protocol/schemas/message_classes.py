"""The class of a message: made from `message_tables` or `share_messages`, else kio's.

`message_reader` and `message_writer` use these classes like kio's: a frozen dataclass per version,
with the types of the wire in the metadata of its fields. `EVERY_NAME` of one that is made has the
names of all versions, which kio's are asked for one by one.
"""

from dataclasses import field, make_dataclass
from functools import lru_cache
from types import GenericAlias
from typing import Any, Final
from uuid import UUID

from odradek.protocol.schema import Field, Schema
from odradek.protocol.schemas.message_schemas import (
    api_key_map,
    load_request_schema,
    load_response_schema,
    schema_name_map,
)
from odradek.protocol.schemas.message_tables import MESSAGES
from odradek.protocol.share_messages import SHARE_MESSAGES

# Attributes of a message depend on API and version, so its class is untyped.
MessageType = Any

EVERY_NAME: Final = "__every_name__"
_DECLARED: Final = {**MESSAGES, **SHARE_MESSAGES}
_ARRAY: Final = "[]"
_NULLABLE: Final = "?"
_ANNOTATIONS: Final[dict[str, Any]] = {"string": str, "bool": bool, "uuid": UUID | None}


@lru_cache(maxsize=1024)
def request_type(api_key: int, version: int) -> MessageType:
    """The class of a request.

    Raises:
        LookupError: there is no such message.
    """
    _check_known(api_key, version)
    if api_key in _DECLARED:
        return _make(_DECLARED[api_key].request, version)
    return load_request_schema(api_key, version)


@lru_cache(maxsize=1024)
def response_type(api_key: int, version: int) -> MessageType:
    """The class of a response.

    Raises:
        LookupError: there is no such message.
    """
    _check_known(api_key, version)
    if api_key in _DECLARED:
        return _make(_DECLARED[api_key].response, version)
    return load_response_schema(api_key, version)


def _check_known(api_key: int, version: int) -> None:
    if version not in versions(api_key):
        raise LookupError(f"no definition of API {api_key} version {version}")


def versions(api_key: int) -> list[int]:
    """The versions of an API that can be read and written here, in order; empty if none can."""
    if api_key in _DECLARED:
        return list(range(_DECLARED[api_key].request.last_version + 1))
    name = api_key_map.get(api_key)
    return sorted(schema_name_map[name]) if name is not None else []


def name_of(api_key: int) -> str | None:
    """The name of an API in Kafka's definitions, in words with hyphens between."""
    if api_key in _DECLARED:
        return _DECLARED[api_key].name
    name = api_key_map.get(api_key)
    return None if name is None else str(name)


def _make(schema: Schema, version: int) -> MessageType:
    return _structure(schema.name, schema.fields, version, version >= schema.flexible_since)


def _structure(
    name: str, every_field: tuple[Field, ...], version: int, flexible: bool
) -> MessageType:
    present = [each for each in every_field if each.since <= version <= each.until]
    namespace = {
        "__version__": version,
        "__flexible__": flexible,
        EVERY_NAME: frozenset(each.name for each in every_field),
    }
    return make_dataclass(
        name,
        [_attribute(each, version, flexible) for each in present],
        namespace=namespace,
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _attribute(each: Field, version: int, flexible: bool) -> tuple[str, Any, Any]:
    """A field as kio writes it down: its name, its annotation, what the wire knows of it."""
    kafka_type = each.type.removeprefix(_ARRAY).removesuffix(_NULLABLE)
    annotation = _ANNOTATIONS.get(kafka_type, int)
    metadata: dict[str, object] = {"kafka_type": kafka_type}
    if kafka_type == "struct":
        annotation, metadata = _structure(each.name, each.fields, version, flexible), {}
    if each.tag is not None:
        metadata["tag"] = each.tag
    if each.type.startswith(_ARRAY):
        annotation = GenericAlias(tuple, (annotation, ...))
    elif each.type.endswith(_NULLABLE):
        annotation = annotation | None
    if each.default is None:
        return each.name, annotation, field(metadata=metadata)
    return each.name, annotation, field(metadata=metadata, default=each.default)
