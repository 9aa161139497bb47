"""`AclIndex`: the ACLs of a cluster, found by resource and by principal.

Literal names are looked up; only existing lengths of prefixes have to be tried. So a look-up takes
as many steps as prefixes have different lengths, however many ACLs there are, and within what was
found only the entries of one principal are looked at.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from odradek.acl import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    ResourcePattern,
)
from odradek.model import ResourceType

ByPrincipal: TypeAlias = Mapping[str, tuple[AccessControlEntry, ...]]


class AclIndex:
    """The entries on each pattern; replaced pattern by pattern."""

    def __init__(self) -> None:
        self._literal: Final[dict[tuple[int, str], ByPrincipal]] = {}
        self._prefixed: Final[dict[tuple[int, str], ByPrincipal]] = {}
        # How many prefixes of a length there are, for each type.
        self._lengths: Final[dict[int, dict[int, int]]] = {}
        # The patterns of which an entry names a principal: literal ones, prefixed ones.
        self._of_principal: Final[dict[tuple[int, str], tuple[set[str], set[str]]]] = {}
        self.acl_count = 0

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> None:
        """Replaces the entries of a pattern; an empty list removes it."""
        key = (int(pattern.type), pattern.name)
        is_prefixed = pattern.pattern_type is PatternType.PREFIXED
        table = self._prefixed if is_prefixed else self._literal
        before, after = table.pop(key, {}), _by_principal(entries)
        if after:
            table[key] = after
        self.acl_count += _count(after) - _count(before)
        self._note_principals(key, is_prefixed, before, after)
        if is_prefixed:
            self._note_length(*key, bool(after) - bool(before))

    def matching(self, type: ResourceType, name: str) -> list[tuple[ResourcePattern, ByPrincipal]]:
        """The entries on each pattern that a resource fits: literal, for all, by prefix."""
        number = int(type)
        found: list[tuple[ResourcePattern, ByPrincipal]] = []
        for literal in dict.fromkeys((name, WILDCARD)):
            acls = self._literal.get((number, literal))
            if acls is not None:
                found.append((ResourcePattern(type, literal), acls))
        for length in self._lengths.get(number, ()):
            if length <= len(name):
                acls = self._prefixed.get((number, name[:length]))
                if acls is not None:
                    prefix = ResourcePattern(type, name[:length], PatternType.PREFIXED)
                    found.append((prefix, acls))
        return found

    def of_principals(self, type: ResourceType, principals: Iterable[str]) -> Iterator[AclBinding]:
        """Every ACL on resources of a type that is about one of these principals."""
        number = int(type)
        kinds = (
            (self._literal, PatternType.LITERAL),
            (self._prefixed, PatternType.PREFIXED),
        )
        for principal in principals:
            patterns = self._of_principal.get((number, principal), ((), ()))
            for names, (table, kind) in zip(patterns, kinds, strict=True):
                for name in names:
                    for entry in table[number, name][principal]:
                        yield AclBinding(ResourcePattern(type, name, kind), entry)

    def _note_principals(
        self, key: tuple[int, str], is_prefixed: bool, before: ByPrincipal, after: ByPrincipal
    ) -> None:
        number, name = key
        for principal in before.keys() - after.keys():
            patterns = self._of_principal[number, principal]
            patterns[is_prefixed].discard(name)
            if not any(patterns):
                del self._of_principal[number, principal]
        for principal in after.keys() - before.keys():
            patterns = self._of_principal.setdefault((number, principal), (set(), set()))
            patterns[is_prefixed].add(name)

    def _note_length(self, type: int, prefix: str, change: int) -> None:
        lengths = self._lengths.setdefault(type, {})
        count = lengths.pop(len(prefix), 0) + change
        if count:
            lengths[len(prefix)] = count


def _by_principal(entries: Iterable[AccessControlEntry]) -> ByPrincipal:
    grouped: dict[str, list[AccessControlEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.principal, []).append(entry)
    return {principal: tuple(each) for principal, each in grouped.items()}


def _count(acls: ByPrincipal) -> int:
    return sum(map(len, acls.values()))
