"""DescribeConfigs (32), versions 1 to 4: the settings of topics, brokers and groups.

Behaviour: without keys (null or none) every setting of the resource is shown. Sensitive values are
null. A broker answers for itself, and (by an empty name) for the settings of all brokers; loggers
are not settings here.

Version notes: 3 adds types and, on demand, the text that explains a setting.
"""

from typing import Any

from odradek.controller.results import ConfigEntry
from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.configs.config_fields import config_resource, entry_fields
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    body = request.body()
    results = (_describe(context, body, resource) for resource in body.resources)
    request.answer(results=results)


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error for every resource."""
    error = BrokerError(code, code.text)
    request.answer(results=[_refusal(resource, error) for resource in request.body().resources])


def _describe(context: HandlerContext, body: Any, resource: Any) -> dict[str, object]:
    keys = resource.configuration_keys or None
    try:
        entries = context.controller.describe_configs(config_resource(resource), keys)
    except BrokerError as error:
        return _refusal(resource, error)
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [_entry(entry, body) for entry in entries],
    }


def _refusal(resource: Any, error: BrokerError) -> dict[str, object]:
    return {
        "error_code": error.code,
        "error_message": error.message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _entry(entry: ConfigEntry, body: Any) -> dict[str, object]:
    synonyms = entry.synonyms if body.include_synonyms else ()
    explained = getattr(body, "include_documentation", False)
    return {
        **entry_fields(entry),
        "config_type": entry.type,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source} for each in synonyms
        ],
        "documentation": entry.documentation if explained else None,
    }
