"""Which APIs clients speak and in which versions; one of them is agreed on with each broker."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.errors import BrokerError, ErrorCode


class ClientApi(NamedTuple):
    """An API with the versions that a client here can write and read."""

    key: int
    name: str
    min_version: int
    max_version: int


FETCH: Final = ClientApi(1, "Fetch", 4, 17)
LIST_OFFSETS: Final = ClientApi(2, "ListOffsets", 1, 10)
METADATA: Final = ClientApi(3, "Metadata", 4, 13)
API_VERSIONS: Final = ClientApi(18, "ApiVersions", 0, 0)

VersionRanges = Mapping[int, tuple[int, int]]


def agree(api: ClientApi, broker: VersionRanges) -> int:
    """The highest version that both sides speak.

    Raises:
        BrokerError: UNSUPPORTED_VERSION; there is none.
    """
    lowest, highest = broker.get(api.key, (0, -1))
    version = min(api.max_version, highest)
    if version < max(api.min_version, lowest):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{api.name}: the broker has versions {lowest} to {highest}, "
            f"this client {api.min_version} to {api.max_version}",
        )
    return version
