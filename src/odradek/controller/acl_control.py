"""`AclControl`: Kafka's rules for ACLs, and the search for them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from odradek.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.cache import MetadataCache
from odradek.metadata.store import MetadataStore, OnDone
from odradek.model import AclOperation, ResourceType

MOST_AT_ONCE: Final = 10_000
"""How many ACLs one request can add, or remove, as with Kafka."""
_ENTRIES_OF_NOTHING: Final = (ResourceType.UNKNOWN, ResourceType.ANY)
_NO_OPERATIONS: Final = (AclOperation.UNKNOWN, AclOperation.ANY)


class AclControl:
    """Changes the ACLs in `store`; reads those that are published in `metadata`."""

    def __init__(self, store: MetadataStore, metadata: MetadataCache) -> None:
        self._store: Final = store
        self._metadata: Final = metadata

    def find(
        self, wanted: AclFilter, found: dict[ResourcePattern, list[AccessControlEntry]]
    ) -> Iterator[int]:
        """Collects the matching ACLs by resource, one pattern at each step. Yields the number of
        patterns that a step looked at."""
        for pattern, entries in self._candidates(wanted):
            meant = wanted.holds_for(pattern) and [each for each in entries if wanted.matches(each)]
            if meant:
                found[pattern] = sorted(meant)
            yield 1

    def create(
        self, bindings: Sequence[AclBinding], on_done: OnDone[list[BrokerError | None]]
    ) -> None:
        """Adds the acceptable bindings, and answers an error for each of the others; an existing
        binding is fine."""
        outcomes = [_refusal(each) for each in bindings[:MOST_AT_ONCE]]
        if len(bindings) > MOST_AT_ONCE:
            error = _too_many("add", len(bindings))
            outcomes += [error] * (len(bindings) - MOST_AT_ONCE)
        accepted = [
            each for each, refusal in zip(bindings, outcomes, strict=True) if refusal is None
        ]

        def on_added(error: BrokerError | None) -> None:
            on_done([error if each is None else each for each in outcomes])

        if accepted:
            self._store.alter_acls(accepted, (), on_added)
        else:
            on_added(None)

    def find_each(
        self, filters: Sequence[AclFilter], found: list[list[AclBinding]]
    ) -> Iterator[int]:
        """Appends the matches of each filter; yields as `find` does."""
        for each in filters:
            meant: dict[ResourcePattern, list[AccessControlEntry]] = {}
            yield 1
            yield from self.find(each, meant)
            found.append(
                [AclBinding(pattern, e) for pattern in sorted(meant) for e in meant[pattern]]
            )

    def delete(
        self, found: list[list[AclBinding]], on_done: OnDone[list[list[AclBinding]]]
    ) -> None:
        """Removes the matches of filters, and answers with them; a match of two filters is answered
        twice."""
        removed = {binding for each in found for binding in each}
        if len(removed) > MOST_AT_ONCE:
            on_done(_too_many("remove", len(removed)))
            return

        def on_removed(error: BrokerError | None) -> None:
            on_done(found if error is None else error)

        if removed:
            self._store.alter_acls((), removed, on_removed)
        else:
            on_removed(None)

    def _candidates(
        self, wanted: AclFilter
    ) -> Iterable[tuple[ResourcePattern, frozenset[AccessControlEntry]]]:
        """The single pattern that the filter can match, else all."""
        acls = self._metadata.image.acls
        exact = wanted.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        if exact and wanted.name is not None and wanted.resource_type is not ResourceType.ANY:
            pattern = ResourcePattern(wanted.resource_type, wanted.name, wanted.pattern_type)
            entries = acls.get(pattern)
            return () if entries is None else ((pattern, entries),)
        return acls.items()


def _too_many(what: str, count: int) -> BrokerError:
    text = f"Cannot {what} more than {MOST_AT_ONCE} ACLs at once, these are {count}."
    return BrokerError(ErrorCode.INVALID_REQUEST, text)


def _refusal(binding: AclBinding) -> BrokerError | None:
    """The error for an impossible ACL."""
    pattern, entry = binding
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        reason = "Invalid empty resource name"
    elif pattern.type in _ENTRIES_OF_NOTHING:
        reason = f"Invalid resourceType {pattern.type.name}"
    elif pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        reason = f"Invalid patternType {pattern.pattern_type.name}"
    elif entry.operation in _NO_OPERATIONS:
        reason = f"Invalid operation {entry.operation.name}"
    elif entry.permission not in (PermissionType.ALLOW, PermissionType.DENY):
        reason = f"Invalid permissionType {entry.permission.name}"
    elif ":" not in entry.principal:
        reason = (
            f"Could not parse principal from `{entry.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    else:
        return None
    return BrokerError(ErrorCode.INVALID_REQUEST, reason)
