"""ACLs in the embedded store: their table, and how they become rows."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.acl import (
    AccessControlEntry,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.metadata.acl_changes import entries_of
from odradek.metadata.image import MetadataDelta
from odradek.metadata.sqlite.journal import Statement
from odradek.model import AclOperation, ResourceType

_Acls = Mapping[ResourcePattern, Iterable[AccessControlEntry]]

_COLUMNS: Final = (
    "resource_type, resource_name, pattern_type, principal, host, operation, permission"
)
TABLE: Final = (
    "acl (resource_type INTEGER NOT NULL, resource_name TEXT NOT NULL,"
    " pattern_type INTEGER NOT NULL, principal TEXT NOT NULL, host TEXT NOT NULL,"
    f" operation INTEGER NOT NULL, permission INTEGER NOT NULL, PRIMARY KEY ({_COLUMNS}))"
    " WITHOUT ROWID"
)
SELECT: Final = f"SELECT {_COLUMNS} FROM acl"
_PUT: Final = "INSERT OR REPLACE INTO acl VALUES (?, ?, ?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM acl WHERE " + " AND ".join(
    f"{column} = ?" for column in _COLUMNS.split(", ")
)


def put(acls: _Acls) -> Statement:
    """Writes ACLs."""
    return _PUT, _rows(acls)


def statements_of(delta: MetadataDelta) -> list[Statement]:
    """Makes the statements that bring the table from the image before a change to the one after
    it."""
    added: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
    deleted: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}
    for pattern in delta.acls_changed:
        before, after = entries_of(delta.previous, pattern), entries_of(delta.image, pattern)
        added[pattern] = after - before
        deleted[pattern] = before - after
    return [(_DELETE, _rows(deleted)), put(added)]


def read(
    rows: Iterable[Any],
) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
    """Reads the table back.

    Raises:
        ValueError: a row is none of ours.
    """
    acls: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for kind, name, pattern_type, principal, host, operation, permission in rows:
        pattern = ResourcePattern(ResourceType(kind), name, PatternType(pattern_type))
        entry = AccessControlEntry(
            principal, host, AclOperation(operation), PermissionType(permission)
        )
        acls.setdefault(pattern, []).append(entry)
    return {pattern: frozenset(entries) for pattern, entries in acls.items()}


def _rows(acls: _Acls) -> list[tuple[object, ...]]:
    return [
        (
            *(int(pattern.type), pattern.name, int(pattern.pattern_type)),
            *(entry.principal, entry.host, int(entry.operation), int(entry.permission)),
        )
        for pattern, entries in acls.items()
        for entry in entries
    ]
