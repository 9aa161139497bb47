"""`Authorizer`: decides for every caller, remembers what it has decided, and writes the audit log.

A caller is a principal on a host. Decisions about it are remembered until the ACLs change. Their
number is bounded, since clients choose the names they ask about.

The audit log is Kafka's `kafka.authorizer.logger`: denials at INFO, permissions at DEBUG. Decisions
about what was not requested (to leave it out of a response, to list allowed operations) are not
logged.
"""

import logging
from collections.abc import Iterable
from typing import Final

from odradek.acl import ANY_USER
from odradek.log_limit import printable
from odradek.metadata.image import MetadataDelta
from odradek.model import AclOperation, KafkaPrincipal, ResourceType
from odradek.security.authorizer.decisions import SUPER_USER, Decision, decide, may_on_any
from odradek.security.authorizer.index import AclIndex

AUDIT_LOG: Final = logging.getLogger("kafka.authorizer.logger")

KNOWN_CALLERS: Final = 10_000
KNOWN_DECISIONS: Final = 100_000
"""How many callers, and decisions about all of them, are remembered at most."""
LONGEST_KNOWN_NAME: Final = 255
_TYPES: Final = len(ResourceType)
# As in Kafka super users are checked with the name of no resource.
_ANY_NAME: Final = "hardcode"


def slot(operation: AclOperation, type: ResourceType) -> int:
    """The place of decisions about an operation on resources of a type, for `Caller.may`."""
    return int(operation) * _TYPES + int(type)


class Authorizer:
    """The decisions of a broker. `apply` follows the metadata."""

    def __init__(
        self, super_users: Iterable[KafkaPrincipal] = (), *, allow_everyone: bool = False
    ) -> None:
        self._super_users: Final = frozenset(super_users)
        self._allow_everyone: Final = allow_everyone
        self._index: Final = AclIndex()
        self._callers: Final[dict[tuple[KafkaPrincipal, str], Caller]] = {}
        self._decisions = 0
        self.acl_count = 0

    def apply(self, delta: MetadataDelta) -> None:
        """Follows a change of the metadata; a change of ACLs drops all decisions."""
        if not delta.acls_changed:
            return
        for pattern in delta.acls_changed:
            self._index.put(pattern, delta.image.acls.get(pattern, ()))
        self.acl_count = self._index.acl_count
        self._forget()

    def caller(self, principal: KafkaPrincipal, host: str) -> "Caller":
        """A caller; valid until the loop's next turn."""
        known = self._callers.get((principal, host))
        if known is not None:
            return known
        if len(self._callers) >= KNOWN_CALLERS:
            self._forget()
        caller = self._callers[principal, host] = Caller(self, principal, host)
        return caller

    def remember(self) -> None:
        """Counts a remembered decision of a caller; with too many all are forgotten."""
        self._decisions += 1
        if self._decisions > KNOWN_DECISIONS:
            self._forget()

    def _forget(self) -> None:
        self._callers.clear()
        self._decisions = 0

    def decide(
        self, caller: "Caller", operation: AclOperation, type: ResourceType, name: str
    ) -> Decision:
        """Kafka's decision, computed."""
        if caller.principal in self._super_users:
            return SUPER_USER
        return decide(
            self._index,
            str(caller.principal),
            caller.host,
            operation,
            type,
            name,
            allow_everyone=self._allow_everyone,
        )

    def may_on_any(self, caller: "Caller", operation: AclOperation, type: ResourceType) -> bool:
        """Whether there is a resource of the type on which a caller may do this."""
        if self.decide(caller, operation, type, _ANY_NAME).is_allowed:
            return True
        acls = self._index.of_principals(type, (str(caller.principal), ANY_USER))
        return may_on_any(acls, caller.host, operation)


class Caller:
    """A principal on a host, and the decisions about it."""

    def __init__(self, authorizer: Authorizer, principal: KafkaPrincipal, host: str) -> None:
        self.principal: Final = principal
        self.host: Final = host
        self._authorizer: Final = authorizer
        # By slot, and there by name.
        self._known: Final[dict[int, dict[str, Decision]]] = {}
        self._known_on_any: Final[dict[int, bool]] = {}

    def decision(self, operation: AclOperation, type: ResourceType, name: str) -> Decision:
        """Whether the caller may do the operation, and why."""
        known = self._known.setdefault(slot(operation, type), {})
        decision = known.get(name)
        if decision is None:
            decision = self._authorizer.decide(self, operation, type, name)
            if len(name) <= LONGEST_KNOWN_NAME:
                known[name] = decision
                self._authorizer.remember()
        return decision

    def known_to_be_allowed(self, place: int, name: str) -> bool:
        """Whether the caller's operation (a `slot`) was allowed before. For requests that come ten
        thousand times a second; False means that the decision has to be made."""
        known = self._known.get(place)
        decision = None if known is None else known.get(name)
        return decision is not None and decision.is_allowed

    def may_see(self, operation: AclOperation, type: ResourceType, name: str) -> bool:
        """Whether the caller may do the operation; without an entry in the audit log."""
        return self.decision(operation, type, name).is_allowed

    def may(
        self, operation: AclOperation, type: ResourceType, name: str, request: str, count: int = 1
    ) -> bool:
        """Whether the caller may do the operation, for the API `request`, which names the resource
        `count` times."""
        decision = self.decision(operation, type, name)
        if not decision.is_allowed or AUDIT_LOG.isEnabledFor(logging.DEBUG):
            self._audit(decision, operation, type, name, request, count)
        return decision.is_allowed

    def anew(self) -> "Caller":
        """The same caller, as of now: its request may have changed its permissions."""
        return self._authorizer.caller(self.principal, self.host)

    def may_on_any(self, operation: AclOperation, type: ResourceType) -> bool:
        """Whether there is a resource of the type on which it may do this."""
        place = slot(operation, type)
        known = self._known_on_any.get(place)
        if known is None:
            known = self._authorizer.may_on_any(self, operation, type)
            self._known_on_any[place] = known
        return known

    def _audit(
        self,
        decision: Decision,
        operation: AclOperation,
        type: ResourceType,
        name: str,
        request: str,
        count: int,
    ) -> None:
        AUDIT_LOG.log(
            logging.DEBUG if decision.is_allowed else logging.INFO,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
            "for request = %s with resourceRefCount = %d based on rule %s",
            printable(str(self.principal)),
            "Allowed" if decision.is_allowed else "Denied",
            operation.name,
            self.host,
            TYPE_NAMES[type],
            printable(name),
            request,
            count,
            printable(decision.rule),
        )


TYPE_NAMES: Final = {each: each.name.title().replace("_", "") for each in ResourceType}
"""Types of resources as Kafka prints them, and as its folders in ZooKeeper are called."""
