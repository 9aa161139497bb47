"""ApiVersions (18), versions 0 to 4: the versions that a client may send, from the table that
routes requests.

Behaviour: a version that is not served is answered in version 0 with UNSUPPORTED_VERSION and the
versions of ApiVersions itself (KIP-511), so that the client can ask again. From version 3 on
clients introduce themselves; a name or version that is empty or has other characters than letters,
digits, dots and dashes is INVALID_REQUEST (it would end up in metric names). Features: clients
below version 4 consider a lowest version of 0 an error, so such features are not shown to them as
supported; finalized features are shown to all.
"""

import re
from typing import Final

from odradek.config.features import SUPPORTED_FEATURES
from odradek.errors import ErrorCode
from odradek.handlers.api import Api
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.metadata.image import MetadataImage

CLIENT_SOFTWARE_VERSION: Final = 3
ZERO_VERSIONS: Final = 4
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


def handle(context: HandlerContext, request: Request) -> None:
    """Answers with the table."""
    own = context.apis[request.api_key]
    if not own.serves(request.api_version):
        request.answer_version(0, error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_row(own)])
    elif not _introduces_itself(request):
        fail(request, ErrorCode.INVALID_REQUEST)
    else:
        if request.api_version >= CLIENT_SOFTWARE_VERSION:
            body = request.body()
            context.client_metrics.introduce(
                request.exchange.connection_id,
                body.client_software_name,
                body.client_software_version,
            )
        shown = (api for api in context.apis.values() if not api.is_hidden)
        apis = sorted(shown, key=lambda api: api.key)
        image = context.metadata.image
        request.answer(
            api_keys=[_row(api) for api in apis],
            supported_features=_supported(request.api_version),
            finalized_features=_finalized(image),
            finalized_features_epoch=image.features_epoch,
        )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no table."""
    request.answer(error_code=code)


def _introduces_itself(request: Request) -> bool:
    body = request.body()
    if request.api_version < CLIENT_SOFTWARE_VERSION:
        return True
    software = (body.client_software_name, body.client_software_version)
    return all(_SOFTWARE.fullmatch(text) for text in software)


def _row(api: Api) -> dict[str, object]:
    return {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}


def _finalized(image: MetadataImage) -> list[dict[str, object]]:
    return [
        {"name": name, "max_version_level": level, "min_version_level": level}
        for name, level in image.features.items()
    ]


def _supported(version: int) -> list[dict[str, object]]:
    return [
        {"name": name, "min_version": each.min_version, "max_version": each.max_version}
        for name, each in SUPPORTED_FEATURES.items()
        if each.min_version or version >= ZERO_VERSIONS
    ]
