"""`KafkaAccess`: users, tokens, ACLs and quotas of an Apache Kafka, wherever it keeps them."""

from odradek.acl import AccessControlEntry, AclBinding, ResourcePattern
from odradek.client_quota import QuotaEntity, QuotaKey


class KafkaAccess:
    """SCRAM users (their credentials by mechanism), delegation tokens (by id), ACLs and quotas.

    Credentials and tokens are in the form of Kafka 3.9, which is also the one of the embedded
    store."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, str] = {}
        self.acls: set[AclBinding] = set()
        self.quotas: dict[QuotaEntity, dict[QuotaKey, float]] = {}

    def acls_by_pattern(self) -> dict[ResourcePattern, frozenset[AccessControlEntry]]:
        """The entries of every pattern."""
        found: dict[ResourcePattern, set[AccessControlEntry]] = {}
        for pattern, entry in self.acls:
            found.setdefault(pattern, set()).add(entry)
        return {pattern: frozenset(entries) for pattern, entries in found.items()}

    def counts(self) -> dict[str, int]:
        """How many there are of each kind; quotas are counted by entity."""
        return {
            "users": len(self.users),
            "tokens": len(self.tokens),
            "acls": len(self.acls),
            "quotas": len(self.quotas),
        }
