"""Applies a change of ACLs to an image. Pure."""

from collections.abc import Collection, Iterable

from odradek.acl import AccessControlEntry, AclBinding, ResourcePattern
from odradek.metadata.changes import Change
from odradek.metadata.image import MetadataDelta, MetadataImage

NO_ENTRIES: frozenset[AccessControlEntry] = frozenset()


def alter_acls(
    image: MetadataImage, added: Collection[AclBinding], removed: Collection[AclBinding]
) -> Change[None]:
    """Plans changes of ACLs; if nothing changes, nothing is written or published."""
    after = altered_entries(image, added, removed)
    changed = {each: acls for each, acls in after.items() if acls != entries_of(image, each)}
    if not changed:
        return Change(None)
    return Change(None, MetadataDelta(image, image.with_acls(changed), acls=changed))


def altered_entries(
    image: MetadataImage, added: Collection[AclBinding], removed: Collection[AclBinding]
) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
    """The entries, after the change, of every pattern that it names."""
    less, more = by_pattern(removed), by_pattern(added)
    return {
        pattern: entries_of(image, pattern) - less.get(pattern, set()) | more.get(pattern, set())
        for pattern in (*more, *(each for each in less if each not in more))
    }


def entries_of(image: MetadataImage, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
    """The entries on a pattern."""
    return image.acls.get(pattern, NO_ENTRIES)


def by_pattern(bindings: Iterable[AclBinding]) -> dict[ResourcePattern, set[AccessControlEntry]]:
    """The entries of bindings, grouped by pattern."""
    grouped: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in bindings:
        grouped.setdefault(pattern, set()).add(entry)
    return grouped
