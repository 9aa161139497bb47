"""Takes users, tokens, ACLs and quotas from the records of a metadata log."""

import base64
from typing import Final, cast

from odradek.acl import AccessControlEntry, AclBinding, PatternType, PermissionType, ResourcePattern
from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey
from odradek.kafka_files import kraft_records
from odradek.kafka_files.kafka_access import KafkaAccess
from odradek.model import AclOperation, ResourceType
from odradek.protocol.schema import Json
from odradek.security.delegation_tokens import TokenInformation, token_text
from odradek.security.principal import parse_principal
from odradek.security.sasl.scram import SCRAM_MECHANISMS, ScramCredential, credential_text

_ENTITY_PARTS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}


class KraftAccess(KafkaAccess):
    """The same, from a metadata log, which names an ACL that it removes by its id."""

    def __init__(self) -> None:
        super().__init__()
        self._by_id: Final[dict[str, AclBinding]] = {}

    def apply(self, number: int, fields: dict[str, Json]) -> None:
        """Takes in a record; one of another kind changes nothing.

        Raises:
            ValueError: it has a number or a name that this code does not know.
        """
        if number == kraft_records.ACCESS_CONTROL_ENTRY_RECORD:
            self._add_acl(str(fields["id"]), _binding(fields))
        elif number == kraft_records.REMOVE_ACCESS_CONTROL_ENTRY_RECORD:
            self._remove_acl(str(fields["id"]))
        elif number == kraft_records.USER_SCRAM_CREDENTIAL_RECORD:
            credentials = self.users.setdefault(str(fields["name"]), {})
            credentials[_mechanism(fields)] = credential_text(_credential(fields))
        elif number == kraft_records.REMOVE_USER_SCRAM_CREDENTIAL_RECORD:
            _remove_credential(self, str(fields["name"]), _mechanism(fields))
        elif number == kraft_records.DELEGATION_TOKEN_RECORD:
            token = _token(fields)
            self.tokens[token.token_id] = token_text(token)
        elif number == kraft_records.REMOVE_DELEGATION_TOKEN_RECORD:
            self.tokens.pop(str(fields["tokenId"]), None)
        elif number == kraft_records.CLIENT_QUOTA_RECORD:
            _apply_quota(self, fields)

    def _add_acl(self, acl_id: str, binding: AclBinding) -> None:
        self._by_id[acl_id] = binding
        self.acls.add(binding)

    def _remove_acl(self, acl_id: str) -> None:
        binding = self._by_id.pop(acl_id, None)
        # Another id may stand for the same ACL.
        if binding is not None and binding not in self._by_id.values():
            self.acls.remove(binding)


def _binding(fields: dict[str, Json]) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(_int(fields, "resourceType")),
            str(fields["resourceName"]),
            PatternType(_int(fields, "patternType")),
        ),
        AccessControlEntry(
            str(fields["principal"]),
            str(fields["host"]),
            AclOperation(_int(fields, "operation")),
            PermissionType(_int(fields, "permissionType")),
        ),
    )


def _credential(fields: dict[str, Json]) -> ScramCredential:
    salt, stored_key, server_key = (
        base64.b64decode(str(fields[name])) for name in ("salt", "storedKey", "serverKey")
    )
    return ScramCredential(salt, stored_key, server_key, _int(fields, "iterations"))


def _mechanism(fields: dict[str, Json]) -> str:
    number = _int(fields, "mechanism")
    if not 1 <= number <= len(SCRAM_MECHANISMS):
        raise ValueError(f"there is no SCRAM mechanism of number {number}")
    return SCRAM_MECHANISMS[number - 1]


def _remove_credential(access: KafkaAccess, name: str, mechanism: str) -> None:
    credentials = access.users.get(name, {})
    credentials.pop(mechanism, None)
    if not credentials:
        access.users.pop(name, None)


def _token(fields: dict[str, Json]) -> TokenInformation:
    renewers = cast(list[str], fields["renewers"])
    return TokenInformation(
        str(fields["tokenId"]),
        parse_principal(str(fields["owner"])),
        parse_principal(str(fields["requester"])),
        tuple(map(parse_principal, renewers)),
        *(_int(fields, f"{name}Timestamp") for name in ("issue", "max", "expiration")),
    )


def _apply_quota(access: KafkaAccess, fields: dict[str, Json]) -> None:
    entity, key = _entity(fields), QuotaKey(str(fields["key"]))
    if not fields["remove"]:
        access.quotas.setdefault(entity, {})[key] = cast(float, fields["value"])
        return
    quotas = access.quotas.get(entity, {})
    quotas.pop(key, None)
    if not quotas:
        access.quotas.pop(entity, None)


def _entity(fields: dict[str, Json]) -> QuotaEntity:
    parts: dict[str, str] = {}
    for part in cast(list[dict[str, str | None]], fields["entity"]):
        kind = str(part["entityType"])
        if kind not in _ENTITY_PARTS:
            raise ValueError(f"a quota of {kind!r}, which is unknown here")
        parts[_ENTITY_PARTS[kind]] = part["entityName"] or DEFAULT
    return QuotaEntity(**parts)


def _int(fields: dict[str, Json], name: str) -> int:
    value = fields[name]
    assert isinstance(value, int), f"the schema makes {name} a number"
    return value
