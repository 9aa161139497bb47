"""Values of client quotas: their entities and their kinds. Like `model`, for every floor."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

DEFAULT: Final = ""
"""In place of a name: every entity without its own quota. No name is empty."""


class QuotaKey(Enum):
    """The unit that a quota bounds: bytes a second, partitions a second that are made or removed,
    per cent of the time of the thread that handles requests, connections a second."""

    PRODUCER_BYTES = "producer_byte_rate"
    CONSUMER_BYTES = "consumer_byte_rate"
    CONTROLLER_MUTATIONS = "controller_mutation_rate"
    REQUEST_TIME = "request_percentage"
    CONNECTION_CREATION = "connection_creation_rate"


class QuotaEntity(NamedTuple):
    """The entity of a quota: a user, a client id, a client id of a user, or an address, which
    stands alone. A name may be `DEFAULT`; None means no such part."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


Quotas = Mapping[QuotaKey, float]


def plain_ip(text: str) -> str:
    """An address as connections have it, however it was spelt.

    Raises:
        ValueError: it is none.
    """
    from ipaddress import IPv6Address, ip_address

    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
