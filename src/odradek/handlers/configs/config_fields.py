"""Settings and the resources that have them, as four APIs show them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from odradek.controller.results import ConfigEntry, ResourceResult
from odradek.errors import ErrorCode
from odradek.handlers.long_requests import in_list
from odradek.handlers.request import Request
from odradek.metadata.image import ConfigResource
from odradek.model import ConfigResourceType

T = TypeVar("T")


def config_resource(resource: Any) -> ConfigResource:
    """The resource that a request's entry names; an unknown type is UNKNOWN."""
    known = resource.resource_type in ConfigResourceType.__members__.values()
    kind = ConfigResourceType(resource.resource_type) if known else ConfigResourceType.UNKNOWN
    return ConfigResource(kind, resource.resource_name)


def alter_resources(request: Request, changes: Iterable[T], alter: Callable[..., None]) -> None:
    """Alters the settings of resources, for AlterConfigs and its incremental form."""
    body = request.body()

    def begin(changes: list[T]) -> None:
        alter(
            changes,
            request.guard(lambda results: _answer_resources(request, body.resources, results)),
            validate_only=body.validate_only,
            defer=request.defer,
        )

    in_list(request, changes, begin)


def _answer_resources(
    request: Request, asked: Sequence[Any], results: list[ResourceResult]
) -> None:
    """One outcome for each resource, in order."""
    request.answer(
        responses=(
            {
                "error_code": result.error_code,
                "error_message": result.message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource, result in zip(asked, results, strict=True)
        )
    )


def fail_resources(request: Request, code: ErrorCode) -> None:
    """Answers either of them with an error for every resource."""
    asked = request.body().resources
    results = [ResourceResult(config_resource(resource), code, code.text) for resource in asked]
    _answer_resources(request, asked, results)


def entry_fields(entry: ConfigEntry) -> dict[str, object]:
    """The fields of a setting that CreateTopics and DescribeConfigs have in common.

    They are plain values, which the garbage collector skips: an answer may have hundreds of
    thousands of settings."""
    return {
        "name": entry.name,
        "value": entry.value,
        "read_only": entry.is_read_only,
        "config_source": int(entry.source),
        "is_sensitive": entry.is_sensitive,
    }
