"""Client quotas in the embedded store: their table, and how they become rows."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.client_quota import QuotaEntity, QuotaKey, Quotas
from odradek.metadata.image import MetadataDelta
from odradek.metadata.quota_changes import quotas_of
from odradek.metadata.sqlite.journal import Statement

# The entity is a list in JSON: the name of the user and of the client, or null; and of an address,
# where it is that.
TABLE: Final = (
    "client_quota (entity TEXT NOT NULL, key TEXT NOT NULL, value REAL NOT NULL,"
    " PRIMARY KEY (entity, key)) WITHOUT ROWID"
)
SELECT: Final = "SELECT entity, key, value FROM client_quota"
_PUT: Final = "INSERT OR REPLACE INTO client_quota VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM client_quota WHERE entity = ?"


def put(quotas: Mapping[QuotaEntity, Quotas]) -> Statement:
    """Writes quotas."""
    return _PUT, [
        (_text(entity), key.value, value)
        for entity, values in quotas.items()
        for key, value in values.items()
    ]


def statements_of(delta: MetadataDelta) -> list[Statement]:
    """Makes the statements that bring the table from the image before a change to the one after
    it."""
    changed = {each: quotas_of(delta.image, each) for each in delta.client_quotas_changed}
    return [(_DELETE, [(_text(entity),) for entity in changed]), put(changed)]


def read(rows: Iterable[Any]) -> dict[QuotaEntity, Quotas]:
    """Reads the table back.

    Raises:
        ValueError: a row is none of ours.
    """
    quotas: dict[QuotaEntity, dict[QuotaKey, float]] = {}
    for entity, key, value in rows:
        names = json.loads(entity)
        quotas.setdefault(_entity(*names), {})[QuotaKey(key)] = value
    return dict(quotas)


def _entity(user: str | None, client_id: str | None, ip: str | None = None) -> QuotaEntity:
    return QuotaEntity(user, client_id, ip)


def _text(entity: QuotaEntity) -> str:
    user, client_id, ip = entity
    return json.dumps((user, client_id) if ip is None else entity)
