"""ListConfigResources (74), versions 0 and 1: which resources have settings.

Version notes: 0 knows client metrics only; 1 can ask for types, or for all if it names none. A type
that has no settings is UNSUPPORTED_VERSION.
"""

from collections.abc import Iterable
from typing import Final

from odradek.errors import ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage
from odradek.model import ConfigResourceType

TYPED_VERSION: Final = 1
_TYPES: Final = tuple(
    each
    for each in ConfigResourceType
    if each
    not in (
        ConfigResourceType.UNKNOWN,
        ConfigResourceType.USER,
        ConfigResourceType.DELEGATION_TOKEN,
    )
)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers from the published image."""
    types: Iterable[int] = (ConfigResourceType.CLIENT_METRICS,)
    if request.api_version >= TYPED_VERSION:
        types = dict.fromkeys(request.body().resource_types) or _TYPES
    if any(each not in _TYPES for each in types):
        fail(request, ErrorCode.UNSUPPORTED_VERSION)
        return
    image = context.metadata.image
    request.answer(
        config_resources=(
            {"resource_type": each, "resource_name": name}
            for each in types
            for name in _names(image, ConfigResourceType(each))
        )
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error alone."""
    request.answer(error_code=code)


def _names(image: MetadataImage, type: ConfigResourceType) -> list[str]:
    """The names of resources: all topics and brokers, and those of other types that have stored
    settings."""
    if type is ConfigResourceType.TOPIC:
        return sorted(image.topics)
    if type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    return sorted(resource.name for resource in image.configs if resource.type is type)
