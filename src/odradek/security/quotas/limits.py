"""`QuotaLimits`: finds the quota of a client, by Kafka's precedence.

The most specific one applies: of user and client id together, of the user, of the client id; a name
before the default for all names. Clients that share a default each have their own rate.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey, Quotas
from odradek.metadata.image import MetadataDelta

KNOWN_LIMITS: Final = 10_000
"""How many answers are remembered: clients choose their ids."""


class Limit(NamedTuple):
    """The rate per second, and the names that are measured together: the actual ones, or None."""

    per_second: float
    key: QuotaKey
    user: str | None
    client_id: str | None


class QuotaLimits:
    """The quotas of a cluster; `apply` follows the metadata."""

    def __init__(self) -> None:
        self._quotas: Final[dict[QuotaEntity, Quotas]] = {}
        self._known: Final[dict[tuple[QuotaKey, str, str], Limit | None]] = {}

    def __bool__(self) -> bool:
        """Whether there is any quota."""
        return bool(self._quotas)

    def apply(self, delta: MetadataDelta) -> None:
        """Follows a change of the metadata."""
        for entity in delta.client_quotas_changed:
            if entity.ip is not None:
                continue  # bounds connections, which have sent nothing yet
            quotas = delta.image.client_quotas.get(entity)
            if quotas:
                self._quotas[entity] = quotas
            else:
                self._quotas.pop(entity, None)
        self._known.clear()

    def find(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """The quota that holds for a client id of a user, if any."""
        asked = (key, user, client_id)
        if asked not in self._known:
            if len(self._known) >= KNOWN_LIMITS:
                self._known.clear()
            self._known[asked] = self._find(key, user, client_id)
        return self._known[asked]

    def _find(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        for entity in _by_precedence(user, client_id):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                return Limit(
                    value,
                    key,
                    None if entity.user is None else user,
                    None if entity.client_id is None else client_id,
                )
        return None


def _by_precedence(user: str, client_id: str) -> Iterator[QuotaEntity]:
    for of_user in (user, DEFAULT):
        for of_client in (client_id, DEFAULT):
            yield QuotaEntity(of_user, of_client)
    for of_user in (user, DEFAULT):
        yield QuotaEntity(user=of_user)
    for of_client in (client_id, DEFAULT):
        yield QuotaEntity(client_id=of_client)
